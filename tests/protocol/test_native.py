"""The codecs that are written out to be compiled do exactly what those made at first use do.

They are compared in whatever form this run has them: compiled, or as the plain Python that they are, too.
"""

from __future__ import annotations

import functools
import importlib
import random
import struct
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from barnabas.primitives.file_slice import FileSlice
from barnabas.protocol import codec
from barnabas.protocol.codec import ELEMENTS_MAX
from barnabas.protocol.decoders import Decoder, write_decoder
from barnabas.protocol.encoders import Encoder, write_encoder
from barnabas.protocol.errors import EncodeError, TooManyElements
from barnabas.protocol.messages import message_class
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.native import HOT_MESSAGES, native_codec
from barnabas.protocol.native.wire import SPLICE_BYTES
from barnabas.protocol.schema import Field, StructSchema, load_schema, snake_case
from tests.protocol.golden import GoldenMessage, golden_messages
from tests.sampling import cases, sample
from tools.native_codecs import NATIVE_PATH, module_text

MUTATIONS_PER_MESSAGE = cases(40, fast=8)

REFUSED = "refused"
DECODE_FAULTS = (IndexError, ValueError, struct.error)
ENCODE_FAULTS = (AttributeError, TypeError, ValueError, OverflowError, struct.error)


def native(name: str) -> ModuleType:
    return importlib.import_module(f"barnabas.protocol.native.{snake_case(name)}")


@functools.cache
def decoder_at_first_use(name: str, version: int) -> Decoder:
    return write_decoder(load_schema(name), version, message_class(name))


@functools.cache
def encoder_at_first_use(name: str, version: int) -> Encoder:
    return write_encoder(load_schema(name), version, message_class(name))


def outcome(call: Callable[[], object], faults: tuple[type[Exception], ...]) -> object:
    try:
        return call()
    except faults:
        return REFUSED


def decoded(name: str, version: int, data: bytes) -> object:
    """What both codecs make of the bytes; it must be the same."""
    expected = outcome(lambda: decoder_at_first_use(name, version)(data, 0, ELEMENTS_MAX), DECODE_FAULTS)
    found = outcome(lambda: native(name).decode(version, data, 0, ELEMENTS_MAX), DECODE_FAULTS)
    assert found == expected, f"{name} v{version}: {data.hex()}"
    return found


def encoded(name: str, version: int, message: object) -> object:
    expected = outcome(lambda: encoder_at_first_use(name, version)(message), ENCODE_FAULTS)
    found = outcome(lambda: native(name).encode(version, message), ENCODE_FAULTS)
    assert found == expected, f"{name} v{version}: {message}"
    return found


def hot_golden_messages() -> list[GoldenMessage]:
    return [golden for golden in golden_messages() if golden.message in HOT_MESSAGES]


def structs_within(schema: StructSchema, value: Any) -> Iterator[tuple[StructSchema, Any]]:
    """A message and all structs in it, each with its schema."""
    yield schema, value
    for field in schema.fields:
        if field.struct is not None:
            inner = getattr(value, field.python_name)
            for element in (inner or ()) if field.is_array else (inner,):
                yield from structs_within(field.struct, element)


@pytest.mark.parametrize("name", sample(HOT_MESSAGES, fast=2))
def test_the_modules_are_what_the_generator_writes_today(name: str) -> None:
    written = (NATIVE_PATH / f"{snake_case(name)}.py").read_text(encoding="utf-8")
    assert written == module_text(load_schema(name)), "run `make messages`"


def test_there_is_a_module_for_each_hot_message_and_no_other() -> None:
    modules = {path.stem for path in NATIVE_PATH.glob("*.py")}
    assert modules == {snake_case(name) for name in HOT_MESSAGES} | {"__init__", "wire"}


@pytest.mark.parametrize("name", HOT_MESSAGES)
def test_they_are_used_where_they_are_compiled(name: str) -> None:
    is_compiled = not str(native(name).__file__).endswith(".py")
    assert native_codec(message_class(name)) is (native(name) if is_compiled else None)
    assert native_codec(HeartbeatRequest) is None


@pytest.mark.slow
def test_golden_messages() -> None:
    versions = set()
    for golden in hot_golden_messages():
        versions.add((golden.message, golden.version))
        message, end = native(golden.message).decode(golden.version, golden.data, 0, ELEMENTS_MAX)
        assert decoded(golden.message, golden.version, golden.data) == (message, end)
        assert end == len(golden.data)
        assert encoded(golden.message, golden.version, message) == golden.data
    assert versions == {(name, version) for name in HOT_MESSAGES for version in load_schema(name).versions}


