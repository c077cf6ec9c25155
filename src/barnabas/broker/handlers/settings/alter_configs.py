"""AlterConfigs, versions 0 to 2: replaces all settings of a topic or broker.

All versions mean the same. Newer clients use IncrementalAlterConfigs.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.settings.changes import Change, Operation, ResourceChange, alter_resources
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import NONE
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
    results = await alter_resources(broker, resources, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=NONE if error is None else error.code,
                error_message=None if error is None else str(error),
                resource_type=each.resource_type,
                resource_name=each.name,
            )
            for each, error in zip(resources, results, strict=True)
        ]
    )


HANDLER: Final = coroutine_handler(AlterConfigsRequest, AlterConfigsResponse, handle)
