"""Reads and writes OffsetCommitResponse, versions 0-10.

Written by `make messages` from schemas/OffsetCommitResponse.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
)
from mypy_extensions import i32, i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import ZERO_UUID, Buffer
from barnabas.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_count,
    read_string,
    read_tags,
    read_uuid,
    write_count,
    write_string,
    write_unknown_tags,
    write_uuid,
)


def read_offset_commit_response_partition(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[OffsetCommitResponsePartition, i64]:
    flexible = version >= 8
    partition_index = read_i32_be(data, pos)
    error_code = read_i16_be(data, pos + 4)
    pos += 6
    item = OffsetCommitResponsePartition(partition_index=partition_index, error_code=error_code)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_offset_commit_response_partition(
    out: BytesWriter, item: OffsetCommitResponsePartition, version: i64
) -> None:
    flexible = version >= 8
    write_i32_be(out, item.partition_index)
    write_i16_be(out, item.error_code)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_offset_commit_response_topic(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[OffsetCommitResponseTopic, i64]:
    flexible = version >= 8
    name: str = ""
    if version <= 9:
        name, pos = read_string(data, pos, flexible)
    topic_id: bytes = ZERO_UUID
    if version == 10:
        topic_id = read_uuid(data, pos)
        pos += 16
    count, pos = read_count(data, pos, flexible, budget)
    partitions = []
    for _ in range(count):
        partitions_item, pos = read_offset_commit_response_partition(data, pos, version, budget)
        partitions.append(partitions_item)
    item = OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_offset_commit_response_topic(
    out: BytesWriter, item: OffsetCommitResponseTopic, version: i64
) -> None:
    flexible = version >= 8
    if version <= 9:
        write_string(out, item.name, flexible)
    if version == 10:
        write_uuid(out, item.topic_id)
    partitions = item.partitions
    write_count(out, len(partitions), flexible)
    for partitions_item in partitions:
        write_offset_commit_response_partition(out, partitions_item, version)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_offset_commit_response(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[OffsetCommitResponse, i64]:
    flexible = version >= 8
    throttle_time_ms: i32 = 0
    if version >= 3:
        throttle_time_ms = read_i32_be(data, pos)
        pos += 4
    count, pos = read_count(data, pos, flexible, budget)
    topics = []
    for _ in range(count):
        topics_item, pos = read_offset_commit_response_topic(data, pos, version, budget)
        topics.append(topics_item)
    item = OffsetCommitResponse(throttle_time_ms=throttle_time_ms, topics=topics)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_offset_commit_response(out: BytesWriter, item: OffsetCommitResponse, version: i64) -> None:
    flexible = version >= 8
    if version >= 3:
        write_i32_be(out, item.throttle_time_ms)
    topics = item.topics
    write_count(out, len(topics), flexible)
    for topics_item in topics:
        write_offset_commit_response_topic(out, topics_item, version)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(
    version: i64, source: Buffer, position: i64, elements_max: i64
) -> tuple[OffsetCommitResponse, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_offset_commit_response(data, position, version, Budget(elements_max))


def encode(version: i64, message: OffsetCommitResponse, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_offset_commit_response(out, message, version)
    return out.getvalue()
