"""AlterConfigs, versions 0 to 2: replaces all settings of a topic or broker.

All versions mean the same. Newer clients use IncrementalAlterConfigs.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.settings.changes import alter_resources
from barnabas.broker.handlers.settings.edits import Change, Operation, ResourceChange
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.protocol.messages.alter_configs_request import AlterConfigsRequest
from barnabas.protocol.messages.alter_configs_response import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(broker: Broker, exchange: AnyExchange, request: AlterConfigsRequest) -> AlterConfigsResponse:
    resources = [
        ResourceChange(
            each.resource_type,
            each.resource_name,
            tuple(Change(config.name, Operation.SET, config.value) for config in each.configs),
            replaces=True,
        )
        for each in request.resources
    ]
    responses = await alter_resources(
        broker, exchange, resources, AlterConfigsResourceResponse, validate_only=request.validate_only
    )
    return AlterConfigsResponse(responses=responses)


HANDLER: Final = coroutine_handler(AlterConfigsRequest, AlterConfigsResponse, handle)
