"""DeleteAcls, versions 0 to 3: deletes the ACLs that filters select, and lists them by filter.

- Version 0 knows literal patterns only; from version 1 on a filter has a type of pattern.
- An ACL that several filters select is listed for each of them.
- Without an authorizer each filter is SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.results import code_of, message_of
from barnabas.broker.handlers.security.acl_requests import checked_filter
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.coordination.metadata.acl_nodes import check_name
from barnabas.coordination.writing.acl_writer import Edit
from barnabas.errors import InvalidRequest, KafkaError, SecurityDisabled
from barnabas.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from barnabas.security.acls import (
    ANY,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    AclEntry,
    AclFilter,
    ResourcePattern,
)
from barnabas.security.authorizer import Authorizer

_Filters = Sequence[tuple[AclFilter, DeleteAclsFilterResult]]


async def handle(broker: Broker, exchange: AnyExchange, request: DeleteAclsRequest) -> DeleteAclsResponse:
    filters: list[AclFilter] = []
    async for part in broker.turns.parts(request.filters):
        filters += [checked_filter(exchange.version, _filter(each)) for each in part]
    if broker.authorization is None or broker.acl_writer is None:
        return refuse(request, SecurityDisabled("No Authorizer is configured."), exchange.version)
    authorizer = broker.authorization.authorizer
    results = [_problem(each) for each in filters]
    by_pattern: dict[ResourcePattern, list[tuple[AclFilter, DeleteAclsFilterResult]]] = {}
    end_ns = broker.turns.end_ns()
    for acl_filter, result in zip(filters, results, strict=True):
        if result.error_code:
            continue
        for pattern in _candidates(authorizer, acl_filter):
            if acl_filter.matches_pattern(pattern):
                by_pattern.setdefault(pattern, []).append((acl_filter, result))
            if broker.turns.is_over(end_ns):
                await broker.turns.next()
                end_ns = broker.turns.end_ns()
    removed: dict[ResourcePattern, set[AclEntry]] = {}
    edits: dict[ResourcePattern, Edit] = {
        pattern: partial(_without, pattern, selecting, removed) for pattern, selecting in by_pattern.items()
    }
    errors = await broker.acl_writer.change(edits, str(exchange.session.principal))
    for pattern, selecting in by_pattern.items():
        for entry in sorted(removed.get(pattern, ())):
            acl = _matching(pattern, entry, errors[pattern])
            for acl_filter, result in selecting:
                if acl_filter.matches_entry(entry):
                    result.matching_acls.append(acl)
    return DeleteAclsResponse(filter_results=results)


def refuse(request: DeleteAclsRequest, error: KafkaError, version: int) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=error.code, error_message=str(error))
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))


HANDLER: Final = coroutine_handler(DeleteAclsRequest, DeleteAclsResponse, handle, refuse=refuse)


def _filter(each: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        each.resource_type_filter,
        each.resource_name_filter,
        each.pattern_type_filter,
        each.principal_filter,
        each.host_filter,
        each.operation,
        each.permission_type,
    )


def _problem(acl_filter: AclFilter) -> DeleteAclsFilterResult:
    """The result of a filter; with an error if the filter has codes without a meaning."""
    message = None
    if acl_filter.resource_type not in (ANY, *RESOURCE_TYPES) or acl_filter.pattern_type not in (
        ANY,
        MATCH,
        *PATTERN_TYPES,
    ):
        message = "Unknown patternFilter."
    elif acl_filter.operation not in (ANY, *OPERATIONS) or acl_filter.permission not in (ANY, *PERMISSIONS):
        message = "Unknown entryFilter."
    return DeleteAclsFilterResult(
        error_code=0 if message is None else InvalidRequest.code, error_message=message
    )


def _candidates(authorizer: Authorizer, acl_filter: AclFilter) -> list[ResourcePattern]:
    """Patterns that the filter may select. One that it names is read from the store, known here or not."""
    name = acl_filter.name
    if acl_filter.resource_type == ANY or name is None or acl_filter.pattern_type == MATCH:
        return authorizer.candidates(acl_filter)
    pattern_types = PATTERN_TYPES if acl_filter.pattern_type == ANY else (acl_filter.pattern_type,)
    named = [ResourcePattern(acl_filter.resource_type, name, each) for each in pattern_types]
    try:
        for pattern in named:
            check_name(pattern)
    except InvalidRequest:
        return []
    return named


def _without(
    pattern: ResourcePattern,
    selecting: _Filters,
    removed: dict[ResourcePattern, set[AclEntry]],
    current: set[AclEntry],
) -> set[AclEntry]:
    """The ACLs that no filter selects. Notes the others in `removed`."""
    removed[pattern] = {
        entry for entry in current if any(acl_filter.matches_entry(entry) for acl_filter, _ in selecting)
    }
    return current - removed[pattern]


def _matching(pattern: ResourcePattern, entry: AclEntry, error: KafkaError | None) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=code_of(error),
        error_message=message_of(error),
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
