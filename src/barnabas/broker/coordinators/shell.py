"""Carries out what the coordinator of one partition of `__consumer_offsets` decides.

Records are appended as one batch; only tombstones that nobody waits for may be several, since each of them stands for
itself.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import Final

from barnabas.broker.coordinators.base import CoordinatorShell
from barnabas.broker.replication.partition import Partition
from barnabas.broker.waiting.timing_wheel import Timer
from barnabas.clock import Clock
from barnabas.errors import KafkaError
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.decision import Decision, TimerKey
from barnabas.log.partition.append import AppendInfo
from barnabas.log.producers.state import NO_GUARD
from barnabas.model import Offset, TopicPartition
from barnabas.records.header import BatchHeader
from barnabas.records.layout import CompressionType
from barnabas.records.record import Record

log = logging.getLogger(__name__)

# A part of many tombstones ends when it has come this near to the largest batch that the topic takes.
_PART_SHARE: Final = 2


class GroupShell(CoordinatorShell[Decision]):
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
        super().__init__(partition, timer=timer, clock=clock, compression=compression)
        self.coordinator = coordinator
        self._commit_timeout_ms = commit_timeout_ms
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

    async def load(self, buffer_bytes: int) -> None:
        await super().load(buffer_bytes)
        self.forget_partitions(self._deleted)
        self._deleted = set()

    def forget_partitions(self, deleted: set[TopicPartition]) -> None:
        """Partitions are gone, and with them what groups have committed for them."""
        if self._is_loading:
            self._deleted |= deleted
        elif self._is_active and deleted:
            self.carry_out(self.coordinator.offsets.delete_partitions(deleted))

    def _act(self, decision: Decision) -> None:
        self._queue_replies(decision)
        self._change_timers(decision.timers)
        if decision.timers_if_absent:
            missing = {
                key: delay_ms
                for key, delay_ms in decision.timers_if_absent.items()
                if key not in self._timers
            }
            self._change_timers(missing)
        then = decision.then
        if not decision.records:
            assert then is None
        elif then is not None:
            self._append_then(partial(self._append_decided, decision), then, self._commit_timeout_ms)
        else:
            self._append_in_parts(decision)

    def _queue_replies(self, decision: Decision) -> None:
        for caller, response in decision.replies:
            assert callable(caller.ticket)
            self._replies.append(partial(caller.ticket, response))

    def _append_decided(self, decision: Decision) -> AppendInfo:
        producer = decision.producer
        info = self._append(
            decision.records,
            None if producer is None else (producer.producer_id, producer.producer_epoch),
            NO_GUARD if producer is None else producer.verification_guard,
        )
        self.coordinator.appended(decision, Offset(info.first_offset))
        return info

    def _append_in_parts(self, decision: Decision) -> None:
        assert decision.producer is None
        try:
            for part in self._parts(decision):
                self._append_decided(part)
        except KafkaError as error:
            log.warning(
                "tombstones of groups in %s are not written: %s", self.partition.topic_partition, error
            )

    def _parts(self, decision: Decision) -> Iterator[Decision]:
        bound_bytes = self.partition.leader_log().config.max_message_bytes // _PART_SHARE
        part = Decision()
        size_bytes = 0
        for record in decision.records:
            part.records.append(record)
            size_bytes += len(record.key_bytes()) + len(record.value_bytes() or b"")
            if size_bytes >= bound_bytes:
                yield part
                part = Decision()
                size_bytes = 0
        if part.records:
            yield part
