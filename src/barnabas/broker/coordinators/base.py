"""What coordinators of groups and of transactions have in common: a machine that lives on one partition's records.

The shell loads the machine by replaying the partition, and carries out what it decides: records are appended as one
batch, and the machine goes on when they are committed. A decision is carried out as a whole before anybody is
answered: an answer lets a connection's next request in, which may be for the same coordinator.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from barnabas.broker.coordinators.loading import read_batches
from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.broker.replication.replicated import await_replicated
from barnabas.broker.waiting.timing_wheel import Timer, TimerTask
from barnabas.clock import Clock
from barnabas.errors import (
    CoordinatorLoadInProgress,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicasAfterAppend,
)
from barnabas.log.partition.append import AppendInfo
from barnabas.log.producers.state import NO_GUARD
from barnabas.model import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from barnabas.records.builder import BatchBuilder
from barnabas.records.header import BatchHeader
from barnabas.records.layout import CompressionType
from barnabas.records.policy import AppendOrigin
from barnabas.records.record import Record

log = logging.getLogger(__name__)

_FIRST_SEQUENCE: Final = 0

DecisionT = TypeVar("DecisionT")
KeyT = TypeVar("KeyT", bound=Hashable)


class StoredRecord(Protocol):
    def key_bytes(self) -> bytes: ...

    def value_bytes(self) -> bytes | None: ...


class CoordinatorShell(ABC, Generic[DecisionT]):
    """Loading at first; then it takes requests until it is unloaded."""

    def __init__(
        self,
        partition: Partition,
        *,
        timer: Timer,
        clock: Clock,
        compression: CompressionType = CompressionType.NONE,
    ) -> None:
        self.partition = partition
        self._timer = timer
        self._clock = clock
        self._compression = compression
        self._is_loading = True
        self._is_active = False
        self._timers: dict[Hashable, _CoordinatorTimer] = {}
        self._replies: deque[Callable[[], None]] = deque()
        self._is_replying = False

    @abstractmethod
    def _replay(self, header: BatchHeader, records: Sequence[Record]) -> None:
        """A batch of the partition while it is loaded. Raises InvalidRecord if a record is not what it should be."""

    @abstractmethod
    def _loaded(self, now_ms: int) -> DecisionT: ...

    @abstractmethod
    def _unloaded(self, now_ms: int) -> DecisionT:
        """What those are told who wait for something else than records to be committed."""

    @abstractmethod
    def _expired(self, key: Hashable, now_ms: int) -> DecisionT:
        """A timer is due, and forgotten."""

    @abstractmethod
    def _act(self, decision: DecisionT) -> None:
        """Queues the replies of a decision and does all the rest of it."""

    @abstractmethod
    def _queue_replies(self, decision: DecisionT) -> None: ...

    @property
    def is_active(self) -> bool:
        return self._is_active

    @property
    def is_loading(self) -> bool:
        return self._is_loading

    def check_ready(self) -> None:
        if self._is_loading:
            raise CoordinatorLoadInProgress(f"{self.partition.topic_partition} is being read")
        if not self._is_active or self.partition.log is None:
            raise NotCoordinator(f"{self.partition.topic_partition} is not in use here")

    async def load(self, buffer_bytes: int) -> None:
        """Replays the partition. One that cannot be read leaves its keys without a coordinator."""
        try:
            async for header, records in read_batches(self.partition.leader_log(), buffer_bytes=buffer_bytes):
                if not self._is_loading:
                    return
                self._replay(header, records)
        except KafkaError as error:
            log.error("%s cannot be loaded: %s", self.partition.topic_partition, error)
            self._is_loading = False
            return
        if self._is_loading:
            self._is_loading = False
            self._is_active = True
            self.carry_out(self._loaded(self._clock.now_ms()))

    def unload(self) -> None:
        """The partition is not ours any more: whoever waits is sent away."""
        was_active, self._is_active = self._is_active, False
        self._is_loading = False
        if was_active:
            self._queue_replies(self._unloaded(self._clock.now_ms()))
            self._send_replies()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def carry_out(self, decision: DecisionT) -> None:
        self._act(decision)
        self._send_replies()

    def _send_replies(self) -> None:
        if self._is_replying:
            return
        self._is_replying = True
        try:
            while self._replies:
                self._replies.popleft()()
        finally:
            self._is_replying = False

    def _change_timers(self, timers: Mapping[KeyT, int | None]) -> None:
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

    def _append_then(
        self,
        append: Callable[[], AppendInfo],
        then: Callable[[KafkaError | None, int], DecisionT],
        timeout_ms: int,
    ) -> None:
        """Goes on with `then` once the records are committed, or with the error that kept them from it."""
        try:
            info = append()
        except KafkaError as error:
            self._act(then(error, self._clock.now_ms()))
            return
        end_offset = info.last_offset + 1
        if self.partition.has_replicated(end_offset):
            self._act(then(None, self._clock.now_ms()))
        else:
            await_replicated(self.partition, end_offset, timeout_ms, partial(self._commit_awaited, then))

    def _append(
        self,
        records: Sequence[StoredRecord],
        producer: tuple[ProducerId, ProducerEpoch] | None = None,
        verification_guard: int = NO_GUARD,
    ) -> AppendInfo:
        """Appends records as one batch, in a transaction of the producer if there is one."""
        builder = BatchBuilder(
            compression=self._compression,
            producer_id=NO_PRODUCER_ID if producer is None else producer[0],
            producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer[1],
            base_sequence=NO_SEQUENCE if producer is None else _FIRST_SEQUENCE,
            is_transactional=producer is not None,
        )
        now_ms = TimestampMs(self._clock.now_ms())
        for record in records:
            builder.append(now_ms, record.key_bytes(), record.value_bytes())
        return self.partition.append(builder.build(), ACKS_ALL, AppendOrigin.COORDINATOR, verification_guard)

    def _commit_awaited(
        self, then: Callable[[KafkaError | None, int], DecisionT], error: KafkaError | None
    ) -> None:
        if isinstance(error, NotEnoughReplicasAfterAppend):
            # The records are committed, and the next coordinator will read them.
            error = None
        if self._is_active:
            self.carry_out(then(error, self._clock.now_ms()))
            return
        # Whether the records are committed is for the next coordinator to see; who waits for them asks it.
        gone = NotCoordinator(f"{self.partition.topic_partition} is not in use here any more")
        self._queue_replies(then(gone, self._clock.now_ms()))
        self._send_replies()


class _CoordinatorTimer(TimerTask):
    __slots__ = ("_key", "_shell")

    def __init__(self, shell: CoordinatorShell[DecisionT], key: Hashable) -> None:
        super().__init__()
        self._shell = shell
        self._key = key

    def expire(self) -> None:
        try:
            self._shell.timer_due(self._key)
        except Exception:
            # The wheel has other tasks to run, for the whole broker.
            log.exception("a timer of a coordinator failed: %s", self._key)
