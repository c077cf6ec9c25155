"""AddPartitionsToTxn, versions 0 to 5: a producer adds partitions to its transaction.

- Up to version 3 a client sends it, for one transaction. From version 4 on brokers send it, for many transactions, some
  of them only to verify that the partitions are part of the transaction.
- All partitions of a transaction are added or none: if one cannot be added, the others are OPERATION_NOT_ATTEMPTED.
- Clients cannot add partitions of internal topics.
- Before version 2 the error INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.transaction_errors import code_for
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission, denies
from barnabas.broker.requests.authorization import refusal
from barnabas.broker.requests.exchange import Answer, Exchange, Parked
from barnabas.coordination.metadata.image import INTERNAL_TOPICS, MetadataImage
from barnabas.errors import (
    ClusterAuthorizationFailed,
    KafkaError,
    OperationNotAttempted,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from barnabas.model import ProducerEpoch, ProducerId, TopicPartition
from barnabas.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas.security.acls import CLUSTER_ACTION, TRANSACTIONAL_ID, WRITE
from barnabas.transactions.producer import TRANSACTION_VERSION_0, TRANSACTION_VERSION_2, ProducerIdAndEpoch

_FIRST_WITH_FENCED: Final = 2
_FIRST_OF_BROKERS: Final = 4

_Errors = Mapping[TopicPartition, KafkaError | None]


class _Asked(NamedTuple):
    transactional_id: str
    producer: ProducerIdAndEpoch
    topics: list[AddPartitionsToTxnTopic]
    is_verify_only: bool

    def partitions(self) -> Iterable[TopicPartition]:
        return [TopicPartition(topic.name, index) for topic in self.topics for index in topic.partitions]


class _Gathered:
    """Gathers the results of all transactions of a request, and answers when it has all."""

    def __init__(self, parked: Parked[AddPartitionsToTxnResponse], version: int, asked: list[_Asked]) -> None:
        self._parked = parked
        self._version = version
        self._asked = asked
        self._results: list[AddPartitionsToTxnResult | None] = [None] * len(asked)
        self._missing = len(asked)

    def add(self, index: int, errors: _Errors) -> None:
        asked = self._asked[index]
        knows_fenced = self._version >= _FIRST_WITH_FENCED
        assert self._results[index] is None
        self._results[index] = AddPartitionsToTxnResult(
            transactional_id=asked.transactional_id,
            topic_results=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=partition,
                            partition_error_code=code_for(
                                errors[TopicPartition(topic.name, partition)], knows_fenced=knows_fenced
                            ),
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in asked.topics
            ],
        )
        self._missing -= 1
        if self._missing == 0:
            self._respond()

    def add_error(self, index: int, error: KafkaError | None) -> None:
        self.add(index, dict.fromkeys(self._asked[index].partitions(), error))

    def _respond(self) -> None:
        results = [result for result in self._results if result is not None]
        if self._version >= _FIRST_OF_BROKERS:
            response = AddPartitionsToTxnResponse(results_by_transaction=results)
        else:
            [one] = results
            response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=one.topic_results)
        self._parked.answer(response)


def handle(
    broker: Broker, exchange: Exchange[AddPartitionsToTxnResponse], request: AddPartitionsToTxnRequest
) -> Answer[AddPartitionsToTxnResponse]:
    is_of_broker = exchange.version >= _FIRST_OF_BROKERS
    if is_of_broker and denies(broker, exchange, CLUSTER_ACTION):
        return AddPartitionsToTxnResponse(error_code=ClusterAuthorizationFailed.code)
    all_asked = _asked_of_broker(request) if is_of_broker else _asked_of_client(request)
    if not all_asked:
        return AddPartitionsToTxnResponse()
    parked = exchange.park()
    gathered = _Gathered(parked, exchange.version, all_asked)
    permission = None if is_of_broker else Permission(broker, exchange, WRITE)
    for index, asked in enumerate(all_asked):
        if not is_of_broker and denies(broker, exchange, WRITE, TRANSACTIONAL_ID, asked.transactional_id):
            gathered.add_error(index, refusal(TRANSACTIONAL_ID))
            continue
        refused = _refused(broker.image, asked, permission)
        if refused:
            gathered.add(index, refused)
            continue
        try:
            shell = broker.transactions.shell_of_named(asked.transactional_id)
        except KafkaError as error:
            gathered.add_error(index, error)
            continue
        coordinator = shell.coordinator
        if asked.is_verify_only:
            gathered.add(
                index,
                coordinator.verify_partitions(asked.transactional_id, asked.producer, asked.partitions()),
            )
            continue
        shell.carry_out(
            coordinator.add_partitions(
                asked.transactional_id,
                asked.producer,
                frozenset(asked.partitions()),
                TRANSACTION_VERSION_2 if is_of_broker else TRANSACTION_VERSION_0,
                partial(gathered.add_error, index),
                broker.now_ms,
            )
        )
    return parked


HANDLER: Final = Handler(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, handle)


def _asked_of_client(request: AddPartitionsToTxnRequest) -> list[_Asked]:
    producer = ProducerIdAndEpoch(
        ProducerId(request.v3_and_below_producer_id), ProducerEpoch(request.v3_and_below_producer_epoch)
    )
    return [
        _Asked(
            request.v3_and_below_transactional_id,
            producer,
            request.v3_and_below_topics,
            is_verify_only=False,
        )
    ]


def _asked_of_broker(request: AddPartitionsToTxnRequest) -> list[_Asked]:
    return [
        _Asked(
            each.transactional_id,
            ProducerIdAndEpoch(ProducerId(each.producer_id), ProducerEpoch(each.producer_epoch)),
            each.topics,
            each.verify_only,
        )
        for each in request.transactions
    ]


def _refused(
    image: MetadataImage, asked: _Asked, permission: Permission | None
) -> dict[TopicPartition, KafkaError]:
    """The errors of all partitions if one of them cannot be added; empty if all can.

    Brokers have no permission here: they may add partitions of all topics, internal ones too.
    """
    refused: dict[TopicPartition, KafkaError] = {}
    for key in asked.partitions():
        topic = image.topics.get(key.topic)
        if permission is not None and (key.topic in INTERNAL_TOPICS or key.topic not in permission):
            refused[key] = TopicAuthorizationFailed(key.topic)
        elif topic is None or not 0 <= key.partition < len(topic.partitions):
            refused[key] = UnknownTopicOrPartition(str(key))
    if refused:
        others = OperationNotAttempted("another partition of the transaction cannot be added")
        return {key: refused.get(key, others) for key in asked.partitions()}
    return refused