def test_a_message_within_other_bytes() -> None:
    for golden in hot_golden_messages():
        before, behind = b"\xff" * 3, b"\x01\x02"
        message, end = native(golden.message).decode(
            golden.version, before + golden.data + behind, len(before), ELEMENTS_MAX
        )
        assert end == len(before + golden.data)
        assert encoded(golden.message, golden.version, message) == golden.data


def test_both_codecs_count_the_same_elements() -> None:
    for golden in hot_golden_messages():
        found = []
        for decoder in (
            decoder_at_first_use(golden.message, golden.version),
            functools.partial(native(golden.message).decode, golden.version),
        ):
            count = 0
            while outcome(functools.partial(decoder, golden.data, 0, count), (TooManyElements,)) is REFUSED:
                count += 1
            found.append(count)
        assert found[0] == found[1], golden


@pytest.mark.slow
def test_every_cut_of_a_golden_message_is_refused() -> None:
    for golden in hot_golden_messages():
        for end in range(len(golden.data)):
            assert decoded(golden.message, golden.version, golden.data[:end]) == REFUSED


def test_mutations_of_golden_messages() -> None:
    rng = random.Random(20)
    accepted = refused = 0
    for golden in hot_golden_messages():
        for _ in range(MUTATIONS_PER_MESSAGE if golden.data else 0):
            data = bytearray(golden.data)
            for _ in range(rng.choice((1, 1, 2, 5))):
                at = rng.randrange(len(data))
                # Small numbers and those at the edges hit lengths, counts and tags.
                data[at] = rng.choice((0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF, rng.randrange(256)))
            if decoded(golden.message, golden.version, bytes(data)) == REFUSED:
                refused += 1
            else:
                accepted += 1
    assert min(accepted, refused) > 25 * MUTATIONS_PER_MESSAGE


def test_random_bytes() -> None:
    rng = random.Random(21)
    for name in HOT_MESSAGES:
        for version in load_schema(name).versions:
            for _ in range(20):
                # Mostly small numbers: larger ones end a message at its first count.
                size_bytes = rng.randrange(80)
                decoded(name, version, bytes(rng.choice((0, 0, 0, 1, 2, 3, 255)) for _ in range(size_bytes)))


@pytest.mark.parametrize(
    ("name", "version", "data", "is_refused"),
    [
        # Tags of 2³¹ - 1 and 2³¹, then one of more bytes than it needs, then one of six bytes.
        ("ResponseHeader", 1, bytes(4) + b"\x01\xff\xff\xff\xff\x07\0", False),
        ("ResponseHeader", 1, bytes(4) + b"\x01\x80\x80\x80\x80\x08\0", True),
        ("ResponseHeader", 1, bytes(4) + b"\x01\x85\x80\x80\x80\0\0", False),
        ("ResponseHeader", 1, bytes(4) + b"\x01\x85\x80\x80\x80\x80\0\0", True),
        # Strings of 32,767 and 32,768 bytes.
        ("ApiVersionsRequest", 3, b"\x80\x80\x02" + b"x" * 32767 + b"\x01\0", False),
        ("ApiVersionsRequest", 3, b"\x81\x80\x02" + b"x" * 32768 + b"\x01\0", True),
        # Not UTF-8.
        ("ApiVersionsRequest", 3, b"\x03\xc3\x28\x02\xff\0", False),
    ],
)
def test_edges_that_chance_does_not_find(name: str, version: int, data: bytes, is_refused: bool) -> None:
    assert (decoded(name, version, data) == REFUSED) == is_refused


def test_golden_messages_written_in_all_other_versions() -> None:
    """What another version lacks is refused or left out by both alike."""
    refused = 0
    for golden in hot_golden_messages():
        message, _ = native(golden.message).decode(golden.version, golden.data, 0, ELEMENTS_MAX)
        for version in load_schema(golden.message).versions:
            refused += encoded(golden.message, version, message) == REFUSED
    assert refused > 100


VALUES: dict[str, tuple[object, ...]] = {
    "bool": (True, False),
    "int8": (127, 128, -128, -129, 2**64),
    "int16": (2**15 - 1, 2**15, -(2**15), -(2**15) - 1, 2**64),
    "int32": (2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**64),
    "int64": (2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64),
    "uuid": (bytes(range(16)), bytes(16), bytes(15), bytes(17)),
    "string": ("", "x" * 127, "é" * 16383, "x" * 32767, "x" * 32768, "\ud800"),
    "records": (b"", b"r" * 127, bytearray(b"r" * 128), memoryview(b"r" * 5000)),
}


