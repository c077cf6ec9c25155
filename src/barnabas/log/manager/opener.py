"""Opens logs by the settings of their topic and of the broker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas.config.log_config import LogConfig
from barnabas.log import names
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import StorageFailure
from barnabas.log.manager.settings import ManagerSettings
from barnabas.log.partition.environment import LogEnvironment, PriorState
from barnabas.log.partition.loader import OnSegmentRecovered
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import TopicPartition
from barnabas.value import replace

NEW_LOG: Final = PriorState(clean_shutdown=True, lists_side_files=False, is_gapless=True)
NEW_LOG_WITH_GAPS: Final = replace(NEW_LOG, is_gapless=False)


class LogOpener:
    """Owns the settings of the broker's logs, which may change while the logs are in use.

    Threads: any thread opens a log; one thread at a time changes the settings.
    """

    def __init__(
        self,
        environment: LogEnvironment,
        config_of: Callable[[str], LogConfig],
        settings: ManagerSettings,
        on_failure: Callable[[LogDirectory, TopicPartition, StorageFailure], None],
    ) -> None:
        self.config_of = config_of
        self._on_failure = on_failure
        self._environment = environment
        self.settings = settings

    @property
    def settings(self) -> ManagerSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: ManagerSettings) -> None:
        self._settings = settings
        self._environment = replace(self._environment, validate_fully=settings.validate_fully)
        # All logs share this object.
        producer_settings = self._environment.producer_settings
        producer_settings.producer_id_expiration_ms = settings.producer_id_expiration_ms
        producer_settings.verifies_transactions = settings.verifies_transactions

    def open(
        self,
        directory: LogDirectory,
        name: str,
        prior: PriorState,
        topic_id: bytes | None = None,
        on_segment_recovered: OnSegmentRecovered | None = None,
    ) -> PartitionLog:
        partition = names.parse_partition_dir(name).partition
        config = self.config_of(partition.topic)
        if config.compact or not self.settings.expects_no_gaps:
            # Thousands of logs may be created at once.
            prior = NEW_LOG_WITH_GAPS if prior is NEW_LOG else replace(prior, is_gapless=False)
        return PartitionLog.open(
            directory.file(name),
            environment=self._environment,
            config=config,
            prior=prior,
            topic_id=topic_id,
            on_failure=partial(self._on_failure, directory, partition),
            on_segment_recovered=on_segment_recovered,
        )
