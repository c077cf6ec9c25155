"""Reads and writes ListOffsetsRequest, versions 0-11.

Written by `make messages` from schemas/ListOffsetsRequest.json.
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
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_count,
    read_i8,
    read_string,
    read_tags,
    write_count,
    write_i8,
    write_string,
    write_unknown_tags,
)


def read_list_offsets_partition(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[ListOffsetsPartition, i64]:
    flexible = version >= 6
    partition_index = read_i32_be(data, pos)
    pos += 4
    current_leader_epoch: i32 = -1
    if version >= 4:
        current_leader_epoch = read_i32_be(data, pos)
        pos += 4
    timestamp = read_i64_be(data, pos)
    pos += 8
    max_num_offsets: i32 = 1
    if version == 0:
        max_num_offsets = read_i32_be(data, pos)
        pos += 4
    item = ListOffsetsPartition(
        partition_index=partition_index,
        current_leader_epoch=current_leader_epoch,
        timestamp=timestamp,
        max_num_offsets=max_num_offsets,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_list_offsets_partition(out: BytesWriter, item: ListOffsetsPartition, version: i64) -> None:
    flexible = version >= 6
    write_i32_be(out, item.partition_index)
    if version >= 4:
        write_i32_be(out, item.current_leader_epoch)
    write_i64_be(out, item.timestamp)
    if version == 0:
        write_i32_be(out, item.max_num_offsets)
    elif item.max_num_offsets != 1:
        raise Malformed
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_list_offsets_topic(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[ListOffsetsTopic, i64]:
    flexible = version >= 6
    name, pos = read_string(data, pos, flexible)
    count, pos = read_count(data, pos, flexible, budget)
    partitions = []
    for _ in range(count):
        partitions_item, pos = read_list_offsets_partition(data, pos, version, budget)
        partitions.append(partitions_item)
    item = ListOffsetsTopic(name=name, partitions=partitions)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_list_offsets_topic(out: BytesWriter, item: ListOffsetsTopic, version: i64) -> None:
    flexible = version >= 6
    write_string(out, item.name, flexible)
    partitions = item.partitions
    write_count(out, len(partitions), flexible)
    for partitions_item in partitions:
        write_list_offsets_partition(out, partitions_item, version)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_list_offsets_request(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[ListOffsetsRequest, i64]:
    flexible = version >= 6
    replica_id = read_i32_be(data, pos)
    pos += 4
    isolation_level: i64 = 0
    if version >= 2:
        isolation_level = read_i8(data, pos)
        pos += 1
    count, pos = read_count(data, pos, flexible, budget)
    topics = []
    for _ in range(count):
        topics_item, pos = read_list_offsets_topic(data, pos, version, budget)
        topics.append(topics_item)
    timeout_ms: i32 = 0
    if version >= 10:
        timeout_ms = read_i32_be(data, pos)
        pos += 4
    item = ListOffsetsRequest(
        replica_id=replica_id, isolation_level=isolation_level, topics=topics, timeout_ms=timeout_ms
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_list_offsets_request(out: BytesWriter, item: ListOffsetsRequest, version: i64) -> None:
    flexible = version >= 6
    write_i32_be(out, item.replica_id)
    if version >= 2:
        write_i8(out, item.isolation_level)
    elif item.isolation_level != 0:
        raise Malformed
    topics = item.topics
    write_count(out, len(topics), flexible)
    for topics_item in topics:
        write_list_offsets_topic(out, topics_item, version)
    if version >= 10:
        write_i32_be(out, item.timeout_ms)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[ListOffsetsRequest, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_list_offsets_request(data, position, version, Budget(elements_max))


def encode(version: i64, message: ListOffsetsRequest, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_list_offsets_request(out, message, version)
    return out.getvalue()
