"""Reads and writes ListOffsetsResponse, versions 0-11.

Written by `make messages` from schemas/ListOffsetsResponse.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i32, i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_count,
    read_i64_list,
    read_string,
    read_tags,
    write_count,
    write_i64_list,
    write_string,
    write_unknown_tags,
)


def read_list_offsets_partition_response(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[ListOffsetsPartitionResponse, i64]:
    flexible = version >= 6
    partition_index = read_i32_be(data, pos)
    error_code = read_i16_be(data, pos + 4)
    pos += 6
    old_style_offsets: list[int] = []
    if version == 0:
        old_style_offsets, pos = read_i64_list(data, pos, flexible, budget)
    timestamp: i64 = -1
    offset: i64 = -1
    if version >= 1:
        timestamp = read_i64_be(data, pos)
        offset = read_i64_be(data, pos + 8)
        pos += 16
    leader_epoch: i32 = -1
    if version >= 4:
        leader_epoch = read_i32_be(data, pos)
        pos += 4
    item = ListOffsetsPartitionResponse(
        partition_index=partition_index,
        error_code=error_code,
        old_style_offsets=old_style_offsets,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=leader_epoch,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_list_offsets_partition_response(
    out: BytesWriter, item: ListOffsetsPartitionResponse, version: i64
) -> None:
    flexible = version >= 6
    write_i32_be(out, item.partition_index)
    write_i16_be(out, item.error_code)
    if version == 0:
        write_i64_list(out, item.old_style_offsets, flexible)
    elif item.old_style_offsets:
        raise Malformed
    if version >= 1:
        write_i64_be(out, item.timestamp)
        write_i64_be(out, item.offset)
    elif item.timestamp != -1 or item.offset != -1:
        raise Malformed
    if version >= 4:
        write_i32_be(out, item.leader_epoch)
    elif item.leader_epoch != -1:
        raise Malformed
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_list_offsets_topic_response(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[ListOffsetsTopicResponse, i64]:
    flexible = version >= 6
    name, pos = read_string(data, pos, flexible)
    count, pos = read_count(data, pos, flexible, budget)
    partitions = []
    for _ in range(count):
        partitions_item, pos = read_list_offsets_partition_response(data, pos, version, budget)
        partitions.append(partitions_item)
    item = ListOffsetsTopicResponse(name=name, partitions=partitions)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_list_offsets_topic_response(out: BytesWriter, item: ListOffsetsTopicResponse, version: i64) -> None:
    flexible = version >= 6
    write_string(out, item.name, flexible)
    partitions = item.partitions
    write_count(out, len(partitions), flexible)
    for partitions_item in partitions:
        write_list_offsets_partition_response(out, partitions_item, version)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_list_offsets_response(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[ListOffsetsResponse, i64]:
    flexible = version >= 6
    throttle_time_ms: i32 = 0
    if version >= 2:
        throttle_time_ms = read_i32_be(data, pos)
        pos += 4
    count, pos = read_count(data, pos, flexible, budget)
    topics = []
    for _ in range(count):
        topics_item, pos = read_list_offsets_topic_response(data, pos, version, budget)
        topics.append(topics_item)
    item = ListOffsetsResponse(throttle_time_ms=throttle_time_ms, topics=topics)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_list_offsets_response(out: BytesWriter, item: ListOffsetsResponse, version: i64) -> None:
    flexible = version >= 6
    if version >= 2:
        write_i32_be(out, item.throttle_time_ms)
    topics = item.topics
    write_count(out, len(topics), flexible)
    for topics_item in topics:
        write_list_offsets_topic_response(out, topics_item, version)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[ListOffsetsResponse, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_list_offsets_response(data, position, version, Budget(elements_max))


def encode(version: i64, message: ListOffsetsResponse, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_list_offsets_response(out, message, version)
    return out.getvalue()
