"""The group coordinators of this broker: one for each partition of `__consumer_offsets` that it leads."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from barnabas.broker.coordinators.runtime import CoordinatorRuntime, Surroundings
from barnabas.broker.replication.partition import Partition
from barnabas.broker.settings.group_configs import group_overrides
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.definition import InvalidSetting
from barnabas.coordination.metadata.changes import changed_topics
from barnabas.coordination.metadata.features import GROUP_VERSION, NO_FEATURES_EPOCH
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.errors import (
    CoordinatorLoadInProgress,
    InvalidConfig,
    InvalidGroupId,
    UnsupportedVersion,
)
from barnabas.groups.counts import GroupCounts
from barnabas.groups.settings import ASSIGNOR_NAMES, CONSUMER, GroupOverrides, GroupSettings
from barnabas.model import TopicPartition
from barnabas.records.layout import CompressionType

if TYPE_CHECKING:
    from barnabas.broker.coordinators.group_shell import GroupShell

log = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"
_MINUTE_MS: Final = 60_000

_GroupConfigs: TypeAlias = Mapping[str, Mapping[str, str]]


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

    def check_consumer_protocol(self) -> None:
        """Raises UnsupportedVersion if there are no groups of the consumer protocol, and CoordinatorLoadInProgress if
        that is not settled yet.
        """
        if CONSUMER not in self._settings.rebalance_protocols:
            raise UnsupportedVersion("group.coordinator.rebalance.protocols does not have it")
        features = self._cache.image.features
        if features.level(GROUP_VERSION) < 1:
            if features.epoch == NO_FEATURES_EPOCH and self._has_features():
                # A new cluster settles its features with its first topic, and this broker has not read them yet.
                raise CoordinatorLoadInProgress("the features of the new cluster are not settled yet")
            raise UnsupportedVersion("group.version is 0 in this cluster: use group.protocol=classic")

    def _has_features(self) -> bool:
        """Whether the protocol level of the cluster has features."""
        from barnabas.peers.versions import FEATURES, ProtocolLevel

        return ProtocolLevel.parse(self._live_settings.current.inter_broker_protocol_version) >= FEATURES

    def begin(self) -> None:
        self._read_group_configs({}, self._cache.image.group_configs)
        super().begin()

    def _read_group_configs(self, before: _GroupConfigs, after: _GroupConfigs) -> None:
        known, self._overrides = self._overrides, {}
        for group_id, properties in after.items():
            if group_id in known and before.get(group_id) is properties:
                self._overrides[group_id] = known[group_id]
                continue
            try:
                self._overrides[group_id] = group_overrides(self._live_settings.current, properties)
            except InvalidConfig as error:
                # The broker's bounds may have been moved since.
                log.warning("settings of group %s are not used: %s", group_id, error)
        for shell in self._shells.values():
            shell.coordinator.override_settings(self._overrides)

    def _on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        if before.group_configs is not after.group_configs:
            self._read_group_configs(before.group_configs, after.group_configs)
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
