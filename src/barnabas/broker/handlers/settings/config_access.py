"""What a client needs for the settings of a resource: an operation on the topic or the group, else on the cluster."""

from __future__ import annotations

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.permissions import authorize
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.broker.settings.resources import ResourceType
from barnabas.security.acls import CLUSTER, CLUSTER_NAME, GROUP, TOPIC


def authorize_configs(
    broker: Broker, exchange: AnyExchange, operation: int, resource_type: int, name: str
) -> None:
    """Raises the error of the type of resource."""
    match ResourceType(resource_type):
        case ResourceType.TOPIC:
            authorize(broker, exchange, operation, TOPIC, name)
        case ResourceType.GROUP:
            authorize(broker, exchange, operation, GROUP, name)
        case _:
            authorize(broker, exchange, operation, CLUSTER, CLUSTER_NAME)
