"""ACLs: creating, describing and deleting them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from barnabas.client.admin.core import AdminCore, raise_for
from barnabas.client.admin.results import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from barnabas.errors import KafkaError, error_for_code
from barnabas.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.describe_acls_request import DescribeAclsRequest

_ANY: Final = 1


class AclsAdmin(AdminCore):
    async def create_acls(self, acls: Acl | Iterable[Acl], *, timeout_ms: float | None = None) -> None:
        """Creates ACLs; one that exists stays as it is. Raises the errors of those that were not created."""
        wanted = [acls] if isinstance(acls, Acl) else list(dict.fromkeys(acls))

        async def ask(node: int | None, items: list[Acl]) -> dict[Acl, KafkaError | None]:
            request = CreateAclsRequest(creations=[_creation(acl) for acl in items])
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
        fields = _filter_fields(selected or AclFilter())

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
        filters = [selected] if isinstance(selected, AclFilter) else list(selected)
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
        resource_type=acl.resource_type,
        resource_name=acl.resource,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _filter_fields(selected: AclFilter) -> dict[str, Any]:
    """The fields of a filter, which two requests have."""
    return {
        "resource_type_filter": selected.resource_type or _ANY,
        "resource_name_filter": selected.resource,
        "pattern_type_filter": selected.pattern_type or _ANY,
        "principal_filter": selected.principal,
        "host_filter": selected.host,
        "operation": selected.operation or _ANY,
        "permission_type": selected.permission or _ANY,
    }


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
