"""The authorizer of a broker, if `authorizer.class.name` names one: its settings, its ACLs, the writer of ACLs.

Both authorizers of Apache Kafka have the same settings and make the same decisions here. ACLs are in the store, as
Kafka 3.9 writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from barnabas.broker.parts import AuthorizerParts
from barnabas.broker.requests.authorization import Authorization
from barnabas.config.broker_config import ALLOW_WITHOUT_ACL, SUPER_USERS, BrokerConfig
from barnabas.config.definition import InvalidSetting
from barnabas.coordination.metadata.acl_following import AclFollower
from barnabas.coordination.writing.acl_writer import AclWriter
from barnabas.metrics.registry import Registry
from barnabas.security.authorizer import Authorizer, parse_super_users
from barnabas.server.cluster import Cluster
from barnabas.server.environment import Environment

AUTHORIZERS: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)


def new_authorizer(config: BrokerConfig) -> Authorizer:
    """Without ACLs yet. Raises InvalidSetting."""
    name = config.authorizer_class_name
    if name not in AUTHORIZERS:
        raise InvalidSetting("authorizer.class.name", name, f"one of {', '.join(AUTHORIZERS)}")
    text = config.static.get(SUPER_USERS, "")
    try:
        super_users = parse_super_users(text)
    except ValueError as error:
        raise InvalidSetting(
            SUPER_USERS, text, "principals separated by ;, such as User:ann;User:bob"
        ) from error
    # As in Kafka, whatever is not true means false.
    is_open = config.static.get(ALLOW_WITHOUT_ACL, "").strip().lower() == "true"
    return Authorizer(super_users, is_open_without_acl=is_open)


async def start_authorizer(
    authorizer: Authorizer,
    cluster: Cluster,
    environment: Environment,
    metrics: Registry,
    when_closing: Callable[[Callable[[], Coroutine[Any, Any, None]]], object],
) -> AuthorizerParts:
    """Reads the ACLs and follows their changes. Raises StoreError."""
    follower = AclFollower(cluster.session, authorizer, environment.clock)
    await follower.begin()
    cluster.session.on_renewed(follower.read_again)
    when_closing(follower.close)
    writer = AclWriter(cluster.session, follower)
    when_closing(writer.close)
    return AuthorizerParts(Authorization(authorizer, metrics), writer)
