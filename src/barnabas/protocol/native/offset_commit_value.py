"""Reads and writes OffsetCommitValue, versions 0-4.

Written by `make messages` from schemas/OffsetCommitValue.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
    read_i32_be,
    read_i64_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i32, i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import ZERO_UUID, Buffer
from barnabas.protocol.messages.offset_commit_value import OffsetCommitValue
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_string,
    read_tag,
    read_tag_count,
    read_uuid,
    write_string,
    write_tags,
    write_uuid,
)


def read_offset_commit_value(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[OffsetCommitValue, i64]:
    flexible = version == 4
    offset = read_i64_be(data, pos)
    pos += 8
    leader_epoch: i32 = -1
    if version >= 3:
        leader_epoch = read_i32_be(data, pos)
        pos += 4
    metadata, pos = read_string(data, pos, flexible)
    commit_timestamp = read_i64_be(data, pos)
    pos += 8
    expire_timestamp: i64 = -1
    if version == 1:
        expire_timestamp = read_i64_be(data, pos)
        pos += 8
    item = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        expire_timestamp=expire_timestamp,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            pos = read_offset_commit_value_tags(item, data, pos, version, budget)
    return item, pos


def read_offset_commit_value_tags(
    item: OffsetCommitValue, data: bytes, pos: i64, version: i64, budget: Budget
) -> i64:
    unknown: list[tuple[int, bytes]] = []
    last: i64 = -1
    tag_count, pos = read_tag_count(data, pos, budget)
    for _ in range(tag_count):
        tag, pos, stop = read_tag(data, pos, last)
        last = tag
        if tag == 0:
            topic_id = read_uuid(data, pos)
            pos += 16
            item.topic_id = topic_id
        else:
            unknown.append((tag, data[pos:stop]))
            pos = stop
        if pos != stop:
            raise Malformed
    item.unknown_tagged_fields = tuple(unknown)
    return pos


def write_offset_commit_value(out: BytesWriter, item: OffsetCommitValue, version: i64) -> None:
    flexible = version == 4
    write_i64_be(out, item.offset)
    if version >= 3:
        write_i32_be(out, item.leader_epoch)
    write_string(out, item.metadata, flexible)
    write_i64_be(out, item.commit_timestamp)
    if version == 1:
        write_i64_be(out, item.expire_timestamp)
    if flexible:
        write_offset_commit_value_tags(out, item, version)
    elif item.unknown_tagged_fields:
        raise Malformed


def write_offset_commit_value_tags(out: BytesWriter, item: OffsetCommitValue, version: i64) -> None:
    known: list[tuple[int, bytes]] = []
    if item.topic_id != ZERO_UUID:
        part = BytesWriter()
        write_uuid(part, item.topic_id)
        known.append((0, part.getvalue()))
    write_tags(out, known, item.unknown_tagged_fields, 1)


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[OffsetCommitValue, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_offset_commit_value(data, position, version, Budget(elements_max))


def encode(version: i64, message: OffsetCommitValue, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_offset_commit_value(out, message, version)
    return out.getvalue()
