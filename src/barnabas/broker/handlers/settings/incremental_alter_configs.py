"""IncrementalAlterConfigs, versions 0 and 1: sets or deletes single settings, adds to lists or takes from them.

Both versions mean the same. Besides topics and brokers it takes levels of this broker's loggers, which are not stored.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.settings.changes import Change, ResourceChange, alter_resources
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import NONE
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
    results = await alter_resources(broker, resources, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
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


HANDLER: Final = coroutine_handler(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, handle)
