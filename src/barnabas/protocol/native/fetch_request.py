"""Reads and writes FetchRequest, versions 0-18.

Written by `make messages` from schemas/FetchRequest.json.
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
from barnabas.protocol.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_count,
    read_i8,
    read_i32_list,
    read_nullable_string,
    read_string,
    read_tag,
    read_tag_count,
    read_tags,
    read_uuid,
    write_count,
    write_i8,
    write_i32_list,
    write_nullable_string,
    write_string,
    write_tags,
    write_unknown_tags,
    write_uuid,
)


def read_replica_state(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[ReplicaState, i64]:
    replica_id = read_i32_be(data, pos)
    replica_epoch = read_i64_be(data, pos + 4)
    pos += 12
    item = ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch)
    if data[pos] == 0:
        pos += 1
    else:
        item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_replica_state(out: BytesWriter, item: ReplicaState, version: i64) -> None:
    write_i32_be(out, item.replica_id)
    write_i64_be(out, item.replica_epoch)
    write_unknown_tags(out, item.unknown_tagged_fields)


def read_fetch_partition(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[FetchPartition, i64]:
    flexible = version >= 12
    partition = read_i32_be(data, pos)
    pos += 4
    current_leader_epoch: i32 = -1
    if version >= 9:
        current_leader_epoch = read_i32_be(data, pos)
        pos += 4
    fetch_offset = read_i64_be(data, pos)
    pos += 8
    last_fetched_epoch: i32 = -1
    if version >= 12:
        last_fetched_epoch = read_i32_be(data, pos)
        pos += 4
    log_start_offset: i64 = -1
    if version >= 5:
        log_start_offset = read_i64_be(data, pos)
        pos += 8
    partition_max_bytes = read_i32_be(data, pos)
    pos += 4
    item = FetchPartition(
        partition=partition,
        current_leader_epoch=current_leader_epoch,
        fetch_offset=fetch_offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=log_start_offset,
        partition_max_bytes=partition_max_bytes,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            pos = read_fetch_partition_tags(item, data, pos, version, budget)
    return item, pos


def read_fetch_partition_tags(
    item: FetchPartition, data: bytes, pos: i64, version: i64, budget: Budget
) -> i64:
    unknown: list[tuple[int, bytes]] = []
    last: i64 = -1
    tag_count, pos = read_tag_count(data, pos, budget)
    for _ in range(tag_count):
        tag, pos, stop = read_tag(data, pos, last)
        last = tag
        if tag == 0:
            if version < 17:
                raise Malformed
            replica_directory_id = read_uuid(data, pos)
            pos += 16
            item.replica_directory_id = replica_directory_id
        elif tag == 1:
            if version < 18:
                raise Malformed
            high_watermark = read_i64_be(data, pos)
            pos += 8
            item.high_watermark = high_watermark
        else:
            unknown.append((tag, data[pos:stop]))
            pos = stop
        if pos != stop:
            raise Malformed
    item.unknown_tagged_fields = tuple(unknown)
    return pos


def write_fetch_partition(out: BytesWriter, item: FetchPartition, version: i64) -> None:
    flexible = version >= 12
    write_i32_be(out, item.partition)
    if version >= 9:
        write_i32_be(out, item.current_leader_epoch)
    write_i64_be(out, item.fetch_offset)
    if version >= 12:
        write_i32_be(out, item.last_fetched_epoch)
    elif item.last_fetched_epoch != -1:
        raise Malformed
    if version >= 5:
        write_i64_be(out, item.log_start_offset)
    write_i32_be(out, item.partition_max_bytes)
    if flexible:
        write_fetch_partition_tags(out, item, version)
    elif item.unknown_tagged_fields:
        raise Malformed


def write_fetch_partition_tags(out: BytesWriter, item: FetchPartition, version: i64) -> None:
    known: list[tuple[int, bytes]] = []
    if version >= 17 and item.replica_directory_id != ZERO_UUID:
        part = BytesWriter()
        write_uuid(part, item.replica_directory_id)
        known.append((0, part.getvalue()))
    if version == 18 and item.high_watermark != 9223372036854775807:
        part = BytesWriter()
        write_i64_be(part, item.high_watermark)
        known.append((1, part.getvalue()))
    write_tags(out, known, item.unknown_tagged_fields, 2)


def read_fetch_topic(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[FetchTopic, i64]:
    flexible = version >= 12
    topic: str = ""
    if version <= 12:
        topic, pos = read_string(data, pos, flexible)
    topic_id: bytes = ZERO_UUID
    if version >= 13:
        topic_id = read_uuid(data, pos)
        pos += 16
    count, pos = read_count(data, pos, flexible, budget)
    partitions = []
    for _ in range(count):
        partitions_item, pos = read_fetch_partition(data, pos, version, budget)
        partitions.append(partitions_item)
    item = FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_fetch_topic(out: BytesWriter, item: FetchTopic, version: i64) -> None:
    flexible = version >= 12
    if version <= 12:
        write_string(out, item.topic, flexible)
    if version >= 13:
        write_uuid(out, item.topic_id)
    partitions = item.partitions
    write_count(out, len(partitions), flexible)
    for partitions_item in partitions:
        write_fetch_partition(out, partitions_item, version)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_forgotten_topic(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[ForgottenTopic, i64]:
    flexible = version >= 12
    topic: str = ""
    if version <= 12:
        topic, pos = read_string(data, pos, flexible)
    topic_id: bytes = ZERO_UUID
    if version >= 13:
        topic_id = read_uuid(data, pos)
        pos += 16
    partitions, pos = read_i32_list(data, pos, flexible, budget)
    item = ForgottenTopic(topic=topic, topic_id=topic_id, partitions=partitions)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_forgotten_topic(out: BytesWriter, item: ForgottenTopic, version: i64) -> None:
    flexible = version >= 12
    if version <= 12:
        write_string(out, item.topic, flexible)
    if version >= 13:
        write_uuid(out, item.topic_id)
    write_i32_list(out, item.partitions, flexible)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_fetch_request(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[FetchRequest, i64]:
    flexible = version >= 12
    replica_id: i32 = -1
    if version <= 14:
        replica_id = read_i32_be(data, pos)
        pos += 4
    max_wait_ms = read_i32_be(data, pos)
    min_bytes = read_i32_be(data, pos + 4)
    pos += 8
    max_bytes: i32 = 2147483647
    if version >= 3:
        max_bytes = read_i32_be(data, pos)
        pos += 4
    isolation_level: i64 = 0
    if version >= 4:
        isolation_level = read_i8(data, pos)
        pos += 1
    session_id: i32 = 0
    session_epoch: i32 = -1
    if version >= 7:
        session_id = read_i32_be(data, pos)
        session_epoch = read_i32_be(data, pos + 4)
        pos += 8
    count, pos = read_count(data, pos, flexible, budget)
    topics = []
    for _ in range(count):
        topics_item, pos = read_fetch_topic(data, pos, version, budget)
        topics.append(topics_item)
    forgotten_topics_data: list[ForgottenTopic] = []
    if version >= 7:
        count, pos = read_count(data, pos, flexible, budget)
        forgotten_topics_data = []
        for _ in range(count):
            forgotten_topics_data_item, pos = read_forgotten_topic(data, pos, version, budget)
            forgotten_topics_data.append(forgotten_topics_data_item)
    rack_id: str = ""
    if version >= 11:
        rack_id, pos = read_string(data, pos, flexible)
    item = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten_topics_data=forgotten_topics_data,
        rack_id=rack_id,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            pos = read_fetch_request_tags(item, data, pos, version, budget)
    return item, pos


def read_fetch_request_tags(item: FetchRequest, data: bytes, pos: i64, version: i64, budget: Budget) -> i64:
    unknown: list[tuple[int, bytes]] = []
    last: i64 = -1
    tag_count, pos = read_tag_count(data, pos, budget)
    for _ in range(tag_count):
        tag, pos, stop = read_tag(data, pos, last)
        last = tag
        if tag == 0:
            cluster_id, pos = read_nullable_string(data, pos, True)
            item.cluster_id = cluster_id
        elif tag == 1:
            if version < 15:
                raise Malformed
            replica_state, pos = read_replica_state(data, pos, version, budget)
            item.replica_state = replica_state
        else:
            unknown.append((tag, data[pos:stop]))
            pos = stop
        if pos != stop:
            raise Malformed
    item.unknown_tagged_fields = tuple(unknown)
    return pos


def write_fetch_request(out: BytesWriter, item: FetchRequest, version: i64) -> None:
    flexible = version >= 12
    if version <= 14:
        write_i32_be(out, item.replica_id)
    elif item.replica_id != -1:
        raise Malformed
    write_i32_be(out, item.max_wait_ms)
    write_i32_be(out, item.min_bytes)
    if version >= 3:
        write_i32_be(out, item.max_bytes)
    if version >= 4:
        write_i8(out, item.isolation_level)
    if version >= 7:
        write_i32_be(out, item.session_id)
        write_i32_be(out, item.session_epoch)
    topics = item.topics
    write_count(out, len(topics), flexible)
    for topics_item in topics:
        write_fetch_topic(out, topics_item, version)
    if version >= 7:
        forgotten_topics_data = item.forgotten_topics_data
        write_count(out, len(forgotten_topics_data), flexible)
        for forgotten_topics_data_item in forgotten_topics_data:
            write_forgotten_topic(out, forgotten_topics_data_item, version)
    elif item.forgotten_topics_data:
        raise Malformed
    if version >= 11:
        write_string(out, item.rack_id, flexible)
    if version < 15 and (
        item.replica_state.replica_id != -1
        or item.replica_state.replica_epoch != -1
        or item.replica_state.unknown_tagged_fields
    ):
        raise Malformed
    if flexible:
        write_fetch_request_tags(out, item, version)
    elif item.unknown_tagged_fields:
        raise Malformed


def write_fetch_request_tags(out: BytesWriter, item: FetchRequest, version: i64) -> None:
    known: list[tuple[int, bytes]] = []
    if item.cluster_id is not None:
        part = BytesWriter()
        write_nullable_string(part, item.cluster_id, True)
        known.append((0, part.getvalue()))
    if version >= 15 and (
        item.replica_state.replica_id != -1
        or item.replica_state.replica_epoch != -1
        or item.replica_state.unknown_tagged_fields
    ):
        part = BytesWriter()
        write_replica_state(part, item.replica_state, version)
        known.append((1, part.getvalue()))
    write_tags(out, known, item.unknown_tagged_fields, 2)


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[FetchRequest, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_fetch_request(data, position, version, Budget(elements_max))


def encode(version: i64, message: FetchRequest, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_fetch_request(out, message, version)
    return out.getvalue()
