"""AllocateProducerIds, version 0: a broker asks the controller for a block of producer ids.

- A broker that is not the controller answers NOT_CONTROLLER.
- A broker that is not registered gets BROKER_ID_NOT_REGISTERED, one with an old registration STALE_BROKER_EPOCH.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from barnabas.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse


async def handle(
    broker: Broker, exchange: AnyExchange, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    return await broker.controller.allocate_producer_ids(request)


HANDLER: Final = coroutine_handler(AllocateProducerIdsRequest, AllocateProducerIdsResponse, handle)
