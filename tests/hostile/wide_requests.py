"""Valid requests with a great many elements in one of their arrays, for every API, made from the schemas."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from barnabas.broker.requests.routes import ROUTES
from barnabas.protocol.schema import Field, StructSchema, load_schema, snake_case
from tests.hostile.mutations import TARGET

TOPIC_RESOURCE: Final = 2
# What a field is filled with that names something, so that there is something to do for an element.
_NAMES: Final = {
    "allow_auto_topic_creation": False,
    "name": TARGET,
    "topic": TARGET,
    "topic_name": TARGET,
    "resource_name": TARGET,
    "resource_type": TOPIC_RESOURCE,
    "replica_id": -1,
    "num_partitions": 1,
    "replication_factor": 1,
    "validate_only": True,
    "timeout_ms": 1_000,
    "acks": 1,
    "session_epoch": -1,
}
DISTINCT_FIELDS: Final = (
    "name",
    "topic",
    "topic_name",
    "resource_name",
    "group_id",
    "key",
    "partition_index",
)


class WideRequest(NamedTuple):
    api_name: str
    version: int
    array: str
    body: Any


def wide_requests(count: int, *, distinct: bool) -> Iterator[WideRequest]:
    """One for each array of each API in its last version; elements are all the same, or have names of their own."""
    for route in ROUTES:
        version = route.last_version
        schema = load_schema(f"{route.name}Request")
        module = importlib.import_module(f"barnabas.protocol.messages.{snake_case(schema.name)}")
        for path in _array_paths(schema, version):
            body = _filled(schema, version, module)
            _widen(body, path, count, version, module, distinct)
            yield WideRequest(route.name, version, ".".join(field.python_name for field in path), body)


def _array_paths(schema: StructSchema, version: int) -> Iterator[tuple[Field, ...]]:
    for field in schema.fields:
        if field.is_present(version) and field.is_array:
            yield (field,)
            if field.struct is not None:
                for rest in _array_paths(field.struct, version):
                    yield (field, *rest)


def _filled(schema: StructSchema, version: int, module: Any) -> Any:
    """A struct with one element in each of its arrays."""
    item = getattr(module, schema.name)()
    for field in schema.fields:
        if not field.is_present(version):
            continue
        if field.is_array:
            setattr(item, field.python_name, [_element(field, version, module)])
        elif field.python_name in _NAMES:
            setattr(item, field.python_name, _NAMES[field.python_name])
    return item


def _element(field: Field, version: int, module: Any) -> Any:
    if field.struct is not None:
        return _filled(field.struct, version, module)
    return {"string": TARGET, "bytes": b"", "uuid": bytes(16), "bool": False, "float64": 0.0}.get(
        field.kind, 0
    )


def _widen(body: Any, path: tuple[Field, ...], count: int, version: int, module: Any, distinct: bool) -> None:
    for field in path[:-1]:
        [body] = getattr(body, field.python_name)
    element = _element(path[-1], version, module)
    elements = [element] * count
    if distinct:
        numbers_max = 128 if path[-1].kind == "int8" else count
        elements = [_renamed(element, number % numbers_max) for number in range(count)]
    setattr(body, path[-1].python_name, elements)


def _renamed(element: Any, number: int) -> Any:
    if isinstance(element, str):
        return f"wide-{number}"
    if isinstance(element, bytes):
        return number.to_bytes(16, "big")
    if isinstance(element, int | float):
        return number
    renamed = copy.copy(element)
    for name in DISTINCT_FIELDS:
        if hasattr(renamed, name):
            value = getattr(renamed, name)
            setattr(renamed, name, number if isinstance(value, int) else f"wide-{number}")
    return renamed
