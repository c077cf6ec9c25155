"""Arguments of the admin client alone, as `client/arguments.py` converts those of all clients."""

from __future__ import annotations

from typing import TypeVar

from barnabas.client.admin.results import Acl, AclFilter, ConfigResource, ResourceType, TopicPartitionReplica
from barnabas.client.arguments import as_enum, as_items, as_number, as_text, as_tp, refuse

A = TypeVar("A", Acl, AclFilter)


def as_replica(given: object, argument: str) -> TopicPartitionReplica:
    if not isinstance(given, tuple) or len(given) != 3:
        refuse(argument, "TopicPartitionReplica('orders', 0, 1)", given)
    return TopicPartitionReplica(*as_tp(given[:2], argument), as_number(given[2], argument))


def as_resource(given: object, argument: str) -> ConfigResource:
    """A resource, or a pair such as ('topic', 'orders'); brokers may be named by their numbers."""
    if not isinstance(given, tuple) or len(given) != 2:
        refuse(argument, "ConfigResource(ResourceType.TOPIC, 'orders') or ('topic', 'orders')", given)
    kind, name = given
    text = str(name) if isinstance(name, int) else as_text(name, argument)
    return ConfigResource(as_enum(kind, argument, ResourceType), text)


def as_resources(given: object, argument: str = "resources") -> list[ConfigResource]:
    """Resources; a single one may come without a list."""
    if isinstance(given, ConfigResource) or (
        isinstance(given, tuple) and len(given) == 2 and not isinstance(given[0], tuple)
    ):
        return [as_resource(given, argument)]
    return [as_resource(each, argument) for each in as_items(given, argument, "[('topic', 'orders')]")]


def as_secret(given: object, argument: str) -> str:
    """A text that no error shows."""
    if not isinstance(given, str):
        raise TypeError(f"{argument} takes a text, and not {type(given).__name__}")
    return given


def as_acls(given: object, kind: type[A], argument: str) -> list[A]:
    """ACLs or filters; a single one may come without a list."""
    wanted = "Acl('User:ann', 'read', 'topic', 'orders')" if kind is Acl else "AclFilter('User:ann')"
    items = [given] if isinstance(given, kind) else as_items(given, argument, f"[{wanted}]")
    for each in items:
        if not isinstance(each, kind):
            refuse(argument, wanted, each)
    return items
