"""The group coordinators of this broker: one for each partition of `__consumer_offsets` that it leads."""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING, Final
from uuid import UUID

from barnabas.broker.coordinators.runtime import CoordinatorRuntime, Surroundings
from barnabas.broker.replication.partition import Partition
from barnabas.broker.settings.group_configs import group_overrides
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.definition import InvalidSetting
from barnabas.coordination.metadata.changes import changed_topics
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.errors import InvalidConfig, InvalidGroupId
from barnabas.groups.counts import GroupCounts
from barnabas.groups.settings import ASSIGNOR_NAMES, GroupOverrides, GroupSettings
from barnabas.model import TopicPartition
from barnabas.records.layout import CompressionType

if TYPE_CHECKING:
    from barnabas.broker.coordinators.group_shell import GroupShell

log = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"
_MINUTE_MS: Final = 60_000


class GroupRuntime(CoordinatorRuntime["GroupShell"]):
    topic = OFFSETS_TOPIC
    purpose = "groups"

    def __init__(self, surroundings: Surroundings, rng: Random) -> None:
        super().__init__(surroundings)
        self._rng = rng
        self._settings = group_settings(surroundings.settings.current)
        self.counts = GroupCounts()
        self._overrides: dict[str, GroupOverrides] = {}

    @property
    def _load_buffer_bytes(self) -> int:
        return self._live_settings.current.offsets_load_buffer_size

    def shell_of_named(self, group_id: str) -> GroupShell:
        """The same for requests of members, whose group must have a name; other requests may concern the group without
        one.
        """
        if not group_id:
            raise InvalidGroupId("a group with members has a name")
        return self.shell_of(group_id)

    def speaks(self, protocol: str) -> bool:
        return protocol in self._settings.rebalance_protocols

    def begin(self) -> None:
        self._read_group_configs(self._cache.image)
        super().begin()

    def _read_group_configs(self, image: MetadataImage) -> None:
        self._overrides = {}
        for group_id, properties in image.group_configs.items():
            try:
                self._overrides[group_id] = group_overrides(self._live_settings.current, properties)
            except InvalidConfig as error:
                # The broker's bounds may have been moved since.
                log.warning("settings of group %s are not used: %s", group_id, error)
        for shell in self._shells.values():
            shell.coordinator.override_settings(self._overrides)

    def _on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        if before.group_configs is not after.group_configs:
            self._read_group_configs(after)
        if before.topics is after.topics:
            return
        super()._on_image(before, after)
        changed, gone = changed_topics(before, after)
        names = [topic.name for topic in (*changed, *gone)]
        has_new = any(name not in before.topics for name in names)
        for shell in self._shells.values():
            shell.coordinator.topics_changed(after, names, has_new=has_new)
        if gone and self._shells:
            deleted = {
                TopicPartition(each.name, index) for each in gone for index in range(len(each.partitions))
            }
            for shell in self._shells.values():
                shell.forget_partitions(deleted)

    def _new_shell(self, partition: Partition) -> GroupShell:
        # A broker that has no groups starts sooner, and is smaller, without all that belongs to them.
        from barnabas.broker.coordinators.group_shell import GroupShell
        from barnabas.groups.coordinator import GroupCoordinator

        config = self._live_settings.current
        coordinator = GroupCoordinator(self._settings, self._new_uuid, self.counts)
        coordinator.override_settings(self._overrides)
        coordinator.topics_changed(self._cache.image, (), has_new=True)
        return GroupShell(
            partition,
            coordinator,
            timer=self._timer,
            clock=self._clock,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            compression=CompressionType(config.offsets_topic_compression_codec),
        )

    def _new_uuid(self) -> str:
        return str(UUID(int=self._rng.getrandbits(128), version=4))


def group_settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        rebalance_protocols=frozenset(config.group_coordinator_rebalance_protocols),
        consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        consumer_max_size=config.group_consumer_max_size,
        consumer_assignors=tuple(assignor_name(each) for each in config.group_consumer_assignors),
        consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        can_upgrade=config.group_consumer_migration_policy.lower() in ("bidirectional", "upgrade"),
        can_downgrade=config.group_consumer_migration_policy.lower() in ("bidirectional", "downgrade"),
    )


def assignor_name(configured: str) -> str:
    """The name of an assignor, or of Kafka's own class for it."""
    name = configured.rpartition(".")[2].removesuffix("Assignor").lower()
    if name not in ASSIGNOR_NAMES:
        raise InvalidSetting("group.consumer.assignors", configured, " or ".join(ASSIGNOR_NAMES))
    return name
