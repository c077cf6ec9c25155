"""Bytes that are no message: random, mutated, cut, too long, with lengths that promise gigabytes.

Each of them either is a message after all, and then survives being encoded and decoded again, or raises DecodeError
with the message, the version, a field that exists and a position within the bytes.
"""

from __future__ import annotations

import functools
import random
import re
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.errors import InvalidRequest, KafkaError, UnsupportedVersion
from barnabas.protocol.apis import APIS
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import DecodeError, InvalidValue
from barnabas.protocol.json_form import from_json, to_json
from barnabas.protocol.message import Message
from barnabas.protocol.messages import message_class
from barnabas.protocol.requests import decode_request, decode_response
from barnabas.protocol.schema import StructSchema, load_schema, message_names
from tests.protocol.golden import GoldenMessage, golden_messages
from tests.sampling import cases

FUZZ_SHARDS = 4
FUZZ_MUTATIONS = 200_000
SAMPLE_MUTATIONS = cases(6_000, fast=2_000)

LARGEST_INT32 = (2**31 - 1).to_bytes(4)
LARGEST_VARINT = b"\xff\xff\xff\xff\x07"
# Sizes and counts at the edges of their types, and varints that never end or are too large.
NASTY = [
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff",
    LARGEST_INT32,
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    LARGEST_VARINT,
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x00",
]


@functools.cache
def every_version() -> list[tuple[str, int]]:
    return [(name, version) for name in message_names() for version in load_schema(name).versions]


def refusal(call: Callable[[], object]) -> KafkaError | None:
    """The error of ours that a call ends with; any other error goes on and fails the test."""
    try:
        call()
    except KafkaError as error:
        return error
    return None


def decodes(name: str, version: int, data: bytes) -> bool:
    """Whether the bytes are a message; nothing but a DecodeError may say that they are not."""
    message_type = message_class(name)
    try:
        message = decode(message_type, data, version)
    except DecodeError as error:
        fault = error
    else:
        assert_survives(message, version)
        return True
    assert (fault.message, fault.version) == (name, version)
    assert 0 <= fault.position <= len(data)
    assert is_field(load_schema(name), fault.field), f"{fault.field} is no field of {name}"
    assert fault.reason
    return False


def assert_survives(message: Message, version: int) -> None:
    form = to_json(message, version)
    try:
        data = encode(message, version)
    except InvalidValue as error:
        fault = error
    else:
        again = decode(type(message), data, version)
        assert encode(again, version) == data
        assert to_json(again, version) == form
        return
    # What was not UTF-8 has become U+FFFD, which is longer; a string at the edge then no longer fits.
    assert re.match(r"a string of \d+ bytes", fault.reason)


def is_field(schema: StructSchema, path: str) -> bool:
    name, _, rest = re.sub(r"\[\d+\]", "", path).partition(".")
    if not name:
        return True
    field = next((field for field in schema.fields if field.json_name == name), None)
    if field is None or not rest:
        return field is not None
    return field.struct is not None and is_field(field.struct, rest)


def mutated(rng: random.Random, data: bytes, others: list[GoldenMessage]) -> bytes:
    mutation = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(mutation) + 1)
        match rng.randrange(8):
            case 0 if at < len(mutation):
                mutation[at] ^= 1 << rng.randrange(8)
            case 1:
                nasty = rng.choice(NASTY)
                mutation[at : at + len(nasty)] = nasty
            case 2:
                mutation[at:at] = rng.choice(NASTY)
            case 3:
                del mutation[at : at + rng.randrange(1, 9)]
            case 4:
                mutation[at:at] = mutation[at : at + rng.randrange(1, 40)]
            case 5:
                del mutation[at:]
            case 6:
                other = rng.choice(others).data
                mutation[at:] = other[rng.randrange(len(other) + 1) :]
            case _:
                mutation[at : at + 3] = rng.randbytes(3)
    return bytes(mutation)


def fuzz(seed: int, mutations: int) -> tuple[int, int]:
    """How many mutations were messages, and how many were refused."""
    rng = random.Random(seed)
    corpus = golden_messages()
    accepted = 0
    for index in range(mutations):
        golden = rng.choice(corpus)
        data = mutated(rng, golden.data, corpus)
        versions = load_schema(golden.message).versions
        version = golden.version if rng.random() < 0.9 else rng.randint(versions.first, versions.last)
        try:
            accepted += decodes(golden.message, version, data)
        except BaseException as error:
            error.add_note(f"seed {seed}, mutation {index}: {golden.message} v{version} from {data.hex()}")
            raise
    return accepted, mutations - accepted


