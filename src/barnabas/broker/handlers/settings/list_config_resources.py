"""ListConfigResources, versions 0 and 1: the resources with settings, by type and name.

Version 0, which was called ListClientMetricsResources, has only the subscriptions to client metrics. From version 1 on
a request names types, and no types mean all. An unknown type makes the request UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.broker.settings.resources import ResourceType
from barnabas.errors import UnsupportedVersion
from barnabas.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from barnabas.protocol.messages.list_config_resources_response import (
    ConfigResource,
    ListConfigResourcesResponse,
)

_TYPES: Final = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)


def handle(
    broker: Broker, exchange: AnyExchange, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    supported = (ResourceType.CLIENT_METRICS,) if exchange.version == 0 else _TYPES
    wanted = request.resource_types or supported
    if not set(wanted) <= set(supported):
        return ListConfigResourcesResponse(error_code=UnsupportedVersion.code)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=each)
            for each in supported
            if each in wanted
            for name in _names(broker, exchange.session.listener, each)
        ]
    )


HANDLER: Final = Handler(ListConfigResourcesRequest, ListConfigResourcesResponse, handle)


def _names(broker: Broker, listener: str, resource_type: ResourceType) -> Iterable[str]:
    image = broker.image
    match resource_type:
        case ResourceType.GROUP:
            return image.group_configs
        case ResourceType.CLIENT_METRICS:
            return image.client_metrics
        case ResourceType.TOPIC:
            return image.topics
    return [str(node.id) for node in image.brokers.values() if node.endpoint(listener) is not None]
