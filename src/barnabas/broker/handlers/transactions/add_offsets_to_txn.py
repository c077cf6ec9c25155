"""AddOffsetsToTxn, versions 0 to 4: a producer is about to commit offsets of a group in its transaction.

The group's partition of `__consumer_offsets` becomes part of the transaction. PRODUCER_FENCED is known from version 2
on; before, the same is called INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.group_runtime import OFFSETS_TOPIC
from barnabas.broker.coordinators.transaction_errors import code_for
from barnabas.broker.requests.exchange import Exchange
from barnabas.errors import CoordinatorNotAvailable, KafkaError
from barnabas.model import ProducerEpoch, ProducerId, TopicPartition
from barnabas.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from barnabas.transactions.producer import TRANSACTION_VERSION_0, ProducerIdAndEpoch

_FIRST_WITH_FENCED: Final = 2


def handle(
    broker: Broker, exchange: Exchange, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Coroutine[Any, Any, AddOffsetsToTxnResponse | None] | None:
    if broker.groups.has_topic:
        return _add(broker, exchange, request)
    return _create_and_add(broker, exchange, request)


async def _create_and_add(
    broker: Broker, exchange: Exchange, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | None:
    try:
        await broker.groups.ensure_topic()
    except CoordinatorNotAvailable as error:
        return _response(exchange.version, error)
    return _add(broker, exchange, request)


def _add(
    broker: Broker, exchange: Exchange, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | None:
    try:
        shell = broker.transactions.shell_of_named(request.transactional_id)
        partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_of(request.group_id))
    except KafkaError as error:
        return _response(exchange.version, error)
    shell.carry_out(
        shell.coordinator.add_partitions(
            request.transactional_id,
            ProducerIdAndEpoch(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
            frozenset({partition}),
            TRANSACTION_VERSION_0,
            partial(_respond, exchange),
            broker.now_ms,
        )
    )
    return None


def _respond(exchange: Exchange, error: KafkaError | None) -> None:
    exchange.respond(_response(exchange.version, error))


def _response(version: int, error: KafkaError | None) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code_for(error, knows_fenced=version >= _FIRST_WITH_FENCED))