def values_to_try(field: Field) -> list[object]:
    values: list[object]
    if field.struct:
        values = [[]] if field.is_array else []
    else:
        values = [[value, value] if field.is_array else value for value in VALUES[field.kind]]
    if field.nullable_versions:
        values.append(None)
    return values


@pytest.mark.parametrize("name", HOT_MESSAGES)
def test_every_field_at_the_edges_of_its_type(name: str) -> None:
    schema = load_schema(name)
    last = max(
        (golden for golden in hot_golden_messages() if golden.message == name),
        key=lambda golden: (golden.version, len(golden.data)),
    )
    message, _ = native(name).decode(last.version, last.data, 0, ELEMENTS_MAX)
    seen = set()
    for struct_schema, value in structs_within(schema, message):
        if struct_schema.name in seen:
            continue
        seen.add(struct_schema.name)
        for field in struct_schema.fields:
            usual = getattr(value, field.python_name)
            for unusual in values_to_try(field):
                setattr(value, field.python_name, unusual)
                for version in schema.versions:
                    encoded(name, version, message)
            setattr(value, field.python_name, usual)
    assert encoded(name, last.version, message) == last.data


@pytest.mark.parametrize(
    "fields",
    [
        ((0, b"zero"),),
        ((1, b"one"), (2, b"two")),
        ((2, b""), (200, b"x" * 200), (2**31 - 1, b"last")),
        ((4, bytearray(b"array")), (5, memoryview(b"view"))),
        ((6, b""), (5, b"")),
        ((5, b""), (5, b"")),
        ((-1, b""),),
        ((2**31, b""),),
        ((2**64, b""),),
    ],
)
@pytest.mark.parametrize("name", HOT_MESSAGES)
def test_unknown_tagged_fields(name: str, fields: Any) -> None:
    for version in load_schema(name).versions:
        message = message_class(name)(unknown_tagged_fields=fields)
        data = encoded(name, version, message)
        if data != REFUSED:
            assert isinstance(data, bytes)
            again, end = native(name).decode(version, data, 0, ELEMENTS_MAX)
            assert end == len(data)
            assert again.unknown_tagged_fields == tuple((tag, bytes(data)) for tag, data in fields)


def test_an_element_of_another_type_is_refused() -> None:
    request = FetchRequest(topics=[FetchTopic(), FetchPartition()])  # type: ignore[list-item]
    with pytest.raises(EncodeError, match=r"topics\[1\]: FetchTopic wanted, not FetchPartition"):
        codec.encode(request, 12)


@pytest.mark.parametrize("version", [0, 8, 9, 13])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_large_and_small_side_by_side(version: int, kind: Callable[[bytes], Any]) -> None:
    rng = random.Random(22)
    sizes = [0, 1, SPLICE_BYTES - 1, SPLICE_BYTES, SPLICE_BYTES + 1, 70_000, 3, 0]
    partitions = [
        PartitionProduceData(index=index, records=kind(rng.randbytes(size)))
        for index, size in enumerate(sizes)
    ]
    partitions.append(PartitionProduceData(index=99, records=None))
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(partition_data=partitions)])
    data = encoded("ProduceRequest", version, request)
    assert isinstance(data, bytes)
    assert decoded("ProduceRequest", version, data) == (request, len(data))


def test_messages_in_parts() -> None:
    for golden in hot_golden_messages():
        message, _ = native(golden.message).decode(golden.version, golden.data, 0, ELEMENTS_MAX)
        parts = codec.encode_parts(message, golden.version)
        assert b"".join(part for part in parts if not isinstance(part, FileSlice)) == golden.data
        splices: list[tuple[int, Any]] = []
        written = native(golden.message).encode(golden.version, message, splices)
        for position, records in reversed(splices):
            written = written[:position] + bytes(records) + written[position:]
        assert written == golden.data


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_are_views_of_what_was_given(kind: Callable[[bytes], Any]) -> None:
    partition = PartitionProduceData(index=0, records=b"records")
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    source = kind(native("ProduceRequest").encode(9, request))
    found, _ = native("ProduceRequest").decode(9, source, 0, ELEMENTS_MAX)
    records = found.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"records"
    assert records.obj is (source.obj if isinstance(source, memoryview) else source)
