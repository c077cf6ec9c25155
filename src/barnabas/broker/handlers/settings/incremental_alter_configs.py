"""IncrementalAlterConfigs, versions 0 and 1: sets or deletes single settings, adds to lists or removes from them.

Both versions mean the same. It also changes levels of this broker's loggers, which are not stored.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.settings.changes import alter_resources
from barnabas.broker.handlers.settings.edits import Change, ResourceChange
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)


async def handle(
    broker: Broker, exchange: AnyExchange, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    resources = [
        ResourceChange(
            each.resource_type,
            each.resource_name,
            tuple(Change(config.name, config.config_operation, config.value) for config in each.configs),
            replaces=False,
        )
        for each in request.resources
    ]
    responses = await alter_resources(
        broker, exchange, resources, AlterConfigsResourceResponse, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(responses=responses)


HANDLER: Final = coroutine_handler(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, handle)
