"""DescribeClientQuotas, versions 0 and 1: the quotas of all entities that match a filter. Both versions mean the same.

Each component of the filter names a side of an entity (user, client-id, ip) and asks for one name, for the default, or
for any. A strict filter does not match entities with additional sides. An error is an error of the whole request.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.quotas.quotas import DEFAULT
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.coordination.metadata.image import QuotaEntity
from barnabas.errors import InvalidRequest, KafkaError, UnsupportedVersion
from barnabas.protocol.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from barnabas.protocol.messages.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

# In the order of an entity's sides.
ENTITY_TYPES: Final = ("user", "client-id", "ip")


class MatchType(IntEnum):
    """Codes of the protocol."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


def handle(
    broker: Broker, exchange: AnyExchange, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        wanted = _filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[
                    EntityData(entity_type=kind, entity_name=None if name == DEFAULT else name)
                    for kind, name in _sides(entity).items()
                ],
                values=[ValueData(key=key, value=value) for key, value in limits.items()],
            )
            for entity, limits in broker.image.client_quotas.items()
            if _fits(_sides(entity), wanted, is_strict=request.strict)
        ],
    )


def refuse(
    request: DescribeClientQuotasRequest, error: KafkaError, version: int
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)


HANDLER: Final = Handler(DescribeClientQuotasRequest, DescribeClientQuotasResponse, handle, refuse=refuse)


def _sides(entity: QuotaEntity) -> dict[str, str]:
    return {kind: name for kind, name in zip(ENTITY_TYPES, entity, strict=True) if name is not None}


def _filter(components: list[ComponentData]) -> dict[str, str | None]:
    """The wanted name for each side of an entity, None for any name."""
    wanted: dict[str, str | None] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind in wanted:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise UnsupportedVersion(f"Unsupported entity type {kind}")
        if component.match_type not in MatchType._value2member_map_:
            raise InvalidRequest(f"Unknown match type {component.match_type}")
        match_type = MatchType(component.match_type)
        if match_type is MatchType.EXACT:
            if component.match is None:
                raise InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            wanted[kind] = component.match
            continue
        if component.match is not None:
            raise InvalidRequest(
                f"Request specified MATCH_TYPE_{match_type.name}, but also specified a match string."
            )
        wanted[kind] = DEFAULT if match_type is MatchType.DEFAULT else None
    if "ip" in wanted and len(wanted) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used with user or"
            " clientId filter component."
        )
    return wanted


def _fits(sides: dict[str, str], wanted: dict[str, str | None], *, is_strict: bool) -> bool:
    if is_strict and len(sides) != len(wanted):
        return False
    return all(kind in sides and name in (None, sides[kind]) for kind, name in wanted.items())
