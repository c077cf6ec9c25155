"""Users with passwords (SCRAM), ACLs, and quotas."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

from barnabas.client.admin.results import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ScramMechanism,
)
from barnabas.console.api.call import Call, Console
from barnabas.console.api.shown import wait_until_shown
from barnabas.errors import InvalidRequest

ROWS_MAX: Final = 2_000
PASSWORD_CHARACTERS_MAX: Final = 256
ENTITY_TYPES: Final = ("user", "client-id", "ip")
DEFAULT_ITERATIONS: Final = 8_192

E = TypeVar("E", bound=IntEnum)


def list_users(console: Console, call: Call) -> Any:
    found = console.sampler.admin.describe_scram_users()
    return {
        "total": len(found),
        "users": [
            {
                "name": name,
                "mechanisms": [
                    {"mechanism": _mechanism_name(mechanism), "iterations": iterations}
                    for mechanism, iterations in sorted(mechanisms.items())
                ],
            }
            for name, mechanisms in sorted(found.items())[:ROWS_MAX]
        ],
    }


def set_password(console: Console, call: Call) -> Any:
    """Creates a user, or changes the password of one."""
    name, password = call.body_text("name"), call.body_text("password")
    if not name or not password or len(password) > PASSWORD_CHARACTERS_MAX:
        raise InvalidRequest(
            f"a user needs a name, and a password of 1 to {PASSWORD_CHARACTERS_MAX} characters"
        )
    mechanism = _mechanism(call.body_text("mechanism", required=False))
    iterations = call.body_integer("iterations", DEFAULT_ITERATIONS)
    admin = console.sampler.admin
    admin.set_scram_password(name, password, mechanism=mechanism, iterations=iterations)
    wait_until_shown(lambda: admin.describe_scram_users().get(name, {}).get(mechanism) == iterations)
    return {"name": name, "mechanism": _mechanism_name(mechanism), "iterations": iterations}


def delete_password(console: Console, call: Call) -> Any:
    name = call.path["user"]
    if call.body.get("confirm") != name:
        raise InvalidRequest(f"to delete the user, repeat its name: confirm must be {name!r}")
    mechanism = _mechanism(call.body_text("mechanism"))
    admin = console.sampler.admin
    admin.delete_scram_password(name, mechanism)
    wait_until_shown(lambda: mechanism not in admin.describe_scram_users().get(name, {}))
    return {"deleted": name, "mechanism": _mechanism_name(mechanism)}


def _mechanism_name(mechanism: ScramMechanism) -> str:
    return mechanism.name.replace("_", "-")


def _mechanism(text: str | None) -> ScramMechanism:
    return _named("mechanism", text or "SCRAM-SHA-512", ScramMechanism)


def _named(field: str, text: str, kind: type[E]) -> E:
    try:
        return kind[text.upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(each.name for each in kind)
        raise InvalidRequest(f"{field}={text[:40]!r} is not known; it is one of {known}") from None


def list_acls(console: Console, call: Call) -> Any:
    wanted = call.text("search").lower()
    found = [
        each
        for each in console.sampler.admin.describe_acls()
        if wanted in each.principal.lower() or wanted in each.resource.lower()
    ]
    return {"total": len(found), "acls": [_acl_row(each) for each in found[:ROWS_MAX]]}


def _acl_row(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "permission": acl.permission.name,
        "operation": acl.operation.name,
        "resource_type": acl.resource_type.name,
        "resource": acl.resource,
        "pattern_type": acl.pattern_type.name,
        "host": acl.host,
    }


def _acl(call: Call) -> Acl:
    """The ACL in the body of a request."""
    texts = {
        name: call.body_text(name) or "" for name in ("principal", "operation", "resource_type", "resource")
    }
    if ":" not in texts["principal"]:
        raise InvalidRequest("a principal has a type and a name, such as User:ann")
    pattern_type = _named(
        "pattern_type", call.body_text("pattern_type", required=False) or "LITERAL", AclPatternType
    )
    if pattern_type is AclPatternType.MATCH:
        raise InvalidRequest("pattern_type=MATCH is for filters; an ACL is LITERAL or PREFIXED")
    return Acl(
        texts["principal"],
        _named("operation", texts["operation"], AclOperation),
        _named("resource_type", texts["resource_type"], AclResourceType),
        texts["resource"],
        pattern_type,
        call.body_text("host", required=False) or "*",
        _named("permission", call.body_text("permission", required=False) or "ALLOW", AclPermission),
    )


def _exactly(acl: Acl) -> AclFilter:
    """The filter that selects one ACL."""
    return AclFilter(
        acl.principal,
        acl.operation,
        acl.resource_type,
        acl.resource,
        acl.pattern_type,
        acl.host,
        acl.permission,
    )


def create_acl(console: Console, call: Call) -> Any:
    acl, admin = _acl(call), console.sampler.admin
    admin.create_acls(acl)
    wait_until_shown(lambda: bool(admin.describe_acls(_exactly(acl))))
    return _acl_row(acl)


def delete_acl(console: Console, call: Call) -> Any:
    """Deletes exactly one ACL."""
    exactly, admin = _exactly(_acl(call)), console.sampler.admin
    deleted = admin.delete_acls(exactly)
    wait_until_shown(lambda: not admin.describe_acls(exactly))
    return {"deleted": [_acl_row(each) for each in deleted]}


def list_quotas(console: Console, call: Call) -> Any:
    found = console.sampler.admin.describe_quotas()
    return {
        "quotas": [
            {"entity": [{"type": kind, "name": name} for kind, name in entity], "values": dict(values)}
            for entity, values in sorted(found.items(), key=str)[:ROWS_MAX]
        ]
    }


def _has_quotas(found: Mapping[str, float], wanted: Mapping[str, float | None]) -> bool:
    return all(found.get(name) == value for name, value in wanted.items())


def change_quotas(console: Console, call: Call) -> Any:
    """Sets quotas of an entity, or removes those that are null."""
    entity, values = call.body.get("entity"), call.body.get("values")
    if not isinstance(entity, dict) or not entity or not entity.keys() <= set(ENTITY_TYPES):
        raise InvalidRequest(
            f"entity must be an object of names by type: {', '.join(ENTITY_TYPES)}; null is the default"
        )
    if not all(name is None or (isinstance(name, str) and name) for name in entity.values()):
        raise InvalidRequest("the names of an entity are texts, or null for the default")
    if not isinstance(values, dict) or not values:
        raise InvalidRequest(
            "values must be an object of numbers, such as producer_byte_rate; null removes a quota"
        )
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InvalidRequest(f"{name[:40]} must be a number, or null to remove the quota")
    admin, key = console.sampler.admin, tuple(sorted(entity.items()))
    admin.alter_quotas({key: values})
    wait_until_shown(lambda: _has_quotas(admin.describe_quotas().get(key, {}), values))
    return {"entity": entity, "values": values}
