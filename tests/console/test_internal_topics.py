from __future__ import annotations

import struct

import pytest

from barnabas.console.search.internal_topics import TYPES, decoded
from barnabas.console.search.render import render_bytes
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.offset_commit_key import OffsetCommitKey
from barnabas.protocol.messages.offset_commit_value import OffsetCommitValue
from barnabas.protocol.schema import load_schema


def test_the_types_are_those_of_the_schemas() -> None:
    for types in TYPES.values():
        for number, name in types.items():
            for part in ("Key", "Value"):
                assert load_schema(f"{name}{part}").api_key == number


def test_an_offset_commit_is_decoded() -> None:
    key = struct.pack(">h", 1) + encode(OffsetCommitKey(group="g", topic="t", partition=3), 0)
    value = struct.pack(">h", 3) + encode(OffsetCommitValue(offset=42, metadata="m", commit_timestamp=7), 3)
    found = decoded("__consumer_offsets", key, value)
    assert found is not None
    assert found["type"] == "OffsetCommit"
    assert found["key"] == {"group": "g", "topic": "t", "partition": 3}
    assert found["value"]["offset"] == 42
    assert decoded("__consumer_offsets", key, None) == {**found, "value": None}
    assert decoded("other", key, value) is None


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\1", b"\0\1\xff\xff\xff", b"\x7f\xff", b"\0\2\0\5ab"])
def test_bytes_that_are_no_message_are_not_decoded(key: bytes | None) -> None:
    assert decoded("__consumer_offsets", key, b"\0\1\2") is None


def test_texts_and_bytes() -> None:
    assert render_bytes(None) is None
    assert render_bytes(b"") == {"size": 0, "text": ""}
    assert render_bytes("é".encode()) == {"size": 2, "text": "é"}
    assert render_bytes(b"a\0b") == {"size": 3, "base64": "YQBi"}
    assert render_bytes(b"\xff") == {"size": 1, "base64": "/w=="}
    assert render_bytes("aéé".encode(), 4) == {"size": 5, "truncated": True, "text": "aé"}
