"""CreateAcls, versions 0 to 3. An ACL that exists already is created successfully.

- Version 0 knows literal patterns only.
- An ACL with a wrong type, pattern, operation, permission, principal or name is INVALID_REQUEST, and the others are
  created. So is a name that the store cannot keep, for example one with a slash, as in Kafka 3.9.
- Without an authorizer each ACL is SECURITY_DISABLED.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.results import code_of, message_of
from barnabas.broker.handlers.security.acl_requests import check_codes
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.coordination.metadata.acl_nodes import check_name
from barnabas.coordination.writing.acl_writer import Edit
from barnabas.errors import InvalidRequest, KafkaError, SecurityDisabled, UnsupportedVersion
from barnabas.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from barnabas.security.acls import (
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    LITERAL,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    AclBinding,
    AclEntry,
    ResourcePattern,
)


async def handle(broker: Broker, exchange: AnyExchange, request: CreateAclsRequest) -> CreateAclsResponse:
    found: list[AclBinding | KafkaError] = []
    async for part in broker.turns.parts(request.creations):
        for each in part:
            if exchange.version == 0 and each.resource_pattern_type != LITERAL:
                raise UnsupportedVersion("Version 0 only supports literal resource pattern types")
            check_codes(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
            found.append(_checked(each))
    if broker.acl_writer is None:
        return refuse(request, SecurityDisabled("No Authorizer is configured."), exchange.version)
    entries: dict[ResourcePattern, set[AclEntry]] = {}
    for binding in found:
        if isinstance(binding, AclBinding):
            entries.setdefault(binding.pattern, set()).add(binding.entry)
    edits: dict[ResourcePattern, Edit] = {
        pattern: partial(set.union, added) for pattern, added in entries.items()
    }
    errors = await broker.acl_writer.change(edits, str(exchange.session.principal))
    return CreateAclsResponse(
        results=[_result(errors[each.pattern] if isinstance(each, AclBinding) else each) for each in found]
    )


def refuse(request: CreateAclsRequest, error: KafkaError, version: int) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_result(error)] * len(request.creations))


HANDLER: Final = coroutine_handler(CreateAclsRequest, CreateAclsResponse, handle, refuse=refuse)


def _result(error: KafkaError | None) -> AclCreationResult:
    return AclCreationResult(error_code=code_of(error), error_message=message_of(error))


def _checked(creation: AclCreation) -> AclBinding | KafkaError:
    """The ACL, or what is wrong with it, in Kafka's words."""
    name = creation.resource_name
    try:
        if creation.resource_type == CLUSTER and name != CLUSTER_NAME:
            raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
        if not name:
            raise InvalidRequest("Invalid empty resource name")
        for what, code, names in (
            ("resourceType", creation.resource_type, RESOURCE_TYPES),
            ("patternType", creation.resource_pattern_type, PATTERN_TYPES),
            ("operation", creation.operation, OPERATIONS),
            ("permissionType", creation.permission_type, PERMISSIONS),
        ):
            if code not in names:
                is_match = what == "patternType" and code == MATCH
                word = "ANY" if code == ANY else "MATCH" if is_match else "UNKNOWN"
                raise InvalidRequest(f"Invalid {what} {word}")
        if ":" not in creation.principal:
            raise InvalidRequest(
                f"Could not parse principal from `{creation.principal}` (no colon is present separating the principal"
                " type from the principal name)"
            )
        pattern = ResourcePattern(creation.resource_type, name, creation.resource_pattern_type)
        check_name(pattern)
    except InvalidRequest as error:
        return error
    return AclBinding(
        pattern, AclEntry(creation.principal, creation.host, creation.operation, creation.permission_type)
    )
