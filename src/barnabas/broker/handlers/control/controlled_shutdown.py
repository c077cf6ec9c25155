"""ControlledShutdown, versions 0 to 3: a broker asks the controller to move its leaders elsewhere, before it stops.

- Version 2 has the broker epoch.
- The response lists partitions that the broker still leads. It asks again while there are any.
- A broker that is not the controller answers STALE_CONTROLLER_EPOCH, and not NOT_CONTROLLER as with other APIs.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
from barnabas.protocol.messages.controlled_shutdown_response import ControlledShutdownResponse


async def handle(
    broker: Broker, exchange: AnyExchange, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    return await broker.controller.controlled_shutdown(request)


HANDLER: Final = coroutine_handler(ControlledShutdownRequest, ControlledShutdownResponse, handle)
