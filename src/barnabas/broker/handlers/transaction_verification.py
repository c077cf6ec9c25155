"""Before the first batch of a transaction is appended to a partition, its coordinator verifies the partition (KIP-890).

A batch that arrives after its transaction has ended would otherwise open a transaction that never ends. From version 12
of Produce and version 5 of TxnOffsetCommit on, the coordinator also adds the partition to the transaction, so that the
client does not have to. A guard of the partition's log ties the answer to the append: if the transaction has ended in
between, the log refuses the batch.

While the coordinator is asked the request is parked, and with it the later requests of its connection.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping
from functools import partial
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.permissions import Permission
from barnabas.broker.requests.exchange import AnyExchange, Exchange, Parked
from barnabas.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    NetworkException,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
)
from barnabas.log.producers.state import NO_GUARD
from barnabas.model import ProducerEpoch, ProducerId, TopicPartition
from barnabas.primitives.file_slice import FileSlice
from barnabas.protocol.messages.produce_request import ProduceRequest
from barnabas.protocol.messages.produce_response import ProduceResponse
from barnabas.records.layout import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    PRODUCER_ID_POSITION,
    TRANSACTIONAL_BIT,
)
from barnabas.security.acls import WRITE

FIRST_PRODUCE_WITH_IDS: Final = 13
_FIRST_PRODUCE_WITH_ABORTABLE: Final = 11
_FIRST_PRODUCE_THAT_ADDS: Final = 12

# Part of the header of a batch, from the producer id on.
BATCH_PRODUCER: Final = Struct(
    ">"
    "q"  # producer id
    "h"  # producer epoch
    "i"  # base sequence
)
assert BATCH_PRODUCER.size == 14


class Dialect(enum.Enum):
    """The errors that a client understands, by the version of its request."""

    OLD = enum.auto()
    # It knows TRANSACTION_ABORTABLE.
    ABORTABLE = enum.auto()
    # The broker adds its partitions to the transaction, and each transaction has a new epoch.
    ADDS_PARTITIONS = enum.auto()


class Producer(NamedTuple):
    """The producer of a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Verified(NamedTuple):
    """The result for each partition: a guard, an error, or neither if the transaction is already open there."""

    guards: Mapping[TopicPartition, int]
    errors: Mapping[TopicPartition, KafkaError]

    def guard(self, partition: TopicPartition) -> int:
        """The guard for the append. Raises the partition's error."""
        error = self.errors.get(partition)
        if error is not None:
            raise error
        return self.guards.get(partition, NO_GUARD)


def check_producer(producer_id: int, producer_epoch: int) -> None:
    """Records of a transaction without a producer would belong to no transaction."""
    if producer_id < 0:
        raise InvalidProducerIdMapping(f"{producer_id} is no id of a producer")
    if producer_epoch < 0:
        raise InvalidProducerEpoch(f"{producer_epoch} is no epoch of a producer")


Then: TypeAlias = Callable[[Verified], None]

NOTHING_TO_VERIFY: Final = Verified({}, {})

# Errors of the coordinator that clients do not expect from a partition. NOT_ENOUGH_REPLICAS makes them try again
# without looking for another leader.
_UNEXPECTED_FROM_PARTITION: Final = (
    NetworkException,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)


def verify(
    broker: Broker, producer: Producer, sequences: Mapping[TopicPartition, int], dialect: Dialect, then: Then
) -> None:
    """Verifies partitions, each with the first sequence of its batch.

    `then` is called once, perhaps before this returns.
    """
    adds = dialect is Dialect.ADDS_PARTITIONS
    if not adds and not broker.config.transaction_partition_verification_enable:
        then(NOTHING_TO_VERIFY)
        return
    guards: dict[TopicPartition, int] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for key, sequence in sequences.items():
        try:
            found = broker.replicas.partition(key.topic, key.partition).leader_log()
            guard = found.start_verification(
                producer.producer_id, sequence, producer.producer_epoch, bumps_epochs=adds
            )
            if guard != NO_GUARD:
                guards[key] = guard
        except KafkaError as error:
            errors[key] = error
    if not guards:
        then(Verified(guards, errors))
        return
    broker.transactions.verify_partitions(
        producer.transactional_id,
        ProducerId(producer.producer_id),
        ProducerEpoch(producer.producer_epoch),
        list(guards),
        adds,
        partial(_answered, guards, errors, dialect, then),
    )


def _answered(
    guards: dict[TopicPartition, int],
    errors: dict[TopicPartition, KafkaError],
    dialect: Dialect,
    then: Then,
    answers: dict[TopicPartition, KafkaError | None],
) -> None:
    for key, error in answers.items():
        if error is None:
            continue
        if isinstance(error, ProducerFenced):
            # With this error a fenced producer may still abort, and continue.
            error = InvalidProducerEpoch(str(error))
        elif isinstance(error, TransactionAbortable) and dialect is Dialect.OLD:
            error = InvalidTxnState(str(error))
        errors[key] = error
    then(Verified(guards, errors))


