"""The coordinator of the transactions whose records are in one partition of `__transaction_state`.

Loading is `replay` of all batches of the partition in order, then `loaded`, which resumes the transactions that are
prepared and not complete. After that requests, timers, commits of records and results of markers may come in any order;
each method returns a decision for the shell (see `decision`).

A step takes effect when its record is committed. Until then the transaction has a pending state, and a request for
another step gets CONCURRENT_TRANSACTIONS. The same holds from the moment a transaction is prepared until its markers
are written and its completion is committed. Producers get their answer when the end is prepared: nothing can undo it
then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from barnabas.errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaError,
    NotCoordinator,
    TransactionAbortable,
    TransactionCoordinatorFenced,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
from barnabas.model import NO_PRODUCER_ID, ProducerId, TimestampMs, TopicPartition
from barnabas.primitives.decision import Decision
from barnabas.records.header import BatchHeader
from barnabas.records.record import Record
from barnabas.transactions.answers import (
    AnswerError,
    AnswerProducer,
    AsksForError,
    AsksForProducer,
    ProducerAnswer,
)
from barnabas.transactions.entry import (
    COMPLETED,
    RETRY_MIN_MS,
    Entry,
    check_end,
    check_end_of_version_0,
    check_nothing_pending,
    check_producer,
    check_taker,
)
from barnabas.transactions.markers import Markers
from barnabas.transactions.producer import TRANSACTION_VERSION_2, ProducerIdAndEpoch
from barnabas.transactions.records import TransactionRecord, parse_record
from barnabas.transactions.settings import TransactionSettings
from barnabas.transactions.timers import TimerKey, TimerKind
from barnabas.transactions.transaction import (
    AT_REST,
    PREPARED,
    Transaction,
    TransactionState,
)

ABORT_TIMED_OUT: Final = TimerKey(TimerKind.ABORT_TIMED_OUT)
REMOVE_EXPIRED: Final = TimerKey(TimerKind.REMOVE_EXPIRED)
# The work of one timer is done in rounds, so that requests run in between.
ROUND_MAX: Final = 200
ROUND_PAUSE_MS: Final = 20
# How long tombstones wait for the replicas.
TOMBSTONE_TIMEOUT_MS: Final = 30_000
RETRY_MAX_MS: Final = 5_000

# The partition does not take markers at all, so it has nothing of the transaction either.
_NOTHING_TO_END: Final = (UnsupportedForMessageFormat, UnsupportedVersion)
# Another coordinator has taken over, or another producer: neither needs this end.
_OVERTAKEN: Final = (InvalidProducerEpoch, TransactionCoordinatorFenced)

# Adds to the decision what follows a step, given the error that kept it from being made.
_Finish = Callable[[Decision, Entry, KafkaError | None, int], None]


class TransactionCoordinator:
    def __init__(
        self,
        settings: TransactionSettings,
        new_producer_id: Callable[[], ProducerId],
        level: Callable[[], int] = lambda: TRANSACTION_VERSION_2,
    ) -> None:
        """`new_producer_id` raises a KafkaError while no id is available; `level` is `transaction.version` now.

        The version of a request decides for its transaction. The level decides where no client asks.
        """
        self._settings = settings
        self._new_producer_id = new_producer_id
        self._level = level
        # In the order of their last step, so that the next to expire comes first.
        self._entries: dict[str, Entry] = {}
        self._ongoing: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        """The transactional ids, as far as they are committed."""
        return (entry for entry in self._entries.values() if entry.is_stored)

    def find(self, transactional_id: str) -> Entry | None:
        entry = self._entries.get(transactional_id)
        return entry if entry is not None and entry.is_stored else None

    def replay(self, header: BatchHeader, records: Iterable[Record]) -> None:
        """A batch of the partition while it is loaded. Raises InvalidRecord if a record is not what it should be."""
        if header.is_control:
            return
        for record in records:
            parsed = parse_record(record)
            if parsed is None:
                continue
            self._entries.pop(parsed.transactional_id, None)
            if parsed.transaction is not None:
                self._entries[parsed.transactional_id] = Entry(parsed.transactional_id, parsed.transaction)

    def highest_producer_id(self) -> ProducerId:
        """The highest that a transactional id has or will have; -1 if there are none."""
        return max(
            (
                max(entry.transaction.producer_id, entry.transaction.next_producer_id)
                for entry in self._entries.values()
            ),
            default=NO_PRODUCER_ID,
        )

    def loaded(self, now_ms: int) -> Decision:
        decision = Decision()
        parts: list[Decision] = []
        for entry in self._entries.values():
            if entry.transaction.state in PREPARED:
                part = Decision()
                self._begin_completion(part, entry, now_ms)
                parts.append(part)
            elif entry.transaction.state is TransactionState.ONGOING:
                self._ongoing[entry.transactional_id] = entry
        decision.parts = parts
        decision.timers[ABORT_TIMED_OUT] = self._settings.abort_timed_out_interval_ms
        decision.timers[REMOVE_EXPIRED] = self._settings.remove_expired_interval_ms
        return decision

    def expire(self, key: TimerKey, now_ms: int) -> Decision:
        """A timer is due; the shell has forgotten it."""
        if key == ABORT_TIMED_OUT:
            return self._abort_timed_out(now_ms)
        if key == REMOVE_EXPIRED:
            return self._remove_expired(now_ms)
        decision = Decision()
        entry = self._entries.get(key.transactional_id)
        if entry is not None and entry.transaction.state in PREPARED:
            self._go_on_completing(decision, entry, now_ms)
        return decision

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        answer: AnswerProducer,
        now_ms: int,
    ) -> Decision:
        """A producer takes a transactional id; `expected` is what it has been before, if it has.

        A transaction that is open is aborted, and the producer has to ask again.
        """
        assert 0 < timeout_ms <= self._settings.transaction_max_timeout_ms
        decision = Decision()
        requester = AsksForProducer(answer)
        try:
            entry = self._entries.get(transactional_id)
            if entry is None:
                entry = self._entries[transactional_id] = self._new_entry(
                    transactional_id, timeout_ms, now_ms
                )
            check_taker(entry, expected)
            if entry.transaction.state is TransactionState.ONGOING:
                self._abort(decision, entry, now_ms)
                raise ConcurrentTransactions("the transaction of the producer before is being aborted")
            begun = self._begin_producer(entry.transaction, timeout_ms, expected, now_ms)
        except KafkaError as error:
            decision.reply(requester, ProducerAnswer(error=error))
            return decision
        self._step(decision, entry, begun)
        decision.reply(requester, _answer_of(begun))
        return decision

    def _new_entry(self, transactional_id: str, timeout_ms: int, now_ms: int) -> Entry:
        return Entry(
            transactional_id,
            Transaction(
                producer_id=self._new_producer_id(),
                timeout_ms=timeout_ms,
                last_update_timestamp=TimestampMs(now_ms),
            ),
        )

    def _begin_producer(
        self, transaction: Transaction, timeout_ms: int, expected: ProducerIdAndEpoch | None, now_ms: int
    ) -> Transaction:
        expected_epoch = None if expected is None else expected.producer_epoch
        if transaction.is_epoch_exhausted and expected_epoch in (None, transaction.producer_epoch):
            return transaction.begin_producer_id(self._new_producer_id(), timeout_ms, expected_epoch, now_ms)
        return transaction.begin_producer(timeout_ms, expected_epoch, now_ms)

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, KafkaError | None]:
        """Whether each partition is part of the producer's open transaction.

        Pending state is not considered: the partition's log decides when it appends.
        """
        try:
            entry = self._entry_of(transactional_id)
            check_producer(entry.transaction, producer)
            if entry.transaction.state in PREPARED:
                raise ConcurrentTransactions(f"the transaction of {transactional_id} is being completed")
        except KafkaError as error:
            return dict.fromkeys(partitions, error)
        known = entry.transaction.partitions
        missing = TransactionAbortable(f"it is not part of the transaction of {transactional_id}")
        return {partition: None if partition in known else missing for partition in partitions}

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        version: int,
        answer: AnswerError,
        now_ms: int,
    ) -> Decision:
        """Partitions become part of the producer's transaction, which begins if there is none."""
        decision = Decision()
        requester = AsksForError(answer)
        try:
            entry = self._entry_of(transactional_id)
            check_nothing_pending(entry)
            check_producer(entry.transaction, producer)
        except KafkaError as error:
            decision.reply(requester, error)
            return decision
        transaction = entry.transaction
        if transaction.state is not TransactionState.ONGOING or not partitions <= transaction.partitions:
            added = transaction.add_partitions(partitions, version, now_ms)
            self._step(decision, entry, added)
        decision.reply(requester, None)
        return decision

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        is_commit: bool,
        version: int,
        answer: AnswerProducer,
        now_ms: int,
    ) -> Decision:
        decision = Decision()
        requester = AsksForProducer(answer)
        try:
            entry = self._entry_of(transactional_id)
            check = check_end if version >= TRANSACTION_VERSION_2 else check_end_of_version_0
            is_ended = check(entry, producer, is_commit)
            transaction = entry.transaction
            if not is_ended:
                # The producer continues with the id and epoch that it will have when the transaction is complete.
                transaction = self._prepare(decision, entry, is_commit, version, now_ms).complete(now_ms)
        except KafkaError as error:
            decision.reply(requester, ProducerAnswer(error=error))
            return decision
        decision.reply(requester, _answer_of(transaction))
        return decision

    def _entry_of(self, transactional_id: str) -> Entry:
        entry = self._entries.get(transactional_id)
        if entry is None or (entry.pending is None and not entry.is_stored):
            raise InvalidProducerIdMapping(f"{transactional_id} has no producer id")
        return entry

    def _step(self, decision: Decision, entry: Entry, to: Transaction, finish: _Finish | None = None) -> None:
        assert entry.pending is None
        entry.pending = to.state
        self._append(decision, entry, to, finish)

    def _append(self, decision: Decision, entry: Entry, to: Transaction, finish: _Finish | None) -> None:
        records = [TransactionRecord(entry.transactional_id, to, self._level())]
        decision.append(records, partial(self._step_ended, entry, to, finish))
        decision.timeout_ms = to.timeout_ms

    def _step_ended(
        self, entry: Entry, to: Transaction, finish: _Finish | None, error: KafkaError | None, now_ms: int
    ) -> Decision:
        decision = Decision()
        assert entry.pending is to.state
        entry.pending = None
        if error is None:
            self._make_step(entry, to)
        if finish is not None:
            finish(decision, entry, error, now_ms)
        return decision

    def _make_step(self, entry: Entry, to: Transaction) -> None:
        transactional_id = entry.transactional_id
        entry.transaction = to
        self._entries[transactional_id] = self._entries.pop(transactional_id)
        if to.state is TransactionState.ONGOING:
            self._ongoing[transactional_id] = entry
        else:
            self._ongoing.pop(transactional_id, None)

    def _prepare(
        self,
        decision: Decision,
        entry: Entry,
        is_commit: bool,
        version: int,
        now_ms: int,
    ) -> Transaction:
        transaction = entry.transaction
        prepared = transaction.prepare(
            is_commit=is_commit,
            version=version,
            next_producer_id=self._next_producer_id(transaction, version),
            now_ms=now_ms,
        )
        self._step(decision, entry, prepared, self._prepared)
        return prepared

    def _abort(self, decision: Decision, entry: Entry, now_ms: int) -> None:
        """Aborts an open transaction that its producer does not end."""
        transaction = entry.transaction
        version = self._level()
        prepared = transaction.prepare_fenced(
            version=version, next_producer_id=self._next_producer_id(transaction, version), now_ms=now_ms
        )
        self._step(decision, entry, prepared, self._prepared)

    def _next_producer_id(self, transaction: Transaction, version: int) -> ProducerId:
        """The id after the end of the transaction, if there are no more epochs."""
        is_last = version >= TRANSACTION_VERSION_2 and transaction.is_epoch_exhausted
        return self._new_producer_id() if is_last else NO_PRODUCER_ID

    def _prepared(self, decision: Decision, entry: Entry, error: KafkaError | None, now_ms: int) -> None:
        if error is None:
            self._begin_completion(decision, entry, now_ms)

    def _begin_completion(self, decision: Decision, entry: Entry, now_ms: int) -> None:
        transaction = entry.transaction
        entry.pending = COMPLETED[transaction.is_commit]
        entry.unmarked = set(transaction.partitions)
        entry.retry_ms = RETRY_MIN_MS
        self._go_on_completing(decision, entry, now_ms)

    def _go_on_completing(self, decision: Decision, entry: Entry, now_ms: int) -> None:
        transaction = entry.transaction
        if not entry.unmarked:
            entry.markers = None
            completed = transaction.complete(now_ms)
            self._append(decision, entry, completed, self._completed)
            return
        entry.markers = Markers(
            transactional_id=entry.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            is_commit=transaction.is_commit,
            partitions=tuple(sorted(entry.unmarked)),
            version=transaction.version,
        )
        decision.other_work = (entry.markers,)

    def markers_written(
        self, markers: Markers, results: Mapping[TopicPartition, KafkaError | None], now_ms: int
    ) -> Decision:
        """Each of the partitions has the marker, or an error that kept it from it."""
        decision = Decision()
        entry = self._entries.get(markers.transactional_id)
        if entry is None or entry.markers is not markers:
            return decision
        entry.markers = None
        errors = [error for error in results.values() if error is not None]
        if any(isinstance(error, _OVERTAKEN) for error in errors):
            return decision
        for partition in markers.partitions:
            error = results[partition]
            if error is None or isinstance(error, _NOTHING_TO_END):
                entry.unmarked.discard(partition)
        if entry.unmarked:
            self._retry(decision, entry)
        else:
            self._go_on_completing(decision, entry, now_ms)
        return decision

    def _completed(self, decision: Decision, entry: Entry, error: KafkaError | None, now_ms: int) -> None:
        if error is None or isinstance(error, NotCoordinator):
            # The next coordinator continues, if this one is none any more.
            return
        # The end is decided and marked: it is only to be written down. Other errors may pass.
        entry.pending = COMPLETED[entry.transaction.is_commit]
        self._retry(decision, entry)

    def _retry(self, decision: Decision, entry: Entry) -> None:
        decision.timers[TimerKey(TimerKind.RETRY, entry.transactional_id)] = entry.retry_ms
        entry.retry_ms = min(2 * entry.retry_ms, RETRY_MAX_MS)

    def _abort_timed_out(self, now_ms: int) -> Decision:
        decision = Decision()
        timed_out = [
            entry
            for entry in self._ongoing.values()
            if entry.pending is None and entry.transaction.is_timed_out(now_ms)
        ]
        delay_ms = self._settings.abort_timed_out_interval_ms
        if len(timed_out) > ROUND_MAX:
            delay_ms = min(delay_ms, ROUND_PAUSE_MS)
        parts: list[Decision] = []
        for entry in timed_out[:ROUND_MAX]:
            part = Decision()
            try:
                self._abort(part, entry, now_ms)
            except KafkaError:
                # There is no producer id to continue with: there may be one next time.
                continue
            parts.append(part)
        decision.parts = parts
        decision.timers[ABORT_TIMED_OUT] = delay_ms
        return decision

    def _remove_expired(self, now_ms: int) -> Decision:
        """Forgets transactional ids that have not been used for long."""
        decision = Decision()
        oldest = now_ms - self._settings.transactional_id_expiration_ms
        expired: list[Entry] = []
        for entry in self._entries.values():
            if entry.transaction.last_update_timestamp > oldest or len(expired) == ROUND_MAX:
                break
            if entry.pending is None and entry.transaction.state in AT_REST:
                expired.append(entry)
        if expired:
            for entry in expired:
                entry.pending = TransactionState.DEAD
            records = [TransactionRecord(entry.transactional_id, None) for entry in expired]
            decision.append(records, partial(self._removed, expired))
        is_cut = len(expired) == ROUND_MAX
        delay_ms = self._settings.remove_expired_interval_ms
        decision.timers[REMOVE_EXPIRED] = min(delay_ms, ROUND_PAUSE_MS) if is_cut else delay_ms
        return decision

    def _removed(self, expired: list[Entry], error: KafkaError | None, now_ms: int) -> Decision:
        for entry in expired:
            assert entry.pending is TransactionState.DEAD
            entry.pending = None
            if error is None:
                del self._entries[entry.transactional_id]
        return Decision()


def _answer_of(transaction: Transaction) -> ProducerAnswer:
    return ProducerAnswer(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
