"""Carries out what the machine of a coordinator decides. The machine lives on the records of one partition.

The shell loads the machine by replaying the partition. Then it appends what the machine decides and sends the replies
when the records are committed (see `primitives.decision`). A decision is carried out as a whole before any reply is
sent: a reply lets the next request of a connection in, which may be for the same coordinator.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from barnabas.broker.coordinators.loading import read_batches
from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.broker.replication.replicated import await_replicated
from barnabas.broker.waiting.background import Background
from barnabas.broker.waiting.timing_wheel import Timer, TimerTask
from barnabas.clock import Clock
from barnabas.errors import (
    CoordinatorLoadInProgress,
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicasAfterAppend,
    RequestTimedOut,
)
from barnabas.log.partition.append import AppendInfo
from barnabas.log.producers.state import NO_GUARD
from barnabas.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TimestampMs
from barnabas.primitives.decision import Decision, Producer, Requester, StoredRecord
from barnabas.records.builder import BatchBuilder
from barnabas.records.header import BatchHeader
from barnabas.records.layout import INT32_MAX, CompressionType
from barnabas.records.policy import AppendOrigin
from barnabas.records.record import Record
from barnabas.replication.leader import PartitionLeader

log = logging.getLogger(__name__)

_FIRST_SEQUENCE: Final = 0
# A batch of independent records ends when it is this close to the largest batch of the topic.
_PART_SHARE: Final = 2


class CoordinatorShell(ABC):
    """Loads first; then it takes requests until it is unloaded."""

    def __init__(
        self,
        partition: Partition,
        *,
        timer: Timer,
        clock: Clock,
        commit_timeout_ms: int,
        compression: CompressionType = CompressionType.NONE,
    ) -> None:
        self.partition = partition
        self._timer = timer
        self._clock = clock
        # For decisions that do not say how long their records may take to be committed.
        self._commit_timeout_ms = commit_timeout_ms
        self._compression = compression
        self._is_loading = True
        self._is_active = False
        # In which the partition was loaded. After another one the log may have other records.
        self._leadership: PartitionLeader | None = None
        self._timers: dict[Hashable, _CoordinatorTimer] = {}
        self._replies: deque[tuple[Requester, Any]] = deque()
        self._is_replying = False
        # The end of the records that the machine relies on and that are not committed; 0 if all are.
        self._relied_on_end_offset = 0
        # Decisions whose records are not committed yet, or whose replies rely on such records.
        self._kept: dict[int, Decision] = {}
        self._kept_count = 0

    @abstractmethod
    def _replay(self, header: BatchHeader, records: Sequence[Record]) -> None:
        """A batch of the partition while it is loaded. Raises InvalidRecord if a record is not what it should be."""

    @abstractmethod
    def _loaded(self, now_ms: int) -> Decision: ...

    @abstractmethod
    def _activated(self) -> None:
        """Does what was put off until the partition is loaded."""

    @abstractmethod
    def _unloaded(self, now_ms: int) -> Decision:
        """The replies to requests that wait for something else than records to be committed."""

    @abstractmethod
    def _expired(self, key: Hashable, now_ms: int) -> Decision:
        """A timer is due, and forgotten."""

    @abstractmethod
    def _appended(self, decision: Decision, info: AppendInfo, high_watermark: int) -> None:
        """The records of the decision are in the log. A machine that relies on them sets `_relied_on_end_offset`."""

    @abstractmethod
    def _catch_up(self, high_watermark: int) -> None:
        """Records are committed up to the high watermark."""

    def _do(self, work: object) -> None:
        """Other work of a decision."""
        raise AssertionError(f"unknown work: {work}")

    @property
    def is_active(self) -> bool:
        return self._is_active and self.partition.leadership is self._leadership

    @property
    def is_loading(self) -> bool:
        return self._is_loading

    def check_ready(self) -> None:
        if self._is_loading:
            raise CoordinatorLoadInProgress(f"{self.partition.topic_partition} is being read")
        if not self.is_active:
            raise self._not_coordinator()

    def _not_coordinator(self) -> NotCoordinator:
        return NotCoordinator(f"{self.partition.topic_partition} is not coordinated here.")

    @property
    def is_outdated(self) -> bool:
        """Whether this broker leads the partition again, after it has not led it for a while."""
        leadership = self.partition.leadership
        return leadership is not None and self._leadership is not None and leadership is not self._leadership

    async def load(self, buffer_bytes: int, background: Background) -> None:
        """Replays the partition. One that cannot be read leaves its keys without a coordinator."""
        self.partition.readers += 1
        try:
            source = self.partition.leader_log()
            self._leadership = self.partition.leadership
            async for header, records in read_batches(source, background, buffer_bytes=buffer_bytes):
                if not self._is_loading:
                    return
                self._replay(header, records)
            if self._is_loading:
                self._activate_when_committed(source.log_end_offset)
        except KafkaError as error:
            if self._is_loading:
                self._fail_to_load(error)
            # Else another leader has truncated the log under the reader, and nobody needs what it says.
        except Exception as error:
            # Other partitions wait to be loaded.
            if self._is_loading:
                self._fail_to_load(error)
        finally:
            self.partition.readers -= 1

    def _activate_when_committed(self, end_offset: int) -> None:
        """No client may see records in the log of a new leader that may still be lost with it."""
        if self.partition.has_replicated(end_offset):
            self._activate()
        else:
            await_replicated(
                self.partition,
                end_offset,
                self._commit_timeout_ms,
                partial(self._load_committed, end_offset),
            )

    def _load_committed(self, end_offset: int, error: KafkaError | None) -> None:
        if not self._is_loading:
            return
        if error is None or isinstance(error, NotEnoughReplicasAfterAppend):
            self._activate()
        elif isinstance(error, RequestTimedOut):
            self._activate_when_committed(end_offset)
        else:
            self._fail_to_load(error)

    def _fail_to_load(self, error: Exception) -> None:
        is_expected = isinstance(error, KafkaError)
        log.error(
            "%s cannot be loaded: %s",
            self.partition.topic_partition,
            error,
            exc_info=None if is_expected else error,
        )
        self._is_loading = self._is_active = False
        self._kept.clear()
        self._replies.clear()
        self._cancel_timers()

    def _activate(self) -> None:
        self._is_loading = False
        self._is_active = True
        try:
            self.carry_out(self._loaded(self._clock.now_ms()))
            self._activated()
        except Exception as error:
            # Others wait for the same records to be committed.
            self._fail_to_load(error)

    def unload(self) -> None:
        """The partition is not ours any more: clients that wait are sent away."""
        was_active, self._is_active = self._is_active, False
        self._is_loading = False
        if was_active:
            self._replies.extend(self._unloaded(self._clock.now_ms()).replies)
            self._refuse_kept()
            self._send_replies()
        self._cancel_timers()

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _refuse_kept(self) -> None:
        """The next coordinator knows whether the records are committed. The requesters ask it."""
        kept, self._kept = self._kept, {}
        gone = self._not_coordinator()
        for decision in kept.values():
            self._queue_replies(decision, gone)
            if decision.then is not None:
                self._replies.extend(decision.then(gone, self._clock.now_ms()).replies)

    def carry_out(self, decision: Decision) -> None:
        self._act(decision)
        self._send_replies()

    def _act(self, decision: Decision) -> None:
        if decision.timers:
            self._change_timers(decision.timers)
        if decision.timers_if_absent:
            self._change_timers(
                {
                    key: delay_ms
                    for key, delay_ms in decision.timers_if_absent.items()
                    if key not in self._timers
                }
            )
        if not decision.records:
            assert decision.then is None
            if decision.replies and self._relied_on_end_offset:
                self._keep(decision, self._relied_on_end_offset)
            else:
                self._replies.extend(decision.replies)
        elif decision.is_atomic:
            self._append(decision)
        else:
            self._append_in_parts(decision)
        for work in decision.other_work:
            self._do(work)
        for part in decision.parts:
            self._act(part)

    def _send_replies(self) -> None:
        if self._is_replying:
            return
        self._is_replying = True
        try:
            while self._replies:
                requester, response = self._replies.popleft()
                requester.answer(response)
        finally:
            self._is_replying = False

    def _change_timers(self, timers: Mapping[Hashable, int | None]) -> None:
        """Sets timers to their delay in milliseconds, or cancels them where that is None."""
        for key, delay_ms in timers.items():
            timer = self._timers.pop(key, None)
            if timer is not None:
                timer.cancel()
            if delay_ms is not None:
                timer = _CoordinatorTimer(self, key) if timer is None else timer
                self._timers[key] = timer
                self._timer.add(timer, delay_ms)

    def timer_due(self, key: Hashable) -> None:
        del self._timers[key]
        self.carry_out(self._expired(key, self._clock.now_ms()))

    def _append(self, decision: Decision) -> None:
        try:
            info = self._write(decision.records, decision.producer)
        except KafkaError as error:
            self._settle(decision, error)
            return
        high_watermark = self.partition.leader_log().high_watermark
        self._appended(decision, info, high_watermark)
        if high_watermark > info.last_offset:
            self._settle(decision, None)
        else:
            self._keep(decision, info.last_offset + 1)

    def _keep(self, decision: Decision, end_offset: int) -> None:
        """Settles the decision when all records before the offset are committed."""
        self._kept_count += 1
        self._kept[self._kept_count] = decision
        timeout_ms = self._commit_timeout_ms if decision.timeout_ms is None else decision.timeout_ms
        await_replicated(
            self.partition, end_offset, timeout_ms, partial(self._commit_awaited, self._kept_count)
        )

    def _commit_awaited(self, number: int, error: KafkaError | None) -> None:
        decision = self._kept.pop(number, None)
        if decision is None:
            # The partition is not ours any more, and the requesters know it.
            return
        if isinstance(error, NotEnoughReplicasAfterAppend):
            # The records are committed, and the next coordinator will read them.
            error = None
        if error is None:
            self._catch_up(self.partition.leader_log().high_watermark)
        self._settle(decision, error)
        self._send_replies()

    def _append_in_parts(self, decision: Decision) -> None:
        assert decision.producer is None
        assert decision.then is None
        assert not decision.replies
        for part in self._parts(decision.records):
            self._append(part)

    def _parts(self, records: Sequence[StoredRecord]) -> Iterator[Decision]:
        partition_log = self.partition.log
        # Without a log it is being exchanged, and the append is refused.
        bound_bytes = (
            INT32_MAX if partition_log is None else partition_log.config.max_message_bytes // _PART_SHARE
        )
        part = Decision()
        size_bytes = 0
        for record in records:
            part.records.append(record)
            size_bytes += len(record.key_bytes()) + len(record.value_bytes() or b"")
            if size_bytes >= bound_bytes:
                yield part
                part = Decision()
                size_bytes = 0
        if part.records:
            yield part

    def _write(self, records: Sequence[StoredRecord], producer: Producer | None) -> AppendInfo:
        """Appends records as one batch, in a transaction of the producer if there is one."""
        if self.partition.leadership is not self._leadership:
            raise self._not_coordinator()
        builder = BatchBuilder(
            compression=self._compression,
            producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.producer_epoch,
            base_sequence=NO_SEQUENCE if producer is None else _FIRST_SEQUENCE,
            is_transactional=producer is not None,
        )
        now_ms = TimestampMs(self._clock.now_ms())
        bound_bytes = self._uncompressed_bytes_max()
        for record in records:
            builder.append(now_ms, record.key_bytes(), record.value_bytes())
            if builder.size_bytes > bound_bytes:
                # The log would refuse the batch. Clients can ask for offsets with megabytes of metadata at once.
                raise MessageTooLarge(
                    f"a batch of more than the {bound_bytes} bytes that {self.partition.topic_partition} allows"
                )
        guard = NO_GUARD if producer is None else producer.verification_guard
        return self.partition.append(builder.build(), ACKS_ALL, AppendOrigin.COORDINATOR, guard)

    def _uncompressed_bytes_max(self) -> int:
        """The size above which the log refuses a batch, whatever records follow."""
        partition_log = self.partition.log
        if partition_log is None or self._compression is not CompressionType.NONE:
            return INT32_MAX
        return partition_log.config.max_message_bytes

    def _settle(self, decision: Decision, error: KafkaError | None) -> None:
        """The records of the decision are committed, or the error has kept them from it."""
        self._queue_replies(decision, error)
        if decision.then is not None:
            self._act(decision.then(error, self._clock.now_ms()))
        elif error is not None and not decision.replies:
            log.warning("records of %s are not written: %s", self.partition.topic_partition, error)

    def _queue_replies(self, decision: Decision, error: KafkaError | None) -> None:
        if error is None:
            self._replies.extend(decision.replies)
        else:
            for requester, response in decision.replies:
                self._replies.append((requester, requester.refusal(response, error)))


class _CoordinatorTimer(TimerTask):
    __slots__ = ("_key", "_shell")

    def __init__(self, shell: CoordinatorShell, key: Hashable) -> None:
        super().__init__()
        self._shell = shell
        self._key = key

    def expire(self) -> None:
        try:
            self._shell.timer_due(self._key)
        except Exception:
            # The wheel has other tasks to run, for the whole broker.
            log.exception("a timer of a coordinator failed: %s", self._key)
