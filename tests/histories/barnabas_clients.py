"""Clients of this project: idempotent and transactional producers, consumers of groups, a copier."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, Self, TypeVar

from barnabas import Consumer, Producer, RebalanceListener, SendFuture, TopicPartition
from barnabas.errors import (
    FencedMemberEpoch,
    IllegalGeneration,
    KafkaError,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
)
from tests.histories.client import (
    ABORTED_SHARE,
    INSIST_S,
    RECORDS_A_TRANSACTION_MAX,
    Client,
    end_offsets,
    first_offsets,
    insist,
)
from tests.histories.history import Position, partition_name

T = TypeVar("T")

POLL_MS: Final = 100
POLL_RECORDS_MAX: Final = 50
# What a call may take; then it is made again.
CALL_MS: Final = 5_000
# The member has lost its partitions, and reads on elsewhere.
_REBALANCED: Final = (
    FencedMemberEpoch,
    IllegalGeneration,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
)


def _insist(call: Callable[[], T]) -> T:
    return insist(call, KafkaError, lambda error: error.retriable)


class _Sent:
    """Records whose outcome is still open, in the order in which they were sent."""

    def __init__(self, client: Client, producer: Producer) -> None:
        self._client = client
        self._producer = producer
        self._open: deque[tuple[str, SendFuture]] = deque()

    def send(self, topic: str, *, transaction: str | None = None, source: Position | None = None) -> None:
        value, partition = self._client.new_value(topic, transaction=transaction, source=source)
        self._open.append((value, self._producer.send(topic, value.encode(), partition=partition)))

    def note(self) -> list[KafkaError]:
        """Writes down what was acknowledged; returns why others were not."""
        errors = []
        while self._open and self._open[0][1].done():
            value, future = self._open.popleft()
            error = future.exception()
            if error is not None:
                errors.append(error)
                continue
            at = future.result()
            self._client.acknowledged(value, at.topic, at.partition, at.offset)
        return errors

    @property
    def is_empty(self) -> bool:
        return not self._open


def produce(client: Client) -> None:
    """Idempotent, without transactions."""
    with Producer(client.settings(linger_ms=1)) as producer:
        sent = _Sent(client, producer)
        while not client.is_over:
            sent.send(client.plan.topic)
            for error in sent.note():
                client.gave_up(error)
            client.rest()
        producer.flush(timeout_ms=INSIST_S * 1_000)
        for error in sent.note():
            client.gave_up(error)
        assert sent.is_empty, "records that were never delivered"


class _Transactions:
    """Transactions one after the other, by as many producers of one transactional id as errors make necessary."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._producer: Producer | None = None

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def begin(self) -> Producer:
        """The producer, once it has ended whatever an earlier one left open."""
        if self._producer is None:
            settings = self._client.settings(transactional_id=self._client.plan.name, linger_ms=1)
            producer = self._producer = Producer(settings)
            _insist(lambda: producer.init_transactions(timeout_ms=CALL_MS))
        return self._producer

    def _drop(self) -> None:
        if self._producer is not None:
            self._producer.close(timeout_ms=CALL_MS)
            self._producer = None

    def run(self, work: Callable[[Producer, _Sent, str], None]) -> bool | None:
        """One transaction, which is aborted now and then; whether it was committed, None if that is not known."""
        client, producer = self._client, self.begin()
        sent = _Sent(client, producer)
        transaction = client.new_transaction()
        commit = False
        try:
            producer.begin_transaction()
            work(producer, sent, transaction)
            commit = client.rng.random() >= ABORTED_SHARE
            client.ending(transaction, commit=commit)
            end = producer.commit_transaction if commit else producer.abort_transaction
            _insist(lambda: end(timeout_ms=CALL_MS))
        except KafkaError as error:
            sent.note()
            self._recover(producer, error)
            return None if commit else False
        sent.note()
        client.ended(transaction, committed=commit)
        return commit

    def _recover(self, producer: Producer, error: KafkaError) -> None:
        """Aborts, or begins anew with another producer."""
        try:
            _insist(lambda: producer.abort_transaction(timeout_ms=CALL_MS))
        except KafkaError:
            self._client.gave_up(error)
            self._drop()


