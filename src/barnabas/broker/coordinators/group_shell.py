"""The shell of the coordinator of one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from barnabas.broker.coordinators.shell import CoordinatorShell
from barnabas.broker.replication.partition import Partition
from barnabas.broker.waiting.timing_wheel import Timer
from barnabas.clock import Clock
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.timers import TimerKey
from barnabas.log.partition.append import AppendInfo
from barnabas.model import Offset, ProducerId, TopicPartition
from barnabas.primitives.decision import Decision
from barnabas.records.header import BatchHeader
from barnabas.records.layout import CompressionType
from barnabas.records.record import Record


class GroupShell(CoordinatorShell):
    def __init__(
        self,
        partition: Partition,
        coordinator: GroupCoordinator,
        *,
        timer: Timer,
        clock: Clock,
        commit_timeout_ms: int,
        compression: CompressionType,
    ) -> None:
        super().__init__(
            partition,
            timer=timer,
            clock=clock,
            commit_timeout_ms=commit_timeout_ms,
            compression=compression,
        )
        self.coordinator = coordinator
        # Partitions that were deleted before the offsets of groups were known.
        self._deleted: set[TopicPartition] = set()

    def _replay(self, header: BatchHeader, records: Sequence[Record]) -> None:
        self.coordinator.replay(header, records)

    def _loaded(self, now_ms: int) -> Decision:
        return self.coordinator.loaded(now_ms)

    def _unloaded(self, now_ms: int) -> Decision:
        return self.coordinator.unloaded(now_ms)

    def _expired(self, key: Hashable, now_ms: int) -> Decision:
        assert isinstance(key, TimerKey)
        return self.coordinator.expire(key, now_ms)

    def check_ready(self) -> None:
        super().check_ready()
        if self._relied_on_end_offset:
            # No request waits for records whose commit took too long. They may still be committed.
            partition_log = self.partition.log
            if partition_log is not None:
                self._catch_up(partition_log.high_watermark)

    def _appended(self, decision: Decision, info: AppendInfo, high_watermark: int) -> None:
        self.coordinator.appended(decision, Offset(info.first_offset), high_watermark)
        if high_watermark <= info.last_offset:
            self._relied_on_end_offset = info.last_offset + 1

    def _catch_up(self, high_watermark: int) -> None:
        self.coordinator.committed(high_watermark)
        if not self.coordinator.has_uncommitted:
            self._relied_on_end_offset = 0

    def marker_appended(self, producer_id: ProducerId, info: AppendInfo, *, is_committed: bool) -> None:
        """A transaction that has committed offsets is ended."""
        high_watermark = self.partition.leader_log().high_watermark
        self.coordinator.marker_appended(
            producer_id, Offset(info.first_offset), high_watermark, is_committed=is_committed
        )
        if high_watermark <= info.last_offset:
            self._relied_on_end_offset = info.last_offset + 1

    def _activated(self) -> None:
        deleted, self._deleted = self._deleted, set()
        self.forget_partitions(deleted)

    def forget_partitions(self, deleted: set[TopicPartition]) -> None:
        """Partitions are gone, and with them what groups have committed for them."""
        if self._is_loading:
            self._deleted |= deleted
        elif self._is_active and deleted:
            self.carry_out(self.coordinator.offsets.delete_partitions(deleted))
