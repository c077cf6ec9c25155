"""How handlers ask whether a client may do what it asks for.

Without an authorizer every client may do everything, and a request pays one comparison with None.
"""

from __future__ import annotations

from barnabas.broker.broker import Broker
from barnabas.broker.requests.authorization import refusal
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.broker.requests.operations import EVERY_OPERATION
from barnabas.security.acls import CLUSTER, CLUSTER_NAME, DESCRIBE, TOPIC


class Permission:
    """An operation on several resources of one type in one request: each name is checked, and logged, once."""

    __slots__ = ("_authorization", "_exchange", "_is_logged", "_known", "_operation", "_resource_type")

    def __init__(
        self,
        broker: Broker,
        exchange: AnyExchange,
        operation: int,
        resource_type: int = TOPIC,
        *,
        is_logged: bool = True,
    ) -> None:
        self._authorization = broker.authorization
        self._exchange = exchange
        self._operation = operation
        self._resource_type = resource_type
        self._is_logged = is_logged
        self._known: dict[str, bool] = {}

    def __contains__(self, name: object) -> bool:
        """Whether the client may do the operation on the resource of this name."""
        authorization = self._authorization
        if authorization is None:
            return True
        assert isinstance(name, str)
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = authorization.allows(
                self._exchange, self._operation, self._resource_type, name, is_logged=self._is_logged
            )
        return found

    def check(self, name: str) -> None:
        """Raises the error of the type of resource."""
        if name not in self:
            raise refusal(self._resource_type)


def denies(
    broker: Broker,
    exchange: AnyExchange,
    operation: int,
    resource_type: int = CLUSTER,
    name: str = CLUSTER_NAME,
    *,
    is_logged: bool = True,
) -> bool:
    """Whether there is an authorizer, and it denies the operation."""
    authorization = broker.authorization
    return authorization is not None and not authorization.allows(
        exchange, operation, resource_type, name, is_logged=is_logged
    )


def authorize(broker: Broker, exchange: AnyExchange, operation: int, resource_type: int, name: str) -> None:
    """Raises the error of the type of resource if the client may not do the operation."""
    if denies(broker, exchange, operation, resource_type, name):
        raise refusal(resource_type)


def operations(broker: Broker, exchange: AnyExchange, resource_type: int, name: str = CLUSTER_NAME) -> int:
    """The operations that the client may do on a resource, as a bit set."""
    if broker.authorization is None:
        return EVERY_OPERATION[resource_type]
    return broker.authorization.operations(exchange, resource_type, name)


def cluster_operations(broker: Broker, exchange: AnyExchange) -> int:
    """The operations that the client may do on the cluster; none if it may not describe the cluster."""
    return 0 if denies(broker, exchange, DESCRIBE) else operations(broker, exchange, CLUSTER)