def test_mutated_messages() -> None:
    accepted, refused = fuzz(seed=0, mutations=SAMPLE_MUTATIONS)
    # If either were rare, the mutations would be too wild or too tame to tell anything.
    assert accepted > SAMPLE_MUTATIONS // 10
    assert refused > SAMPLE_MUTATIONS // 10


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(FUZZ_SHARDS))
def test_mutated_messages_by_the_hundred_thousand(shard: int) -> None:
    fuzz(seed=1 + shard, mutations=FUZZ_MUTATIONS // FUZZ_SHARDS)


@settings(derandomize=True, deadline=None, max_examples=cases(40, fast=10))
@given(st.binary(max_size=120))
@example(b"")
@example(b"\x00" * 64)
@example(b"\x01" * 64)
@example(b"\x7f" * 64)
@example(b"\x80" * 64)
@example(b"\xff" * 64)
@example(LARGEST_INT32 * 16)
@example(LARGEST_VARINT * 16)
def test_random_bytes_for_every_message_and_version(data: bytes) -> None:
    for name, version in every_version():
        decodes(name, version, data)


def test_bytes_that_are_not_utf8_stay_within_their_string() -> None:
    """A string at its largest, all of it broken: it is read as Kafka reads it, and refused when it is written."""
    data = b"\x7f\xff" + b"\xff" * 0x7FFF
    header = b"\x00\x03\x00\x08\x00\x00\x00\x01"
    message = decode(message_class("RequestHeader"), header + data, 1)
    assert message.client_id == "\ufffd" * 0x7FFF
    with pytest.raises(InvalidValue, match="a string of 98301 bytes"):
        encode(message, 1)


def bombs(golden: GoldenMessage, places: int) -> Iterator[bytes]:
    """The message with a giant length or count at so many places, spread evenly over it."""
    for at in range(0, len(golden.data), max(1, len(golden.data) // places)):
        for bomb in (LARGEST_INT32, LARGEST_VARINT):
            yield golden.data[:at] + bomb + golden.data[at + len(bomb) :]


def peak_bytes(golden: GoldenMessage, data: bytes) -> int:
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    refusal(lambda: decode(message_class(golden.message), data, golden.version))
    return tracemalloc.get_traced_memory()[1] - before


def assert_bombs_cost_nothing(corpus: list[GoldenMessage], places: int) -> None:
    for golden in corpus:
        decodes(golden.message, golden.version, golden.data)
    tracemalloc.start()
    try:
        for golden in corpus:
            for data in bombs(golden, places):
                # Python objects are larger than the bytes they come from, but not by more than this.
                assert peak_bytes(golden, data) < 100_000 + 200 * len(data), f"{golden} from {data.hex()}"
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_length_bomb_allocates_nothing() -> None:
    assert_bombs_cost_nothing(golden_messages()[::9], places=5)


@pytest.mark.slow
def test_length_bombs_everywhere_allocate_nothing() -> None:
    assert_bombs_cost_nothing(golden_messages(), places=8)


def test_the_json_form_of_whatever_decodes_is_read_back() -> None:
    rng = random.Random(5)
    corpus = golden_messages()
    for golden in corpus:
        data = mutated(rng, golden.data, corpus)
        try:
            message = decode(message_class(golden.message), data, golden.version)
            expected = encode(message, golden.version)
        except (DecodeError, InvalidValue):
            continue
        form = to_json(message, golden.version)
        back = from_json(message_class(golden.message), form, golden.version)
        assert to_json(back, golden.version) == form
        if "unknown_tagged_fields=" not in repr(message):
            assert encode(back, golden.version) == expected


def test_mutated_requests() -> None:
    """A whole request, its header included, fails with an error that a broker can answer or log."""
    rng = random.Random(9)
    corpus = golden_messages()
    bodies = {(golden.message, golden.version): golden.data for golden in corpus}
    for api in APIS:
        for version in range(api.first_version, api.last_version + 1):
            body = bodies.get((api.request_name, version))
            if body is None:
                continue
            header = api.key.to_bytes(2) + version.to_bytes(2) + b"\x00\x00\x00\x07"
            header += (b"", b"\x00\x02id", b"\x00\x02id\x00")[api.request_header_version(version)]
            assert decode_request(header + body).header.correlation_id == 7
            for _ in range(4):
                frame = mutated(rng, header + body, corpus)
                fault = refusal(lambda: decode_request(frame))  # noqa: B023
                assert fault is None or isinstance(fault, InvalidRequest | UnsupportedVersion)
                fault = refusal(lambda: decode_response(api, version, frame))  # noqa: B023
                assert fault is None or isinstance(fault, DecodeError)


@settings(derandomize=True, deadline=None, max_examples=cases(300, fast=60))
@given(st.binary(max_size=40))
def test_random_requests(frame: bytes) -> None:
    fault = refusal(lambda: decode_request(frame))
    assert fault is None or isinstance(fault, InvalidRequest | UnsupportedVersion)
    assert fault is None or str(fault)
