"""A shell around the coordinator for tests: a log in memory, timers on a manual clock, markers that come when told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from barnabas.clock import ManualClock
from barnabas.errors import KafkaError
from barnabas.model import Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from barnabas.primitives.decision import Decision
from barnabas.records.builder import BatchBuilder
from barnabas.records.reader import iterate_batches
from barnabas.transactions.answers import ProducerAnswer
from barnabas.transactions.coordinator import TransactionCoordinator
from barnabas.transactions.entry import Entry
from barnabas.transactions.markers import Markers
from barnabas.transactions.producer import ProducerIdAndEpoch
from barnabas.transactions.records import TransactionRecord, parse_record
from barnabas.transactions.settings import TransactionSettings
from barnabas.transactions.timers import TimerKey
from barnabas.transactions.transaction import Transaction, TransactionState

T = TypeVar("T")

ID = "id"
T0 = TopicPartition("topic", 0)
T1 = TopicPartition("topic", 1)
TIMEOUT_MS = 60_000


class Answer(Generic[T]):
    """What one request is told, once; `then` is called with it, if it is set before."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self.then: Callable[[T], None] | None = None

    def __call__(self, value: T) -> None:
        assert not self.values, "two answers for one request"
        self.values.append(value)
        if self.then is not None:
            self.then(value)

    @property
    def is_there(self) -> bool:
        return bool(self.values)

    @property
    def value(self) -> T:
        [value] = self.values
        return value


def error_of(answer: Answer[Any]) -> type[KafkaError] | None:
    """The kind of error that a request is told."""
    value = answer.value
    error = value.error if isinstance(value, ProducerAnswer) else value
    assert error is None or isinstance(error, KafkaError)
    return None if error is None else type(error)


class ProducerIdSource:
    def __init__(self, first: int = 1_000) -> None:
        self.next = first
        self.error: KafkaError | None = None

    def __call__(self) -> ProducerId:
        if self.error is not None:
            raise self.error
        self.next += 1
        return ProducerId(self.next - 1)


