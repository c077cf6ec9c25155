"""AddOffsetsToTxn, versions 0 to 4: a producer announces offsets of a group in its transaction.

The group's partition of `__consumer_offsets` becomes part of the transaction. Before version 2
the error INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.group_runtime import OFFSETS_TOPIC
from barnabas.broker.coordinators.transaction_errors import code_for
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import authorize
from barnabas.broker.requests.exchange import Answer, Exchange, Parked
from barnabas.errors import CoordinatorNotAvailable, KafkaError
from barnabas.model import ProducerEpoch, ProducerId, TopicPartition
from barnabas.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from barnabas.security.acls import GROUP, READ, TRANSACTIONAL_ID, WRITE
from barnabas.transactions.producer import TRANSACTION_VERSION_0, ProducerIdAndEpoch

_FIRST_WITH_FENCED: Final = 2


def handle(
    broker: Broker, exchange: Exchange[AddOffsetsToTxnResponse], request: AddOffsetsToTxnRequest
) -> Answer[AddOffsetsToTxnResponse]:
    try:
        authorize(broker, exchange, WRITE, TRANSACTIONAL_ID, request.transactional_id)
        authorize(broker, exchange, READ, GROUP, request.group_id)
    except KafkaError as error:
        return _response(exchange.version, error)
    if broker.groups.has_topic:
        return _add(broker, exchange, request)
    return exchange.answer_from(_create_and_add(broker, exchange, request))


HANDLER: Final = Handler(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, handle)


async def _create_and_add(
    broker: Broker, exchange: Exchange[AddOffsetsToTxnResponse], request: AddOffsetsToTxnRequest
) -> Answer[AddOffsetsToTxnResponse]:
    try:
        await broker.groups.ensure_topic()
    except CoordinatorNotAvailable as error:
        return _response(exchange.version, error)
    return _add(broker, exchange, request)


def _add(
    broker: Broker, exchange: Exchange[AddOffsetsToTxnResponse], request: AddOffsetsToTxnRequest
) -> Answer[AddOffsetsToTxnResponse]:
    try:
        shell = broker.transactions.shell_of_named(request.transactional_id)
        partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_of(request.group_id))
    except KafkaError as error:
        return _response(exchange.version, error)
    parked = exchange.park()
    shell.carry_out(
        shell.coordinator.add_partitions(
            request.transactional_id,
            ProducerIdAndEpoch(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
            frozenset({partition}),
            TRANSACTION_VERSION_0,
            partial(_answer_with, parked, exchange.version),
            broker.now_ms,
        )
    )
    return parked


def _answer_with(parked: Parked[AddOffsetsToTxnResponse], version: int, error: KafkaError | None) -> None:
    parked.answer(_response(version, error))


def _response(version: int, error: KafkaError | None) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code_for(error, knows_fenced=version >= _FIRST_WITH_FENCED))
