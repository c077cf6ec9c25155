"""ACLs in the store, as Kafka 3.9 writes them in ZooKeeper: one node per resource pattern.

    /kafka-acl/TYPE/NAME                            the ACLs of a literal name: {"version":1,"acls":[…]}
    /kafka-acl-extended/prefixed/TYPE/PREFIX        the ACLs of a prefix
    /kafka-acl-changes/acl_changes_                 sequential: TOPIC:NAME
    /kafka-acl-extended-changes/acl_changes_        sequential: {"version":1,"resourceType":…,"name":…,"patternType":…}

An ACL is {"principal":"User:ann","permissionType":"Allow","operation":"Read","host":"*"}. A TYPE is `Topic`,
`TransactionalId` and so on. Names stand in the paths as they are, so a name that no node can have has no ACLs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.coordination.metadata.node_reader import MalformedNode, NodeReader
from barnabas.coordination.store.contract import BadArguments, validate_path
from barnabas.errors import InvalidRequest
from barnabas.security.acls import (
    LITERAL,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    PREFIXED,
    RESOURCE_TYPES,
    AclEntry,
    ResourcePattern,
    pascal_case,
)

ROOTS: Final = {LITERAL: "/kafka-acl", PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGE_PREFIXES: Final = {
    LITERAL: "/kafka-acl-changes/acl_changes_",
    PREFIXED: "/kafka-acl-extended-changes/acl_changes_",
}
VERSION: Final = 1

TYPE_NAMES: Final = {code: pascal_case(name) for code, name in RESOURCE_TYPES.items()}
_OPERATION_NAMES: Final = {code: pascal_case(name) for code, name in OPERATIONS.items()}
_PERMISSION_NAMES: Final = {code: pascal_case(name) for code, name in PERMISSIONS.items()}
_TYPES: Final = {name: code for code, name in RESOURCE_TYPES.items()}


def _codes(names: Mapping[int, str]) -> dict[str, int]:
    return {name.lower(): code for code, name in names.items()}


# Kafka reads these names in any case.
TYPE_CODES: Final = _codes(TYPE_NAMES)
_OPERATION_CODES: Final = _codes(_OPERATION_NAMES)
_PERMISSION_CODES: Final = _codes(_PERMISSION_NAMES)


def type_path(pattern_type: int, type_name: str) -> str:
    return f"{ROOTS[pattern_type]}/{type_name}"


def acl_path(pattern: ResourcePattern) -> str:
    return f"{type_path(pattern.pattern_type, TYPE_NAMES[pattern.resource_type])}/{pattern.name}"


def check_name(pattern: ResourcePattern) -> None:
    """Raises InvalidRequest if the store cannot have ACLs of this name."""
    try:
        if "/" in pattern.name:
            raise BadArguments(f"{pattern.name[:200]!r} contains /")
        validate_path(acl_path(pattern))
    except BadArguments as error:
        raise InvalidRequest(
            f"The cluster's store cannot keep ACLs of this resource name: {error}"
        ) from error


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    acls = [
        {
            "principal": entry.principal,
            "permissionType": _PERMISSION_NAMES[entry.permission],
            "operation": _OPERATION_NAMES[entry.operation],
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return _encode({"version": VERSION, "acls": acls})


def decode_acls(path: str, data: bytes) -> set[AclEntry]:
    if not data:
        return set()
    node = NodeReader(path, data)
    if node.integer("version") != VERSION:
        raise node.malformed(f"version is not {VERSION}")
    items = node.required("acls")
    if not isinstance(items, list):
        raise node.malformed("acls is no list")
    return {_decode_entry(node, item) for item in items}


def _decode_entry(node: NodeReader, item: object) -> AclEntry:
    texts = (
        [item.get(key) for key in ("principal", "host", "operation", "permissionType")]
        if isinstance(item, dict)
        else [None]
    )
    if not all(isinstance(text, str) for text in texts):
        raise node.malformed("acls has an item without principal, host, operation and permissionType")
    principal, host, operation, permission = map(str, texts)
    try:
        return AclEntry(
            principal, host, _OPERATION_CODES[operation.lower()], _PERMISSION_CODES[permission.lower()]
        )
    except KeyError as error:
        raise node.malformed(f"{error} is no operation or permission") from error


def encode_acl_change(pattern: ResourcePattern) -> bytes:
    type_name = RESOURCE_TYPES[pattern.resource_type]
    if pattern.pattern_type == LITERAL:
        return f"{type_name}:{pattern.name}".encode()
    return _encode(
        {
            "version": VERSION,
            "resourceType": type_name,
            "name": pattern.name,
            "patternType": PATTERN_TYPES[pattern.pattern_type],
        }
    )


def decode_literal_change(path: str, data: bytes) -> ResourcePattern:
    try:
        type_name, colon, name = data.decode().partition(":")
        if colon:
            pattern = ResourcePattern(_TYPES[type_name.upper()], name, LITERAL)
            check_name(pattern)
            return pattern
    except (UnicodeDecodeError, KeyError, InvalidRequest):
        pass
    raise MalformedNode(f"{path}: {data[:200]!r} is no resource type and name")


def decode_extended_change(path: str, data: bytes) -> ResourcePattern:
    node = NodeReader(path, data)
    resource_type = _TYPES.get(node.text("resourceType").upper())
    if node.integer("version") > VERSION or resource_type is None:
        raise node.malformed("version or resourceType is not known")
    if node.text("patternType").upper() != PATTERN_TYPES[PREFIXED]:
        raise node.malformed(f"patternType is not {PATTERN_TYPES[PREFIXED]}")
    pattern = ResourcePattern(resource_type, node.text("name"), PREFIXED)
    try:
        check_name(pattern)
    except InvalidRequest as error:
        raise node.malformed(f"name: {error}") from error
    return pattern


def _encode(node: Mapping[str, object]) -> bytes:
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False).encode()
