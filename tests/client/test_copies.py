"""Every public value and every public error survives pickle, copy and deepcopy: they go to other processes."""

from __future__ import annotations

import copy
import dataclasses
import enum
import importlib
import inspect
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import barnabas
import barnabas.errors
from barnabas.client.admin.errors import AdminErrors
from barnabas.model import Offset, TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.records.header import parse_header
from barnabas.records.layout import TimestampType

# Public classes that are no values: they have connections, threads or waiting results, or are made to be derived from.
NO_VALUES = {
    "Admin",
    "AvroDeserializer",
    "AvroSerializer",
    "Consumer",
    "ConsumerInterceptor",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "Producer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "RebalanceListener",
    "RoundRobin",
    "SchemaDecoder",
    "SchemaRegistry",
    "SendFuture",
    "SendManyFuture",
    "Transaction",
}
WAIT_S = 60
COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}


def a_record(value: Any = b"v") -> barnabas.ConsumerRecord:
    return barnabas.ConsumerRecord(
        "orders", 3, 2**40, 1_700_000_000_000, TimestampType.CREATE_TIME, b"k", value, (("h", None),), 7
    )


def value_of(kind: Any) -> Any:
    """One of a class, with another value in each field."""
    if issubclass(kind, enum.Enum):
        return list(kind)[-1]
    names = getattr(kind, "_fields", None) or [each.name for each in dataclasses.fields(kind)]
    return kind(**{name: f"the {name}" for name in names})


VALUES = [
    each
    for each in (getattr(barnabas, name) for name in barnabas.__all__ if name not in NO_VALUES)
    if inspect.isclass(each) and each not in (barnabas.ConsumerRecord, barnabas.RawBatch)
]


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_values(kind: type, how: str) -> None:
    value = value_of(kind)
    again = COPIES[how](value)
    assert type(again) is kind
    assert again == value


@pytest.mark.parametrize("how", COPIES)
def test_records(how: str) -> None:
    record = a_record()
    again = COPIES[how](record)
    assert again == record
    assert repr(again) == repr(record)
    # What a deserializer has made is the caller's own: a shallow copy shares it.
    made = a_record({"amount": [1]})
    again = COPIES[how](made)
    assert again.value == made.value
    assert (again.value is made.value) == (how == "copy")


@pytest.mark.parametrize("how", COPIES)
def test_raw_batches(how: str) -> None:
    builder = BatchBuilder(base_offset=Offset(5))
    for number in range(3):
        builder.append(TimestampMs(1_700_000_000_000 + number), b"k", b"v%d" % number)
    data = builder.build()
    batch = barnabas.RawBatch("orders", 1, 6, parse_header(data), data)
    again = COPIES[how](batch)
    assert (again.topic, again.partition, again.start_offset, again.data) == ("orders", 1, 6, data)
    assert [each.value for each in again.records()] == [b"v1", b"v2"]
    assert [COPIES[how](each) for each in again.records()] == batch.records()


def test_records_reach_another_process() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply_async(len, ([a_record(), a_record()],)).get(WAIT_S) == 2
        assert pool.apply_async(copy.copy, (a_record(),)).get(WAIT_S) == a_record()


ERRORS = [
    each
    for each in (
        getattr(barnabas.errors, name) for name in importlib.import_module("barnabas.errors").__all__
    )
    if inspect.isclass(each)
]
# Those whose constructors take more than a message.
OWN_ARGUMENTS: dict[str, Callable[[], BaseException]] = {
    "AdminErrors": lambda: AdminErrors(
        "deleting topics", {"a": barnabas.errors.UnknownTopicOrPartition("a does not exist")}, {"b": None}
    ),
    "DeserializationError": lambda: barnabas.errors.DeserializationError(
        barnabas.TopicPartition("orders", 3), 5, "value", ValueError("no JSON")
    ),
    "InvalidSetting": lambda: barnabas.errors.InvalidSetting("acks", "most", "all or 1"),
    **{
        name: lambda name=name: getattr(barnabas.errors, name)("HTTP 422", status=422, error_code=42201)  # type: ignore[misc]
        for name in ("SchemaNotFound", "SchemaRegistryError", "SchemaRegistryUnavailable")
    },
}


def fields_of(error: Any) -> dict[str, Any]:
    """Its attributes. Errors have no equality: those in them are compared by their texts."""
    return {
        name: {item: repr(each) for item, each in value.items()} if isinstance(value, dict) else value
        for name, value in vars(error).items()
    }


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_errors(kind: Any, how: str) -> None:
    make = OWN_ARGUMENTS.get(kind.__name__)
    error = kind("the reason") if make is None else make()
    error.add_note("a note")
    again = COPIES[how](error)
    assert type(again) is kind
    assert str(again) == str(error)
    assert repr(again) == repr(error)
    assert fields_of(again) == fields_of(error)
    assert fields_of(again)["__notes__"] == ["a note"]


def test_what_is_left_out_is_public() -> None:
    assert set(barnabas.__all__) >= NO_VALUES