def verify_produce(
    broker: Broker, exchange: Exchange[ProduceResponse], request: ProduceRequest, then: Then
) -> None:
    """Verifies the partitions of a Produce request with a transactional id.

    A coordinator that is completing the previous transaction is asked again for a while.
    """
    batches = _transactional_batches(broker, exchange, request)
    producers = {(each.producer_id, each.producer_epoch) for each in batches.values()}
    if not producers:
        then(NOTHING_TO_VERIFY)
        return
    if len(producers) > 1:
        refusal = InvalidProducerIdMapping(f"records of {len(producers)} producers in one transaction")
        then(Verified({}, dict.fromkeys(batches, refusal)))
        return
    [(producer_id, producer_epoch)] = producers
    transactional_id = request.transactional_id
    assert transactional_id is not None
    _ProduceVerification(
        broker,
        exchange,
        Producer(transactional_id, producer_id, producer_epoch),
        {key: each.base_sequence for key, each in batches.items()},
        _dialect_of_produce(exchange.version),
        then,
    ).ask()


class _TransactionalBatch(NamedTuple):
    producer_id: int
    producer_epoch: int
    base_sequence: int


def _transactional_batches(
    broker: Broker, exchange: AnyExchange, request: ProduceRequest
) -> dict[TopicPartition, _TransactionalBatch]:
    """Skips invalid records, which the log refuses, and topics that the client may not write to."""
    version = exchange.version
    permission = Permission(broker, exchange, WRITE, is_logged=False)
    topic_names = broker.image.topic_names
    found: dict[TopicPartition, _TransactionalBatch] = {}
    for topic in request.topic_data:
        name = topic_names.get(topic.topic_id) if version >= FIRST_PRODUCE_WITH_IDS else topic.name
        for data in topic.partition_data:
            records = data.records
            if name is None or name not in permission or records is None or len(records) < BATCH_HEADER_BYTES:
                continue
            assert not isinstance(records, FileSlice)
            is_transactional = records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT
            if records[MAGIC_POSITION] == MAGIC_V2 and is_transactional:
                batch = _TransactionalBatch(*BATCH_PRODUCER.unpack_from(records, PRODUCER_ID_POSITION))
                if batch.producer_id >= 0:
                    found[TopicPartition(name, data.index)] = batch
    return found


def _dialect_of_produce(version: int) -> Dialect:
    if version >= _FIRST_PRODUCE_THAT_ADDS:
        return Dialect.ADDS_PARTITIONS
    return Dialect.ABORTABLE if version >= _FIRST_PRODUCE_WITH_ABORTABLE else Dialect.OLD


class _ProduceVerification:
    def __init__(
        self,
        broker: Broker,
        exchange: Exchange[ProduceResponse],
        producer: Producer,
        sequences: Mapping[TopicPartition, int],
        dialect: Dialect,
        then: Then,
    ) -> None:
        self._broker = broker
        self._exchange = exchange
        self._producer = producer
        self._sequences = sequences
        self._dialect = dialect
        self._then = then
        config = broker.config
        self._backoff_ms = config.add_partitions_to_txn_retry_backoff_ms
        self._deadline_ns = broker.clock.monotonic_ns() + 1_000_000 * min(
            config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms
        )

    def ask(self) -> None:
        verify(self._broker, self._producer, self._sequences, self._dialect, self._answered)

    def _answered(self, verified: Verified) -> None:
        errors = verified.errors
        if errors:
            is_busy = any(isinstance(error, ConcurrentTransactions) for error in errors.values())
            if is_busy and self._broker.clock.monotonic_ns() < self._deadline_ns:
                self._exchange.answer_from(self._ask_again())
                return
            errors = {key: self._as_of_partition(error) for key, error in errors.items()}
        self._then(Verified(verified.guards, errors))

    async def _ask_again(self) -> Parked[ProduceResponse]:
        await asyncio.sleep(self._backoff_ms / 1_000)
        parked = self._exchange.park()
        self.ask()
        return parked

    def _as_of_partition(self, error: KafkaError) -> KafkaError:
        is_unexpected = isinstance(error, _UNEXPECTED_FROM_PARTITION) or (
            isinstance(error, ConcurrentTransactions) and self._dialect is not Dialect.ADDS_PARTITIONS
        )
        if not is_unexpected:
            return error
        return NotEnoughReplicas(
            f"the coordinator cannot say whether the partition is part of the transaction: {error.name}: {error}"
        )
