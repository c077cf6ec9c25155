"""Random messages of every version, read and written by Kafka's own classes too.

The golden corpus has two instances of each version; here are as many as one likes, with every edge of every type.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.offline.wire_check import compare
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.json_form import from_json, to_json
from barnabas.protocol.message import Message, TaggedFields
from barnabas.protocol.messages import message_class
from barnabas.protocol.schema import Field, StructSchema, load_schema, message_names
from tests.peers.kafka_peer import V3, V4, PeerUnavailable, run_tool

ORACLE = Path(__file__).parents[1] / "peers" / "MessageOracle.java"
INSTANCES = 5

EDGES: dict[str, list[Any]] = {
    "bool": [False, True],
    "int8": [-(2**7), -1, 0, 1, 2**7 - 1],
    "int16": [-(2**15), -1, 0, 1, 2**7, 2**15 - 1],
    "uint16": [0, 1, 2**15, 2**16 - 1],
    "int32": [-(2**31), -1, 0, 1, 2**15, 2**31 - 1],
    "uint32": [0, 1, 2**31, 2**32 - 1],
    "int64": [-(2**63), -1, 0, 1, 2**31, 2**63 - 1],
    "float64": [
        0.0,
        -0.0,
        1.0,
        -1.5,
        5e-324,
        1.7976931348623157e308,
        1e22,
        float("inf"),
        float("-inf"),
        float("nan"),
    ],
    "uuid": [bytes(16), bytes(15) + b"\x01", b"\xff" * 16, bytes(range(16))],
    "string": ["", "a", "topic-1", "größe", "日本語", "😀", "\0", "x" * 126, "x" * 127, "y" * 128, "z" * 300],
    "bytes": [b"", b"\0", b"\xff" * 126, b"\x80" * 127, bytes(range(256))],
    # Kafka's JSON form of records has no content; the golden corpus has records in it.
    "records": [b""],
}
LENGTHS = [0, 1, 1, 2, 3]
LONG_LENGTH = 130


class Maker:
    """Makes messages that one version can hold."""

    def __init__(self, rng: random.Random, name: str, version: int) -> None:
        self._rng = rng
        self._schema = load_schema(name)
        self._version = version
        self._module = sys.modules[message_class(name).__module__]

    def message(self) -> Any:
        return self._struct(self._schema)

    def _struct(self, schema: StructSchema) -> Any:
        values = {
            field.python_name: self._value(field)
            for field in schema.fields
            if field.is_present(self._version)
            and not (field.is_tagged(self._version) and self._rng.random() < 0.4)
        }
        if self._schema.is_flexible(self._version) and self._rng.random() < 0.2:
            values["unknown_tagged_fields"] = self._unknown_tags(schema)
        return getattr(self._module, schema.name)(**values)

    def _unknown_tags(self, schema: StructSchema) -> TaggedFields:
        known = {field.tag for field in schema.fields}
        tags = {self._rng.choice((30, 127, 128, 20_000, 2**31 - 2)) for _ in range(2)} - known
        return tuple((tag, self._rng.choice(EDGES["bytes"])) for tag in sorted(tags))

    def _value(self, field: Field) -> Any:
        if field.is_nullable(self._version) and self._rng.random() < 0.2:
            return None
        if not field.is_array:
            return self._element(field)
        length = self._rng.choice(LENGTHS)
        if field.struct is None and self._rng.random() < 0.1:
            length = LONG_LENGTH
        return [self._element(field) for _ in range(length)]

    def _element(self, field: Field) -> Any:
        return self._struct(field.struct) if field.struct else self._rng.choice(EDGES[field.kind])


def random_messages(seed: int) -> list[tuple[str, int, Any]]:
    rng = random.Random(seed)
    return [
        (name, version, Maker(rng, name, version).message())
        for name in message_names()
        for version in load_schema(name).versions
        for _ in range(INSTANCES)
    ]


def without_unknown_tags(name: str, message: Message, version: int) -> bytes:
    return encode(from_json(message_class(name), to_json(message, version), version), version)


def test_random_messages_survive() -> None:
    for name, version, message in random_messages(seed=1)[::7]:
        data = encode(message, version)
        again = decode(message_class(name), data, version)
        assert encode(again, version) == data, f"{name} v{version}"
        assert to_json(again, version) == to_json(message, version), f"{name} v{version}"


@pytest.mark.slow
@pytest.mark.peer
def test_kafkas_own_classes_agree() -> None:
    if shutil.which("javac") is None:
        pytest.skip(
            "javac is not on the PATH; a Java 17 development kit is needed to ask Kafka's own classes"
        )
    messages = random_messages(seed=2)
    encoded = [encode(message, version) for _, version, message in messages]
    lines = [
        f"{name} {version} {data.hex()}" for (name, version, _), data in zip(messages, encoded, strict=True)
    ]
    try:
        answers = [
            run_tool(release, str(ORACLE), stdin="\n".join(lines) + "\n").splitlines() for release in (V4, V3)
        ]
    except PeerUnavailable as unavailable:
        pytest.skip(str(unavailable))
    faults = [
        f"{name} v{version} from {data.hex()}: {fault}"
        for (name, version, message), data, newer, older in zip(messages, encoded, *answers, strict=True)
        # Where both releases have a version and differ on it, the newer one is right.
        for fault in disagreements(name, version, message, data, older if newer == "unknown" else newer)
    ]
    assert not faults, f"{len(faults)} faults, the first of them:\n" + "\n".join(faults[:5])


def disagreements(name: str, version: int, message: Any, data: bytes, answer: str) -> Iterator[str]:
    if answer == "unknown" or answer.startswith("error"):
        yield answer
        return
    form, again, from_form, left_over = answer.split("\t")
    for difference in compare(json.loads(form), to_json(message, version)):
        yield f"{difference.field}: {difference.what}"
    if again != data.hex():
        yield f"Kafka encodes it to {again}"
    if from_form != without_unknown_tags(name, message, version).hex():
        yield f"Kafka encodes {form} to {from_form}"
    if left_over != "0":
        yield f"Kafka leaves {left_over} bytes"
