"""Carries out what the coordinator of one partition of `__consumer_offsets` decides.

A decision is carried out as a whole before anybody is answered: an answer lets a connection's next request in, which
may be for the same coordinator. Records are appended as one batch; only tombstones that nobody waits for may be
several, since each of them stands for itself.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

from barnabas.broker.coordinator_loading import read_batches
from barnabas.broker.partition import ACKS_ALL, Partition
from barnabas.broker.purgatory import DelayedOperation, Purgatory
from barnabas.broker.timing_wheel import Timer, TimerTask
from barnabas.clock import Clock
from barnabas.errors import (
    CoordinatorLoadInProgress,
    KafkaError,
    NotCoordinator,
    RequestTimedOut,
)
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.decision import Decision, Reply, Then, TimerKey
from barnabas.log.append import AppendInfo
from barnabas.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Offset, TimestampMs, TopicPartition
from barnabas.records.builder import BatchBuilder
from barnabas.records.layout import CompressionType
from barnabas.records.policy import AppendOrigin

log = logging.getLogger(__name__)

# A part of many tombstones ends when it has come this near to the largest batch that the topic takes.
_PART_SHARE: Final = 2
_FIRST_SEQUENCE: Final = 0


class GroupShell:
    """Loading at first; then it takes requests until it is unloaded."""

    def __init__(
        self,
        partition: Partition,
        coordinator: GroupCoordinator,
        *,
        timer: Timer,
        waiting: Purgatory,
        clock: Clock,
        commit_timeout_ms: int,
        compression: CompressionType,
    ) -> None:
        self.partition = partition
        self.coordinator = coordinator
        self._timer = timer
        self._waiting = waiting
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._compression = compression
        self._is_loading = True
        self._is_active = False
        # Partitions that were deleted before the offsets of groups were known.
        self._deleted: set[TopicPartition] = set()
        self._timers: dict[TimerKey, _CoordinatorTimer] = {}
        self._replies: deque[Reply] = deque()
        self._is_replying = False

    def check_ready(self) -> None:
        if self._is_loading:
            raise CoordinatorLoadInProgress(f"{self.partition.topic_partition} is being read")
        if not self._is_active or self.partition.log is None:
            raise NotCoordinator(f"{self.partition.topic_partition} is not in use here")

    async def load(self, buffer_bytes: int) -> None:
        """Replays the partition. One that cannot be read leaves its groups without a coordinator."""
        try:
            async for header, records in read_batches(self.partition.leader_log(), buffer_bytes=buffer_bytes):
                if not self._is_loading:
                    return
                self.coordinator.replay(header, records)
        except KafkaError as error:
            log.error("the groups in %s cannot be loaded: %s", self.partition.topic_partition, error)
            self._is_loading = False
            return
        if self._is_loading:
            self._is_loading = False
            self._is_active = True
            self.carry_out(self.coordinator.loaded(self._clock.now_ms()))
            self.forget_partitions(self._deleted)
            self._deleted = set()

    def unload(self) -> None:
        """The partition is not ours any more: whoever waits is sent away."""
        was_active, self._is_active = self._is_active, False
        self._is_loading = False
        if was_active:
            self.carry_out(self.coordinator.unloaded(self._clock.now_ms()))
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def forget_partitions(self, deleted: set[TopicPartition]) -> None:
        """Partitions are gone, and with them what groups have committed for them."""
        if self._is_loading:
            self._deleted |= deleted
        elif self._is_active and deleted:
            self.carry_out(self.coordinator.offsets.delete_partitions(deleted))

    def carry_out(self, decision: Decision) -> None:
        self._act(decision)
        if self._is_replying:
            return
        self._is_replying = True
        try:
            while self._replies:
                caller, response = self._replies.popleft()
                assert callable(caller.ticket)
                caller.ticket(response)
        finally:
            self._is_replying = False

    def _act(self, decision: Decision) -> None:
        self._replies.extend(decision.replies)
        for key, delay_ms in decision.timers.items():
            if delay_ms is None:
                self._cancel_timer(key)
            else:
                self._set_timer(key, delay_ms)
        if not decision.records:
            assert decision.then is None
        elif decision.then is None and decision.producer is None:
            self._append_in_parts(decision)
        else:
            self._append_then(decision)

    def _set_timer(self, key: TimerKey, delay_ms: int) -> None:
        timer = self._timers.get(key)
        if timer is None:
            timer = self._timers[key] = _CoordinatorTimer(self, key)
        else:
            timer.cancel()
        self._timer.add(timer, delay_ms)

    def _cancel_timer(self, key: TimerKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def timer_due(self, key: TimerKey) -> None:
        del self._timers[key]
        self.carry_out(self.coordinator.expire(key, self._clock.now_ms()))

    def _append_in_parts(self, decision: Decision) -> None:
        try:
            for part in self._parts(decision):
                self._append(part)
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

    def _append_then(self, decision: Decision) -> None:
        then = decision.then
        assert then is not None
        try:
            info = self._append(decision)
        except KafkaError as error:
            self._act(then(error, self._clock.now_ms()))
            return
        end_offset = info.last_offset + 1
        if self.partition.leader_log().high_watermark >= end_offset:
            self._act(then(None, self._clock.now_ms()))
        else:
            self._waiting.try_complete_else_watch(
                _AwaitedCommit(self, then, end_offset, self._commit_timeout_ms),
                [self.partition.topic_partition],
            )

    def _append(self, decision: Decision) -> AppendInfo:
        producer = decision.producer
        builder = BatchBuilder(
            compression=self._compression,
            producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.producer_epoch,
            base_sequence=NO_SEQUENCE if producer is None else _FIRST_SEQUENCE,
            is_transactional=producer is not None,
        )
        now_ms = TimestampMs(self._clock.now_ms())
        for record in decision.records:
            builder.append(now_ms, record.key_bytes(), record.value_bytes())
        info = self.partition.append(builder.build(), ACKS_ALL, AppendOrigin.COORDINATOR)
        self.coordinator.appended(decision, Offset(info.first_offset))
        return info

    def commit_awaited(self, then: Then, error: KafkaError | None) -> None:
        if self._is_active:
            self.carry_out(then(error, self._clock.now_ms()))


class _CoordinatorTimer(TimerTask):
    __slots__ = ("_key", "_shell")

    def __init__(self, shell: GroupShell, key: TimerKey) -> None:
        super().__init__()
        self._shell = shell
        self._key = key

    def expire(self) -> None:
        try:
            self._shell.timer_due(self._key)
        except Exception:
            # The wheel has other tasks to run, for the whole broker.
            log.exception("a timer of a group failed: %s", self._key)


class _AwaitedCommit(DelayedOperation):
    """Records that are written here and not yet by all replicas in sync."""

    def __init__(self, shell: GroupShell, then: Then, end_offset: int, timeout_ms: int) -> None:
        super().__init__(timeout_ms)
        self._shell = shell
        self._then = then
        self._end_offset = end_offset
        self._error: KafkaError | None = RequestTimedOut("the replicas in sync did not all write the records")

    def try_complete(self) -> bool:
        try:
            if self._shell.partition.leader_log().high_watermark < self._end_offset:
                return False
            self._error = None
        except KafkaError as error:
            self._error = error
        return self.force_complete()

    def on_complete(self) -> None:
        self._shell.commit_awaited(self._then, self._error)