class Shell:
    def __init__(
        self,
        settings: TransactionSettings | None = None,
        *,
        clock: ManualClock | None = None,
        log: bytes = b"",
        producer_ids: ProducerIdSource | None = None,
        holds_markers: bool = False,
        level: int = 2,
    ) -> None:
        # The cluster's transaction.version.
        self.level = level
        self.settings = settings or TransactionSettings()
        self.clock = clock or ManualClock()
        self.log = bytearray(log)
        self.next_offset = 0
        self.producer_ids = producer_ids or ProducerIdSource()
        self.timers: dict[TimerKey, int] = {}
        self.append_error: KafkaError | None = None
        # Appends whose commit is still to come, if they are held.
        self.holds_commits = False
        self.uncommitted: deque[tuple[Decision, int]] = deque()
        self.committed_bytes = len(log)
        # Markers that are still to be written, if they are held, and those that are.
        self.holds_markers = holds_markers
        self.sent: deque[Markers] = deque()
        self.written: list[Markers] = []
        self.coordinator = TransactionCoordinator(self.settings, self.producer_ids, lambda: self.level)
        for header, records in iterate_batches(bytes(self.log)):
            self.coordinator.replay(header, records)
            self.next_offset = header.next_offset
        self.carry_out(self.coordinator.loaded(self.now_ms))

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def reloaded(self, *, holds_markers: bool = False, loses_uncommitted: bool = False) -> Shell:
        """Another coordinator on the same log."""
        return Shell(
            self.settings,
            clock=self.clock,
            log=bytes(self.log[: self.committed_bytes if loses_uncommitted else len(self.log)]),
            producer_ids=self.producer_ids,
            holds_markers=holds_markers,
            level=self.level,
        )

    def carry_out(self, decision: Decision) -> None:
        for key, delay_ms in decision.timers.items():
            assert isinstance(key, TimerKey)
            if delay_ms is None:
                self.timers.pop(key, None)
            else:
                assert delay_ms >= 0
                self.timers[key] = self.now_ms + delay_ms
        if decision.records:
            self._append(decision)
        else:
            self._send_replies(decision, None)
        for markers in decision.other_work:
            assert isinstance(markers, Markers)
            self.sent.append(markers)
            if not self.holds_markers:
                self.write_markers()
        for part in decision.parts:
            self.carry_out(part)

    def _append(self, decision: Decision) -> None:
        assert decision.timeout_ms is None or decision.timeout_ms > 0
        if self.append_error is not None:
            self._settle(decision, self.append_error)
            return
        builder = BatchBuilder(base_offset=Offset(self.next_offset))
        for record in decision.records:
            builder.append(TimestampMs(self.now_ms), record.key_bytes(), record.value_bytes())
        self.log += builder.build()
        self.next_offset += len(decision.records)
        self.uncommitted.append((decision, len(self.log)))
        if not self.holds_commits:
            self.commit()

    def _settle(self, decision: Decision, error: KafkaError | None) -> None:
        self._send_replies(decision, error)
        assert decision.then is not None
        self.carry_out(decision.then(error, self.now_ms))

    def _send_replies(self, decision: Decision, error: KafkaError | None) -> None:
        for requester, response in decision.replies:
            requester.answer(response if error is None else requester.refusal(response, error))

    def commit(self, error: KafkaError | None = None) -> None:
        while self.uncommitted:
            self.commit_next(error)

    def commit_next(self, error: KafkaError | None = None) -> None:
        decision, end_position = self.uncommitted.popleft()
        self.committed_bytes = end_position
        self._settle(decision, error)

    def write_markers(self, errors: dict[TopicPartition, KafkaError] | None = None) -> None:
        """Has the oldest markers written that are not."""
        markers = self.sent.popleft()
        self.written.append(markers)
        results = {partition: (errors or {}).get(partition) for partition in markers.partitions}
        self.carry_out(self.coordinator.markers_written(markers, results, self.now_ms))

    def advance_ms(self, duration_ms: int) -> None:
        """Lets time pass, timer by timer."""
        until_ms = self.now_ms + duration_ms
        for _ in range(100_000):
            due = min(self.timers.items(), key=lambda timer: timer[1], default=None)
            if due is None or due[1] > until_ms:
                break
            self.clock.advance_ms(due[1] - self.now_ms)
            del self.timers[due[0]]
            self.carry_out(self.coordinator.expire(due[0], self.now_ms))
        else:
            raise AssertionError("timers never come to an end")
        self.clock.advance_ms(until_ms - self.now_ms)

    def entry(self, transactional_id: str = ID) -> Entry:
        entry = self.coordinator.find(transactional_id)
        assert entry is not None
        return entry

    def transaction(self, transactional_id: str = ID) -> Transaction:
        return self.entry(transactional_id).transaction

    def state(self, transactional_id: str = ID) -> TransactionState:
        return self.transaction(transactional_id).state

    def records(self) -> list[TransactionRecord]:
        found = []
        for _, records in iterate_batches(bytes(self.log)):
            for record in records:
                parsed = parse_record(record)
                assert parsed is not None
                found.append(parsed)
        return found

    def ask_init(
        self,
        expected: tuple[int, int] | None = None,
        *,
        transactional_id: str = ID,
        timeout_ms: int = TIMEOUT_MS,
    ) -> Answer[ProducerAnswer]:
        answer: Answer[ProducerAnswer] = Answer()
        self.carry_out(
            self.coordinator.init_producer_id(
                transactional_id,
                timeout_ms,
                None if expected is None else producer_of(expected),
                answer,
                self.now_ms,
            )
        )
        return answer

    def init(self, expected: tuple[int, int] | None = None, **options: Any) -> tuple[int, int]:
        """The id and epoch that a producer gets."""
        answer = self.ask_init(expected, **options).value
        assert answer.error is None
        return answer.producer_id, answer.producer_epoch

    def ask_add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        version: int = 0,
        transactional_id: str = ID,
    ) -> Answer[KafkaError | None]:
        answer: Answer[KafkaError | None] = Answer()
        self.carry_out(
            self.coordinator.add_partitions(
                transactional_id,
                producer_of(producer),
                frozenset(partitions or (T0,)),
                version,
                answer,
                self.now_ms,
            )
        )
        return answer

    def add(self, producer: tuple[int, int], *partitions: TopicPartition, **options: Any) -> None:
        assert self.ask_add(producer, *partitions, **options).value is None

    def ask_end(
        self,
        producer: tuple[int, int],
        *,
        commit: bool = True,
        version: int = 0,
        transactional_id: str = ID,
    ) -> Answer[ProducerAnswer]:
        answer: Answer[ProducerAnswer] = Answer()
        self.carry_out(
            self.coordinator.end_transaction(
                transactional_id, producer_of(producer), commit, version, answer, self.now_ms
            )
        )
        return answer

    def end(self, producer: tuple[int, int], **options: Any) -> tuple[int, int]:
        answer = self.ask_end(producer, **options).value
        assert answer.error is None
        return answer.producer_id, answer.producer_epoch

    def verify(
        self, producer: tuple[int, int], partitions: Iterable[TopicPartition], transactional_id: str = ID
    ) -> dict[TopicPartition, KafkaError | None]:
        return self.coordinator.verify_partitions(transactional_id, producer_of(producer), partitions)


def producer_of(producer: tuple[int, int]) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(ProducerId(producer[0]), ProducerEpoch(producer[1]))