def produce_in_transactions(client: Client) -> None:
    def send(producer: Producer, sent: _Sent, transaction: str) -> None:
        for _ in range(client.rng.randint(1, RECORDS_A_TRANSACTION_MAX)):
            sent.send(client.plan.topic, transaction=transaction)

    with _Transactions(client) as transactions:
        while not client.is_over:
            transactions.run(send)
            client.rest()


class _Listener(RebalanceListener):
    def __init__(self, client: Client) -> None:
        self._client = client

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._client.positioned([partition_name(*each) for each in partitions])


@contextmanager
def _member(client: Client) -> Iterator[Consumer]:
    """A consumer of a group whose assignments and records are written down. One without an offset fails."""
    client.consumers += 1
    settings = client.settings(
        group_id=client.plan.group,
        auto_offset_reset="none",
        enable_auto_commit=False,
        isolation_level=client.plan.isolation,
        max_poll_records=POLL_RECORDS_MAX,
        metadata_max_age_ms=1_000,
        fetch_max_wait_ms=100,
    )
    with Consumer({**settings, **client.plan.settings}) as consumer:
        consumer.subscribe([client.plan.topic], listener=_Listener(client))
        yield consumer


def _poll(client: Client, consumer: Consumer) -> list[tuple[Position, str]]:
    records = [
        (Position(partition_name(each.topic, each.partition), each.offset), each.value.decode())
        for each in consumer.poll(POLL_MS)
    ]
    if records:
        client.polled(records)
    return records


def _by_partition(offsets: dict[str, int]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): offset
        for name, offset in offsets.items()
        for topic, _, number in [name.partition("/")]
    }


def consume(client: Client) -> None:
    with _member(client) as consumer:
        while not client.is_over:
            records = _poll(client, consumer)
            if records:
                try:
                    consumer.commit(_by_partition(end_offsets(records)), timeout_ms=INSIST_S * 1_000)
                    client.offsets_committed(end_offsets(records))
                except _REBALANCED:
                    pass
            client.rest()


def copy(client: Client) -> None:
    """Consumes, makes a value of each, and commits both in one transaction."""
    with ExitStack() as stack:
        # A member waits for the offsets of transactions that are open.
        transactions = stack.enter_context(_Transactions(client))
        while not client.is_over:
            with _member(client) as consumer:
                _copy_until_unsure(client, transactions, consumer)


def _copy_until_unsure(client: Client, transactions: _Transactions, consumer: Consumer) -> None:
    """Until nobody can say whether a transaction was committed: the next member begins where the group is."""
    while not client.is_over:
        records = _poll(client, consumer)
        if records:
            committed = transactions.run(_copying(client, consumer, records))
            if committed is None:
                return
            if not committed:
                _go_back(client, consumer, records)
        client.rest()


def _copying(
    client: Client, consumer: Consumer, records: list[tuple[Position, str]]
) -> Callable[[Producer, _Sent, str], None]:
    def work(producer: Producer, sent: _Sent, transaction: str) -> None:
        for position, _ in records:
            sent.send(client.plan.to_topic, transaction=transaction, source=position)
        offsets, group = _by_partition(end_offsets(records)), consumer.group_metadata()
        _insist(lambda: producer.send_offsets_to_transaction(offsets, group, timeout_ms=CALL_MS))

    return work


def _go_back(client: Client, consumer: Consumer, records: list[tuple[Position, str]]) -> None:
    """To the first of these records, which were not committed."""
    assigned = consumer.assignment()
    for partition, offset in _by_partition(first_offsets(records)).items():
        if partition in assigned:
            consumer.seek(partition, offset)
            client.positioned([partition_name(*partition)])


ROLES: Final = {
    "barnabas-produce": produce,
    "barnabas-produce-in-transactions": produce_in_transactions,
    "barnabas-consume": consume,
    "barnabas-copy": copy,
}
