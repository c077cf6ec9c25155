"""AlterClientQuotas, versions 0 and 1: sets or removes quotas of users, client ids, pairs of them, and addresses.

Both versions mean the same. A name of null is the default for entities without their own quota. An entity that is named
twice is not changed; Kafka refuses it too, after it has changed it once.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.results import code_of, message_of
from barnabas.broker.handlers.settings.describe_client_quotas import ENTITY_TYPES
from barnabas.broker.quotas.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.coordination.metadata.image import QuotaEntity
from barnabas.coordination.writing.cluster_writer import Edit
from barnabas.errors import InvalidRequest, KafkaError
from barnabas.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse
from barnabas.protocol.messages.alter_client_quotas_response import EntityData as AnsweredEntity
from barnabas.protocol.messages.alter_client_quotas_response import EntryData as AnsweredEntry

DOUBLE: Final = "a DOUBLE"
# The largest value of each type. Only DOUBLE takes fractions.
LARGEST: Final = {"an INT": (1 << 31) - 1, "a LONG": (1 << 63) - 1, DOUBLE: sys.float_info.max}
CLIENT_KEYS: Final = {
    PRODUCER_BYTE_RATE: "a LONG",
    CONSUMER_BYTE_RATE: "a LONG",
    REQUEST_PERCENTAGE: DOUBLE,
    CONTROLLER_MUTATION_RATE: DOUBLE,
}
IP_KEYS: Final = {CONNECTION_CREATION_RATE: "an INT"}
_FRACTION: Final = 1e-6
# The store has a node for each name, and these names mean something else there.
_UNUSABLE_NAMES: Final = frozenset({DEFAULT, ".", ".."})

# An entity in the form of the request, for the response.
Sides = tuple[tuple[str, str | None], ...]


async def handle(
    broker: Broker, exchange: AnyExchange, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    results: dict[Sides, KafkaError | None] = {}
    edits: dict[QuotaEntity, Edit[float]] = {}
    asked: dict[QuotaEntity, Sides] = {}
    end_ns = broker.turns.end_ns()
    for entry in request.entries:
        if broker.turns.is_over(end_ns):
            await broker.turns.next()
            end_ns = broker.turns.end_ns()
        sides = _sides(entry.entity)
        try:
            if sides in results:
                raise InvalidRequest(f"Ignoring duplicate entity {_shown(sides)}")
            results[sides] = None
            entity = await _entity(sides)
            edits[entity] = partial(_edited, _checked_operations(entry, sides, is_ip=entity[2] is not None))
            asked[entity] = sides
        except KafkaError as error:
            results[sides] = error
    edits = {entity: edit for entity, edit in edits.items() if results[asked[entity]] is None}
    async for part in broker.turns.parts(list(edits.items())):
        edited = dict(part)
        try:
            altered = await broker.writer.alter_quotas(edited, validate_only=request.validate_only)
        except KafkaError as error:
            altered = dict.fromkeys(edited, error)
        results.update((asked[entity], result) for entity, result in altered.items())
    return AlterClientQuotasResponse(
        entries=[
            AnsweredEntry(
                error_code=code_of(error),
                error_message=message_of(error),
                entity=[AnsweredEntity(entity_type=kind, entity_name=name) for kind, name in sides],
            )
            for sides, error in results.items()
        ]
    )


def refuse(request: AlterClientQuotasRequest, error: KafkaError, version: int) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            AnsweredEntry(
                error_code=error.code,
                error_message=str(error),
                entity=[
                    AnsweredEntity(entity_type=each.entity_type, entity_name=each.entity_name)
                    for each in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


HANDLER: Final = coroutine_handler(AlterClientQuotasRequest, AlterClientQuotasResponse, handle, refuse=refuse)


def _sides(entity: Sequence[EntityData]) -> Sides:
    """If a side is named twice, the last name counts."""
    return tuple(sorted({each.entity_type: each.entity_name for each in entity}.items()))


def _shown(sides: Sides) -> str:
    names = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in sides)
    return f"ClientQuotaEntity(entries={{{names}}})"


async def _entity(sides: Sides) -> QuotaEntity:
    if not sides:
        raise InvalidRequest("Invalid empty client quota entity")
    by_type: dict[str, str] = {}
    for kind, name in sides:
        if kind not in ENTITY_TYPES:
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
        if name in _UNUSABLE_NAMES:
            raise InvalidRequest(f"A {kind} named {name} cannot have a quota")
        by_type[kind] = DEFAULT if name is None else name
    ip = by_type.get("ip")
    if ip is not None:
        if len(by_type) > 1:
            raise InvalidRequest(
                "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
            )
        if ip != DEFAULT and not await _is_address(ip):
            raise InvalidRequest(f"{ip} is not a valid IP or resolvable host.")
    return by_type.get("user"), by_type.get("client-id"), ip


async def _is_address(host: str) -> bool:
    try:
        await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return False
    return True


def _checked_operations(entry: EntryData, sides: Sides, *, is_ip: bool) -> list[OpData]:
    seen: set[str] = set()
    for operation in entry.ops:
        if operation.key in seen:
            raise InvalidRequest(
                f"Duplicate quota key {operation.key} not updating quota for this entity {_shown(sides)}"
            )
        seen.add(operation.key)
        if not operation.remove:
            _check_value(operation.key, operation.value, IP_KEYS if is_ip else CLIENT_KEYS)
    return entry.ops


def _check_value(key: str, value: float, keys: Mapping[str, str]) -> None:
    if key not in keys:
        raise InvalidRequest(f"Invalid configuration key {key}")
    if not value > 0:
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    kind = keys[key]
    if value > LARGEST[kind]:
        raise InvalidRequest(f"Proposed value for {key} is too large for {kind}.")
    if kind != DOUBLE and value % 1 > _FRACTION:
        raise InvalidRequest(f"{key} cannot be a fractional value.")


def _edited(operations: Sequence[OpData], current: Mapping[str, float]) -> Mapping[str, float]:
    after = dict(current)
    for operation in operations:
        if operation.remove:
            after.pop(operation.key, None)
        else:
            after[operation.key] = operation.value
    return after
