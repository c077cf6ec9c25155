"""ACLs for tests of single requests. Every client is `User:ANONYMOUS`: an admin is one by its address, 127.0.0.2."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any, Final

from barnabas.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.describe_acls_request import DescribeAclsRequest
from barnabas.security import acls
from barnabas.security.acls import AclBinding, AclEntry, ResourcePattern
from tests.broker.raw_client import WAIT_S, RawClient
from tests.broker.running import RunningBroker

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ANONYMOUS: Final = "User:ANONYMOUS"
ADMIN_HOST: Final = "127.0.0.2"
CLIENT_HOST: Final = "127.0.0.1"

WITH_AUTHORIZER: Final = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root"}


class HostClient(RawClient):
    """A client with an address of its own."""

    def __init__(self, port: int, host: str, client_id: str = "test") -> None:
        super().__init__(port, client_id=client_id)
        self.close()
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S, source_address=(host, 0))


def allow(
    operation: int,
    resource_type: int,
    name: str = acls.CLUSTER_NAME,
    *,
    pattern_type: int = acls.LITERAL,
    host: str = CLIENT_HOST,
    permission: int = acls.ALLOW,
    principal: str = ANONYMOUS,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(resource_type, name, pattern_type), AclEntry(principal, host, operation, permission)
    )


def make_admin(broker: RunningBroker) -> None:
    """Lets clients of the admin's address do everything, as a super user may."""
    every = {each: acls.CLUSTER_NAME if each == acls.CLUSTER else "*" for each in acls.RESOURCE_TYPES}
    add_acls(broker, [allow(acls.ALL, each, name, host=ADMIN_HOST) for each, name in every.items()])


def add_acls(broker: RunningBroker, bindings: Iterable[AclBinding]) -> None:
    """Without a request, which would need a permission."""
    writer = broker.server.broker.acl_writer
    assert writer is not None
    for binding in bindings:

        async def add(added: AclBinding = binding) -> None:
            [error] = (await writer.change({added.pattern: {added.entry}.union}, "a test")).values()
            assert error is None, error

        broker.call(add)


def create(client: RawClient, *bindings: AclBinding, version: int = 3) -> list[Any]:
    creations = [
        AclCreation(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            resource_pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in bindings
    ]
    results: list[Any] = client.ask("CreateAcls", version, CreateAclsRequest(creations=creations)).results
    return results


def describe(client: RawClient, version: int = 3, **fields: Any) -> Any:
    request = DescribeAclsRequest(
        **{
            "resource_type_filter": acls.ANY,
            "resource_name_filter": None,
            "pattern_type_filter": acls.ANY if version else acls.LITERAL,
            "principal_filter": None,
            "host_filter": None,
            "operation": acls.ANY,
            "permission_type": acls.ANY,
            **fields,
        }
    )
    return client.ask("DescribeAcls", version, request)


def bindings_of(response: Any) -> set[AclBinding]:
    return {
        AclBinding(
            ResourcePattern(resource.resource_type, resource.resource_name, resource.pattern_type),
            AclEntry(acl.principal, acl.host, acl.operation, acl.permission_type),
        )
        for resource in response.resources
        for acl in resource.acls
    }


def any_filter(**fields: Any) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        **{
            "resource_type_filter": acls.ANY,
            "resource_name_filter": None,
            "pattern_type_filter": acls.ANY,
            "principal_filter": None,
            "host_filter": None,
            "operation": acls.ANY,
            "permission_type": acls.ANY,
            **fields,
        }
    )


def delete(client: RawClient, *filters: DeleteAclsFilter, version: int = 3) -> list[Any]:
    request = DeleteAclsRequest(filters=list(filters))
    results: list[Any] = client.ask("DeleteAcls", version, request).filter_results
    return results
