"""The log directories of a broker and the manager of the logs in them."""

from __future__ import annotations

import logging
import os
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.broker.metrics.broker_metrics import FlushTimes
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.waiting.scheduling import Scheduling
from barnabas.clock import Clock
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.live_settings import LiveSettings
from barnabas.config.log_config import LogConfig
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.updates import MetadataUpdates
from barnabas.log.directory import LogDirectory
from barnabas.log.manager.directory_check import FoundDirectories, emptied
from barnabas.log.manager.loading import LoadProgress
from barnabas.log.manager.manager import LogManager
from barnabas.log.manager.settings import ManagerSettings
from barnabas.log.partition.environment import LogEnvironment
from barnabas.model import TopicPartition
from barnabas.server.environment import Environment
from barnabas.value import replace

log = logging.getLogger("barnabas.server")

RECOVERY_REPORT_NS: Final = 1_000_000_000


class TopicSettings:
    """The log manager's source of topic settings. It opens no log before the attributes are set."""

    metadata: MetadataCache
    updates: MetadataUpdates

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings

    def config_of(self, topic: str) -> LogConfig:
        """Nothing is deleted from the directories of a topic that is not known."""
        config = self._settings.current
        if not self.is_known(topic):
            return replace(config.log_defaults, barnabas_deletion_hold=True)
        return config.topic_config(self.metadata.image.topic_config(topic))

    def is_known(self, topic: str) -> bool:
        return self.updates.knows(topic)


class DirectoryFailures:
    """Takes the partitions of a failed log directory offline. When no directory is left, the broker stops."""

    def __init__(self, loop: AbstractEventLoop, stop: Callable[[str], None]) -> None:
        self._loop = loop
        self._stop = stop
        self._manager: LogManager | None = None
        self._replicas: ReplicaManager | None = None

    def begin(self, manager: LogManager, replicas: ReplicaManager) -> None:
        """A directory that failed before this call has no partitions: its logs are not open."""
        self._manager = manager
        self._replicas = replicas

    def note(self, directory: LogDirectory, partitions: list[TopicPartition]) -> None:
        """Called from any thread."""
        self._loop.call_soon_threadsafe(self._take_offline, directory.path, partitions)

    def _take_offline(self, path: str, partitions: list[TopicPartition]) -> None:
        if self._manager is None or self._replicas is None:
            return
        self._replicas.take_offline(path, partitions)
        if not self._manager.live_directories():
            causes = ", ".join(f"{each.path} ({each.failure})" for each in self._manager.directories)
            self._stop(f"all log directories have failed: {causes}")


def lock_directories(
    directories: Sequence[str],
    found: FoundDirectories,
    config: BrokerConfig,
    environment: Environment,
    scheduling: Scheduling,
    flush_times: FlushTimes,
    topics: TopicSettings,
    failures: DirectoryFailures,
) -> LogManager:
    """A manager that has locked its directories and opened no log yet."""
    manager = LogManager(
        directories,
        environment=LogEnvironment(
            fs=environment.fs,
            clock=environment.clock,
            scheduler=scheduling.background,
            rng=environment.rng,
            on_flush=flush_times.observe,
        ),
        config_of=topics.config_of,
        settings=manager_settings(config),
        knows_topic=topics.is_known,
        on_offline=failures.note,
        locks=environment.locks_directories,
    )
    accepted_losses = manager.settings.accepted_losses
    for path in found.emptied:
        if path not in accepted_losses:
            manager.directory(path).fail(emptied(path))
    manager.unnamed_directories = [path for path in found.unnamed_directories if path not in accepted_losses]
    manager.lock()
    return manager


def claim_directories(manager: LogManager, cluster_id: str, broker_id: int) -> None:
    """Writes down in each directory whose it is, and which others belong to the same broker."""
    directories = [*(each.path for each in manager.directories), *manager.unnamed_directories]
    for directory in manager.live_directories():
        directory.claim(cluster_id, broker_id, directories)


def manager_settings(config: BrokerConfig) -> ManagerSettings:
    return ManagerSettings(
        num_recovery_threads_per_data_dir=config.num_recovery_threads_per_data_dir,
        log_initial_task_delay_ms=config.log_initial_task_delay_ms,
        log_retention_check_interval_ms=config.log_retention_check_interval_ms,
        log_flush_scheduler_interval_ms=config.log_flush_scheduler_interval_ms,
        log_flush_offset_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
        log_flush_start_offset_checkpoint_interval_ms=config.log_flush_start_offset_checkpoint_interval_ms,
        replica_high_watermark_checkpoint_interval_ms=config.replica_high_watermark_checkpoint_interval_ms,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        verifies_transactions=config.transaction_partition_verification_enable,
        producer_id_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        file_delete_delay_ms=config.log_defaults.file_delete_delay_ms,
        log_cleaner_enable=config.log_cleaner_enable,
        log_cleaner_threads=config.log_cleaner_threads,
        log_cleaner_dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
        log_cleaner_io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
        log_cleaner_io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        log_cleaner_backoff_ms=config.log_cleaner_backoff_ms,
        validate_fully=config.barnabas_record_validation == "full",
        accepted_losses=frozenset(map(os.path.abspath, config.barnabas_accept_loss)),
    )


class RecoveryReport:
    """Logs the progress of recovery: one line a second and directory, and one at the end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_ns: dict[str, int] = {}

    def __call__(self, progress: LoadProgress) -> None:
        if progress.is_clean:
            return
        directory, now_ns = progress.directory, self._clock.monotonic_ns()
        is_done = progress.loaded_logs == progress.total_logs
        if is_done or now_ns >= self._next_ns.get(directory, 0):
            self._next_ns[directory] = now_ns + RECOVERY_REPORT_NS
            log.info("Recovering %s: %d of %d logs", directory, progress.loaded_logs, progress.total_logs)
