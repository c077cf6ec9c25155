"""Reads and writes OffsetCommitKey, versions 0.

Written by `make messages` from schemas/OffsetCommitKey.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
    read_i32_be,
    write_i32_be,
)
from mypy_extensions import i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.offset_commit_key import OffsetCommitKey
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_string,
    write_string,
)


def read_offset_commit_key(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[OffsetCommitKey, i64]:
    group, pos = read_string(data, pos, False)
    topic, pos = read_string(data, pos, False)
    partition = read_i32_be(data, pos)
    pos += 4
    item = OffsetCommitKey(group=group, topic=topic, partition=partition)
    return item, pos


def write_offset_commit_key(out: BytesWriter, item: OffsetCommitKey, version: i64) -> None:
    write_string(out, item.group, False)
    write_string(out, item.topic, False)
    write_i32_be(out, item.partition)
    if item.unknown_tagged_fields:
        raise Malformed


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[OffsetCommitKey, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_offset_commit_key(data, position, version, Budget(elements_max))


def encode(version: i64, message: OffsetCommitKey, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_offset_commit_key(out, message, version)
    return out.getvalue()
