"""InitProducerId, versions 0 to 5: an id for an idempotent producer.

A producer with an id (version 3 on) that asks for another epoch gets a new id; both count from the beginning then. A
transactional id needs a transaction coordinator.
"""

from __future__ import annotations

from barnabas.broker.broker import Broker
from barnabas.broker.exchange import Exchange
from barnabas.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError
from barnabas.protocol.messages.init_producer_id_request import InitProducerIdRequest
from barnabas.protocol.messages.init_producer_id_response import InitProducerIdResponse


async def handle(
    broker: Broker, exchange: Exchange, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        error: type[KafkaError] = CoordinatorNotAvailable if request.transactional_id else InvalidRequest
        return InitProducerIdResponse(error_code=error.code)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=InvalidRequest.code)
    try:
        producer_id = await broker.producer_ids.next()
    except KafkaError as failed:
        return InitProducerIdResponse(error_code=failed.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
