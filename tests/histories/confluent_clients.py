"""Clients of confluent-kafka (librdkafka): idempotent and transactional producers, consumers of groups, a copier."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.histories.client import (
    ABORTED_SHARE,
    EXIT_HUNG,
    INSIST_S,
    RECORDS_A_TRANSACTION_MAX,
    Client,
    end_offsets,
    first_offsets,
    insist,
)
from tests.histories.history import Position, partition_name

POLL_S: Final = 0.1
POLL_RECORDS_MAX: Final = 50
# What a call may block for; then it is made again.
CALL_S: Final = 5
HUNG_S: Final = 6
HANG: Final = "a call has not returned"
# Why a consumer does not know where to begin, as against an offset that is out of range.
_NO_OFFSET: Final = KafkaError(KafkaError._NO_OFFSET).str()
# What becomes of the records of a transaction that its producer aborts.
_ABORTED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
# What a rebalance explains, and what the next attempt covers: the member goes on, or joins again.
_COVERED: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
    }
)


def _settings(client: Client, **settings: Any) -> dict[str, Any]:
    return {"log_level": 0, **client.settings(**settings), **client.plan.settings}


def _insist(call: Callable[[], Any]) -> Any:
    return insist(call, KafkaException, lambda error: bool(error.args[0].retriable()))


def note_error(client: Client, error: Any) -> None:
    """Writes down an error of a member of a group, unless a rebalance or the next attempt covers it."""
    if error is not None and error.code() not in _COVERED:
        client.gave_up(error)


@contextlib.contextmanager
def given_up_after(client: Client, timeout_s: float) -> Iterator[None]:
    """Ends the process when a call does not return, and writes that down.

    librdkafka's send_offsets_to_transaction can wait for ever, whatever its time-out, when the coordinator goes away
    while it is asked; Apache Kafka sees the same.
    """

    def end() -> None:
        client.gave_up(f"{HANG} within {timeout_s:g} s")
        os._exit(EXIT_HUNG)

    watchdog = threading.Timer(timeout_s, end)
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()


class _Sender:
    """A producer whose deliveries are written down."""

    def __init__(self, client: Client, **settings: Any) -> None:
        self._client = client
        self.producer = Producer(_settings(client, linger_ms=1, **settings))

    def send(self, topic: str, *, transaction: str | None = None, source: Position | None = None) -> None:
        value, partition = self._client.new_value(topic, transaction=transaction, source=source)
        self.producer.produce(topic, value.encode(), partition=partition, on_delivery=self._delivered)
        self.producer.poll(0)

    def _delivered(self, error: Any, message: Message) -> None:
        if error is None:
            value = message.value().decode()
            self._client.acknowledged(value, message.topic(), message.partition(), message.offset())
        elif error.code() not in _ABORTED:
            self._client.gave_up(error)


def produce(client: Client) -> None:
    """Idempotent, without transactions.

    With one request at a time: after an error in one partition, librdkafka takes another epoch for all of them, and
    writes a second time what it does not know yet to be written (librdkafka #4953). Our own producers send several.
    """
    sender: _Sender | None = None
    while not client.is_over:
        sender = sender or _Sender(client, enable_idempotence=True, max_in_flight_requests_per_connection=1)
        try:
            sender.send(client.plan.topic)
        except KafkaException as error:
            # After a crash a broker may know fewer batches than were under way, and tells the producer to give up.
            if error.args[0].code() != KafkaError._FATAL:
                raise
            client.gave_up(error)
            sender = None
        client.rest()
    if sender is not None:
        assert sender.producer.flush(INSIST_S) == 0, "records that were never delivered"


class _Transactions:
    """Transactions one after the other, by as many producers of one transactional id as errors make necessary."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sender: _Sender | None = None

    def run(self, work: Callable[[_Sender, str], None]) -> bool | None:
        """One transaction, which is aborted now and then; whether it was committed, None if that is not known."""
        client = self._client
        sender = self.begin()
        if sender is None:
            return False
        transaction = client.new_transaction()
        commit = False
        try:
            sender.producer.begin_transaction()
            work(sender, transaction)
            commit = client.rng.random() >= ABORTED_SHARE
            client.ending(transaction, commit=commit)
            if commit:
                _insist(lambda: sender.producer.commit_transaction(CALL_S))
            else:
                if client.plan.flushes_before_abort:
                    sender.producer.flush(INSIST_S)
                self._abort(sender)
            client.ended(transaction, committed=commit)
            return commit
        except KafkaException as error:
            self._recover(sender, error)
            return None if commit else False

    def begin(self) -> _Sender | None:
        """The producer, once it has ended whatever an earlier one left open; None after an error."""
        if self._sender is None:
            settings = {"transactional.id": self._client.plan.name, "transaction.timeout.ms": 60_000}
            sender = _Sender(self._client, **settings)
            try:
                _insist(lambda: sender.producer.init_transactions(CALL_S))
            except KafkaException as error:
                self._client.gave_up(error)
                return None
            self._sender = sender
        return self._sender

    def _abort(self, sender: _Sender) -> None:
        """librdkafka gives the sequence numbers of what it drops to other records, as if the broker had not got them.

        If it has, it takes those for the ones that it has, and they are lost. So another producer goes on, in the next
        epoch, unless nothing is dropped.
        """
        sender.producer.poll(0)
        has_all = len(sender.producer) == 0
        _insist(lambda: sender.producer.abort_transaction(CALL_S))
        if not has_all:
            self._sender = None

    def _recover(self, sender: _Sender, error: KafkaException) -> None:
        """Aborts, or begins anew with another producer."""
        if error.args[0].txn_requires_abort():
            try:
                self._abort(sender)
            except KafkaException as failure:
                error = failure
            else:
                return
        self._client.gave_up(error)
        # The next one has the same transactional id, which ends whatever this one has left open.
        self._sender = None


def produce_in_transactions(client: Client) -> None:
    def send(sender: _Sender, transaction: str) -> None:
        for _ in range(client.rng.randint(1, RECORDS_A_TRANSACTION_MAX)):
            sender.send(client.plan.topic, transaction=transaction)

    transactions = _Transactions(client)
    while not client.is_over:
        transactions.run(send)
        client.rest()


class Member:
    """A consumer of a group whose assignments and records are written down.

    If librdkafka finds no offset of a partition, another consumer joins in its place. The group has an offset of each,
    but librdkafka (2.16 and older) takes one that is pending in a transaction for none if its assignment changes
    meanwhile, and would begin at the first record; on Apache Kafka as well: see `test_pending_offsets.py`.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._join()

    def _join(self) -> None:
        self._client.consumers += 1
        self.consumer = Consumer(
            _settings(
                self._client,
                group_id=self._client.plan.group,
                auto_offset_reset="error",
                enable_auto_commit=False,
                isolation_level=self._client.plan.isolation,
                topic_metadata_refresh_interval_ms=1_000,
                fetch_wait_max_ms=100,
            )
        )
        self.consumer.subscribe([self._client.plan.topic], on_assign=self._assigned)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._client.positioned([partition_name(each.topic, each.partition) for each in partitions])

    def poll(self) -> list[tuple[Position, str]]:
        records: list[tuple[Position, str]] = []
        has_offsets = True
        for message in self.consumer.consume(POLL_RECORDS_MAX, POLL_S):
            error = message.error()
            if error is None:
                position = Position(partition_name(message.topic(), message.partition()), message.offset())
                records.append((position, message.value().decode()))
            elif error.code() != KafkaError._AUTO_OFFSET_RESET:
                note_error(self._client, error)
            elif _NO_OFFSET in error.str():
                has_offsets = False
            else:
                raise KafkaException(error)
        if records:
            self._client.polled(records)
        if not has_offsets:
            self.join_again()
            return []
        return records

    def go_back(self, records: list[tuple[Position, str]]) -> None:
        """To the first of these records, which were not committed.

        The group is not asked: its coordinator may have been replaced without knowing it, and miss later commits.
        """
        assigned = {partition_name(each.topic, each.partition) for each in self.consumer.assignment()}
        try:
            for start in _topic_partitions(first_offsets(records)):
                name = partition_name(start.topic, start.partition)
                if name in assigned:
                    self.consumer.seek(start)
                    self._client.positioned([name])
        except KafkaException as error:
            note_error(self._client, error.args[0])
            self.join_again()

    def join_again(self) -> None:
        """A new member begins where the group is."""
        self.consumer.close()
        self._join()


def _topic_partitions(offsets: dict[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, int(number), offset)
        for name, offset in offsets.items()
        for topic, _, number in [name.partition("/")]
    ]


def consume(client: Client) -> None:
    member = Member(client)
    try:
        while not client.is_over:
            records = member.poll()
            if records:
                _commit(client, member, end_offsets(records))
            client.rest()
    finally:
        member.consumer.close()


def _commit(client: Client, member: Member, offsets: dict[str, int]) -> None:
    try:
        # Not made again after an error: by then the partitions may be another member's.
        results = member.consumer.commit(offsets=_topic_partitions(offsets), asynchronous=False)
    except KafkaException as error:
        note_error(client, error.args[0])
        return
    for each in results:
        note_error(client, each.error)
    confirmed = {
        partition_name(each.topic, each.partition): each.offset for each in results if each.error is None
    }
    client.offsets_committed(confirmed)


def copy(client: Client) -> None:
    """Consumes, makes a value of each, and commits both in one transaction."""
    transactions = _Transactions(client)
    # A member waits for the offsets of transactions that are open.
    transactions.begin()
    member = Member(client)
    try:
        while not client.is_over:
            records = member.poll()
            if records:
                committed = transactions.run(_copying(client, member, records))
                if committed is None:
                    member.join_again()
                elif not committed:
                    member.go_back(records)
            client.rest()
    finally:
        member.consumer.close()


def _copying(
    client: Client, member: Member, records: list[tuple[Position, str]]
) -> Callable[[_Sender, str], None]:
    def work(sender: _Sender, transaction: str) -> None:
        for position, _ in records:
            sender.send(client.plan.to_topic, transaction=transaction, source=position)
        offsets = _topic_partitions(end_offsets(records))
        group = member.consumer.consumer_group_metadata()
        with given_up_after(client, HUNG_S):
            _insist(lambda: sender.producer.send_offsets_to_transaction(offsets, group, CALL_S))

    return work


ROLES: Final = {
    "produce": produce,
    "produce-in-transactions": produce_in_transactions,
    "consume": consume,
    "copy": copy,
}
