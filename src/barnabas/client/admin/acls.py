"""ACLs: creating, describing and deleting them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final

from barnabas.client.admin.arguments import as_acls
from barnabas.client.admin.core import AdminCore, raise_for
from barnabas.client.admin.results import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from barnabas.client.arguments import as_enum, as_text
from barnabas.errors import KafkaError, error_for_code
from barnabas.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.describe_acls_request import DescribeAclsRequest

_ANY: Final = 1


class AclsAdmin(AdminCore):
    async def create_acls(self, acls: Acl | Iterable[Acl], *, timeout_ms: float | None = None) -> None:
        """Creates ACLs; one that exists stays as it is. Raises the errors of those that were not created."""
        wanted = {acl: _creation(acl) for acl in as_acls(acls, Acl, "acls")}

        async def ask(node: int | None, items: list[Acl]) -> dict[Acl, KafkaError | None]:
            request = CreateAclsRequest(creations=[wanted[acl] for acl in items])
            answer = await self._request(node, request)
            return {
                acl: error_for_code(result.error_code, result.error_message or "")
                if result.error_code
                else None
                for acl, result in zip(items, answer.results, strict=True)
            }

        await self._each("creating ACLs", wanted, self._locate_any, ask, timeout_ms)

    async def describe_acls(
        self, selected: AclFilter | None = None, *, timeout_ms: float | None = None
    ) -> list[Acl]:
        """The ACLs that a filter selects, all of them without one, in the order of their resources."""
        (chosen,) = as_acls(AclFilter() if selected is None else selected, AclFilter, "selected")
        fields = _filter_fields(chosen)

        async def ask() -> list[Acl]:
            answer = await self._request(None, DescribeAclsRequest(**fields))
            raise_for(answer.error_code, answer.error_message, "ACLs")
            return [
                _acl(resource, resource.pattern_type, acl)
                for resource in answer.resources
                for acl in resource.acls
            ]

        return sorted(await self._once("describing ACLs", ask, timeout_ms), key=_order)

    async def delete_acls(
        self, selected: AclFilter | Iterable[AclFilter], *, timeout_ms: float | None = None
    ) -> list[Acl]:
        """Deletes the ACLs that any of the filters selects, and returns them."""
        filters = as_acls(selected, AclFilter, "selected")
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter_fields(each)) for each in filters])

        async def ask() -> list[Acl]:
            answer = await self._request(None, request)
            deleted: dict[Acl, None] = {}
            for result in answer.filter_results:
                raise_for(result.error_code, result.error_message, "ACLs")
                for found in result.matching_acls:
                    acl = _acl(found, found.pattern_type, found)
                    raise_for(found.error_code, found.error_message, f"the ACL {acl}")
                    deleted[acl] = None
            return list(deleted)

        return sorted(await self._once("deleting ACLs", ask, timeout_ms), key=_order)

    async def _locate_any(self, acls: list[Acl]) -> dict[Acl, int | KafkaError | None]:
        return dict.fromkeys(acls)


def _order(acl: Acl) -> tuple[object, ...]:
    return acl.resource_type, acl.resource, acl.pattern_type, acl.principal, acl


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=as_enum(acl.resource_type, "resource_type of Acl", AclResourceType),
        resource_name=as_text(acl.resource, "resource of Acl"),
        resource_pattern_type=as_enum(acl.pattern_type, "pattern_type of Acl", AclPatternType),
        principal=as_text(acl.principal, "principal of Acl"),
        host=as_text(acl.host, "host of Acl"),
        operation=as_enum(acl.operation, "operation of Acl", AclOperation),
        permission_type=as_enum(acl.permission, "permission of Acl", AclPermission),
    )


def _filter_fields(selected: AclFilter) -> dict[str, Any]:
    """The fields of a filter, which two requests have."""
    return {
        "resource_type_filter": _code(selected.resource_type, "resource_type", AclResourceType),
        "resource_name_filter": _name(selected.resource, "resource"),
        "pattern_type_filter": _code(selected.pattern_type, "pattern_type", AclPatternType),
        "principal_filter": _name(selected.principal, "principal"),
        "host_filter": _name(selected.host, "host"),
        "operation": _code(selected.operation, "operation", AclOperation),
        "permission_type": _code(selected.permission, "permission", AclPermission),
    }


def _code(given: object, field: str, kind: type[IntEnum]) -> int:
    return _ANY if given is None else int(as_enum(given, f"{field} of AclFilter", kind))


def _name(given: object, field: str) -> str | None:
    return None if given is None else as_text(given, f"{field} of AclFilter")


def _acl(resource: Any, pattern_type: int, acl: Any) -> Acl:
    return Acl(
        acl.principal,
        AclOperation(acl.operation),
        AclResourceType(resource.resource_type),
        resource.resource_name,
        AclPatternType(pattern_type),
        acl.host,
        AclPermission(acl.permission_type),
    )
