"""Whether the client of a request may do what it asks for.

Each decision is counted. Denials that a client has caused by asking for a resource are logged by Kafka's logger of
decisions; questions that only filter a list are not. Handlers ask by the functions of `handlers/permissions.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import (
    ClusterAuthorizationFailed,
    DelegationTokenAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from barnabas.metrics.registry import Registry
from barnabas.security.acls import (
    CLUSTER,
    DELEGATION_TOKEN,
    GROUP,
    LITERAL,
    OPERATIONS,
    PATTERN_TYPES,
    RESOURCE_TYPES,
    SUPPORTED_OPERATIONS,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    pascal_case,
)
from barnabas.security.addresses import java_address

if TYPE_CHECKING:
    from barnabas.security.authorizer import Authorizer

audit_log = logging.getLogger("kafka.authorizer.logger")

_ERRORS: Final[dict[int, tuple[type[KafkaError], str]]] = {
    TOPIC: (TopicAuthorizationFailed, "Topic authorization failed."),
    GROUP: (GroupAuthorizationFailed, "Group authorization failed."),
    CLUSTER: (ClusterAuthorizationFailed, "Cluster authorization failed."),
    TRANSACTIONAL_ID: (TransactionalIdAuthorizationFailed, "Transactional Id authorization failed."),
    DELEGATION_TOKEN: (DelegationTokenAuthorizationFailed, "Delegation Token authorization failed."),
    # What one may do on a user concerns the user's tokens.
    USER: (DelegationTokenAuthorizationFailed, "Delegation Token authorization failed."),
}


class Authorization:
    """The authorizer with its metrics and its log."""

    __slots__ = ("_allowed", "_denied", "authorizer")

    def __init__(self, authorizer: Authorizer, metrics: Registry) -> None:
        self.authorizer = authorizer
        name = "kafka_server_plugins_authorization_"
        self._allowed = metrics.counter(
            name + "allowed_total", "Operations that the authorizer allowed."
        ).labels()
        self._denied = metrics.counter(
            name + "denied_total", "Operations that the authorizer denied."
        ).labels()
        metrics.gauge("kafka_server_plugins_acls_total_count", "ACLs.", lambda: authorizer.acl_count)

    def allows(
        self, exchange: AnyExchange, operation: int, resource_type: int, name: str, *, is_logged: bool = True
    ) -> bool:
        session = exchange.session
        host = session.host
        if ":" in host:
            host = java_address(host)
        if self.authorizer.allows(session.principal, host, operation, resource_type, name):
            self._allowed.value += 1
            return True
        self._denied.value += 1
        if is_logged:
            self._log_denial(exchange, host, operation, resource_type, name)
        return False

    def allows_some(self, exchange: AnyExchange, operation: int, resource_type: int) -> bool:
        """Whether there may be a resource of the type on which the client may do the operation."""
        session = exchange.session
        host = java_address(session.host) if ":" in session.host else session.host
        allowed = self.authorizer.allows_some(session.principal, host, operation, resource_type)
        (self._allowed if allowed else self._denied).value += 1
        return allowed

    def operations(self, exchange: AnyExchange, resource_type: int, name: str) -> int:
        """The operations that the client may do on a resource, as a bit set."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.allows(exchange, operation, resource_type, name, is_logged=False)
        )

    def _log_denial(
        self, exchange: AnyExchange, host: str, operation: int, resource_type: int, name: str
    ) -> None:
        principal = exchange.session.principal
        audit_log.info(
            "Principal = %s is Denied operation = %s from host = %s on resource = %s:%s:%s for request = %s with"
            " resourceRefCount = 1 based on rule %s",
            principal,
            OPERATIONS[operation],
            host,
            pascal_case(RESOURCE_TYPES[resource_type]),
            PATTERN_TYPES[LITERAL],
            name,
            exchange.served.api.name,
            self.authorizer.rule((principal, host, operation, resource_type, name)),
        )


def refusal(resource_type: int) -> KafkaError:
    """In Kafka's words."""
    error, message = _ERRORS[resource_type]
    return error(message)


def cluster_refusal(exchange: AnyExchange, operation: int) -> KafkaError:
    """For a request that needs a permission as a whole."""
    return ClusterAuthorizationFailed(
        f"Request {exchange.served.api.name} of {exchange.session.principal} needs {OPERATIONS[operation]} permission."
    )
