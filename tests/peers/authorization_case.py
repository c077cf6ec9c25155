"""Requests of every API with the ACLs that they need: what a client gets without them, and what with them.

A request is written as its fields, with objects of Python for structures. Names of topics that exist: `orders` with
records, and `secret`. `billing` is a group with offsets of `orders`, `payments` a transactional id.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barnabas.protocol.messages import message_class
from barnabas.protocol.schema import StructSchema, load_schema
from barnabas.security import acls
from barnabas.security.acls import (
    CLUSTER,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
)

ORDERS: Final = "orders"
BILLING: Final = "billing"
PAYMENTS: Final = "payments"
# A group of the new protocol with a member that has partitions of `orders`.
REPORTS: Final = "reports"
NEW: Final = "new"
# Has a delegation token.
OTHER_USER: Final = "bob"
ANY_ACL: Final = {"operation": acls.ANY, "permission_type": acls.ANY}

TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TRANSACTION_DENIED, TOKEN_DENIED = 29, 30, 31, 53, 65
# The list only leaves out what the client may not see.
HIDDEN: Final = 0


class Needed(NamedTuple):
    operation: int
    resource_type: int
    name: str = acls.CLUSTER_NAME


class Case(NamedTuple):
    api: str
    version: int
    fields: Mapping[str, Any]
    # Each of these alone is not enough, unless `alternatives`: then each of them is.
    needed: tuple[Needed, ...]
    error: int
    alternatives: bool = False
    note: str = ""

    @property
    def name(self) -> str:
        needed = "+".join(
            f"{acls.OPERATIONS[each.operation]}-{acls.RESOURCE_TYPES[each.resource_type]}"
            for each in self.needed
        )
        return f"{self.api}-{self.version}-{needed.lower()}{self.note and '-'}{self.note}"

    def request(self) -> Any:
        return build(f"{self.api}Request", self.fields)


def build(name: str, fields: Mapping[str, Any]) -> Any:
    """A message from its fields; mappings become structures."""
    module = sys.modules[message_class(name).__module__]

    def struct(schema: StructSchema, values: Mapping[str, Any]) -> Any:
        by_name = {field.python_name: field for field in schema.fields}
        made = {}
        for key, value in values.items():
            inner = by_name[key].struct
            if inner is not None and isinstance(value, list):
                value = [struct(inner, each) for each in value]
            elif inner is not None and value is not None:
                value = struct(inner, value)
            made[key] = value
        return getattr(module, schema.name)(**made)

    return struct(load_schema(name), fields)


def topic(operation: int, name: str = ORDERS) -> Needed:
    return Needed(operation, TOPIC, name)


def group(operation: int) -> Needed:
    return Needed(operation, GROUP, BILLING)


def transaction(operation: int) -> Needed:
    return Needed(operation, TRANSACTIONAL_ID, PAYMENTS)


def cluster(operation: int) -> Needed:
    return Needed(operation, CLUSTER)


def one(*needed: Needed) -> tuple[Needed, ...]:
    return needed
