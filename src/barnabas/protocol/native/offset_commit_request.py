"""Reads and writes OffsetCommitRequest, versions 0-10.

Written by `make messages` from schemas/OffsetCommitRequest.json.
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
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_count,
    read_nullable_string,
    read_string,
    read_tags,
    read_uuid,
    write_count,
    write_nullable_string,
    write_string,
    write_unknown_tags,
    write_uuid,
)


def read_offset_commit_request_partition(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[OffsetCommitRequestPartition, i64]:
    flexible = version >= 8
    partition_index = read_i32_be(data, pos)
    committed_offset = read_i64_be(data, pos + 4)
    pos += 12
    committed_leader_epoch: i32 = -1
    if version >= 6:
        committed_leader_epoch = read_i32_be(data, pos)
        pos += 4
    commit_timestamp: i64 = -1
    if version == 1:
        commit_timestamp = read_i64_be(data, pos)
        pos += 8
    committed_metadata, pos = read_nullable_string(data, pos, flexible)
    item = OffsetCommitRequestPartition(
        partition_index=partition_index,
        committed_offset=committed_offset,
        committed_leader_epoch=committed_leader_epoch,
        commit_timestamp=commit_timestamp,
        committed_metadata=committed_metadata,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_offset_commit_request_partition(
    out: BytesWriter, item: OffsetCommitRequestPartition, version: i64
) -> None:
    flexible = version >= 8
    write_i32_be(out, item.partition_index)
    write_i64_be(out, item.committed_offset)
    if version >= 6:
        write_i32_be(out, item.committed_leader_epoch)
    if version == 1:
        write_i64_be(out, item.commit_timestamp)
    elif item.commit_timestamp != -1:
        raise Malformed
    write_nullable_string(out, item.committed_metadata, flexible)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_offset_commit_request_topic(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[OffsetCommitRequestTopic, i64]:
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
        partitions_item, pos = read_offset_commit_request_partition(data, pos, version, budget)
        partitions.append(partitions_item)
    item = OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_offset_commit_request_topic(out: BytesWriter, item: OffsetCommitRequestTopic, version: i64) -> None:
    flexible = version >= 8
    if version <= 9:
        write_string(out, item.name, flexible)
    if version == 10:
        write_uuid(out, item.topic_id)
    partitions = item.partitions
    write_count(out, len(partitions), flexible)
    for partitions_item in partitions:
        write_offset_commit_request_partition(out, partitions_item, version)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_offset_commit_request(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[OffsetCommitRequest, i64]:
    flexible = version >= 8
    group_id, pos = read_string(data, pos, flexible)
    generation_id_or_member_epoch: i32 = -1
    member_id: str = ""
    if version >= 1:
        generation_id_or_member_epoch = read_i32_be(data, pos)
        pos += 4
        member_id, pos = read_string(data, pos, flexible)
    group_instance_id: str | None = None
    if version >= 7:
        group_instance_id, pos = read_nullable_string(data, pos, flexible)
    retention_time_ms: i64 = -1
    if 2 <= version <= 4:
        retention_time_ms = read_i64_be(data, pos)
        pos += 8
    count, pos = read_count(data, pos, flexible, budget)
    topics = []
    for _ in range(count):
        topics_item, pos = read_offset_commit_request_topic(data, pos, version, budget)
        topics.append(topics_item)
    item = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id_or_member_epoch,
        member_id=member_id,
        group_instance_id=group_instance_id,
        retention_time_ms=retention_time_ms,
        topics=topics,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_offset_commit_request(out: BytesWriter, item: OffsetCommitRequest, version: i64) -> None:
    flexible = version >= 8
    write_string(out, item.group_id, flexible)
    if version >= 1:
        write_i32_be(out, item.generation_id_or_member_epoch)
        write_string(out, item.member_id, flexible)
    if version >= 7:
        write_nullable_string(out, item.group_instance_id, flexible)
    elif item.group_instance_id is not None:
        raise Malformed
    if 2 <= version <= 4:
        write_i64_be(out, item.retention_time_ms)
    topics = item.topics
    write_count(out, len(topics), flexible)
    for topics_item in topics:
        write_offset_commit_request_topic(out, topics_item, version)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[OffsetCommitRequest, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_offset_commit_request(data, position, version, Budget(elements_max))


def encode(version: i64, message: OffsetCommitRequest, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_offset_commit_request(out, message, version)
    return out.getvalue()
