"""DescribeAcls, versions 0 to 3: the ACLs that a filter selects, by their resource patterns.

- Version 0 knows literal patterns only; from version 1 on a filter has a type of pattern.
- A filter with codes of 0 (unknown) is refused; as in Kafka, the connection ends. Other codes without a meaning select
  nothing.
- Without an authorizer there are no ACLs: SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.security.acl_requests import checked_filter
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.errors import SecurityDisabled
from barnabas.protocol.messages.describe_acls_request import DescribeAclsRequest
from barnabas.protocol.messages.describe_acls_response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas.security.acls import AclFilter, ResourcePattern
from barnabas.security.authorizer import Authorizer

# About a millisecond's work.
PATTERNS_AT_ONCE: Final = 128


async def handle(
    broker: Broker, exchange: Exchange[DescribeAclsResponse], request: DescribeAclsRequest
) -> Answer[DescribeAclsResponse]:
    acl_filter = checked_filter(
        exchange.version,
        AclFilter(
            request.resource_type_filter,
            request.resource_name_filter,
            request.pattern_type_filter,
            request.principal_filter,
            request.host_filter,
            request.operation,
            request.permission_type,
        ),
    )
    if broker.authorization is None:
        return DescribeAclsResponse(
            error_code=SecurityDisabled.code, error_message="No Authorizer is configured on the broker"
        )
    authorizer = broker.authorization.authorizer
    resources: list[DescribeAclsResource] = []
    async for patterns in broker.turns.parts(authorizer.candidates(acl_filter), PATTERNS_AT_ONCE):
        for pattern in patterns:
            if acl_filter.matches_pattern(pattern):
                resources += _described(authorizer, pattern, acl_filter)
    response = DescribeAclsResponse(error_message=None, resources=resources)
    if len(resources) <= PATTERNS_AT_ONCE:
        return response
    return await exchange.respond_from(broker.background, response, resources)


HANDLER: Final = coroutine_handler(DescribeAclsRequest, DescribeAclsResponse, handle)


def _described(
    authorizer: Authorizer, pattern: ResourcePattern, acl_filter: AclFilter
) -> list[DescribeAclsResource]:
    acls = [
        AclDescription(
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for entry in authorizer.entries(pattern)
        if acl_filter.matches_entry(entry)
    ]
    if not acls:
        return []
    return [
        DescribeAclsResource(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            pattern_type=pattern.pattern_type,
            acls=acls,
        )
    ]
