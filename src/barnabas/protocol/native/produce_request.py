"""Reads and writes ProduceRequest, versions 0-13.

Written by `make messages` from schemas/ProduceRequest.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
)
from mypy_extensions import i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import ZERO_UUID, Buffer
from barnabas.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    finished,
    read_count,
    read_nullable_string,
    read_records,
    read_string,
    read_tags,
    read_uuid,
    write_count,
    write_nullable_string,
    write_records,
    write_string,
    write_unknown_tags,
    write_uuid,
)


def read_partition_produce_data(
    data: bytes, pos: i64, version: i64, budget: Budget, view: memoryview
) -> tuple[PartitionProduceData, i64]:
    flexible = version >= 9
    index = read_i32_be(data, pos)
    pos += 4
    records, pos = read_records(data, pos, flexible, view)
    item = PartitionProduceData(index=index, records=records)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_partition_produce_data(
    out: BytesWriter, item: PartitionProduceData, version: i64, splices: Splices
) -> None:
    flexible = version >= 9
    write_i32_be(out, item.index)
    write_records(out, item.records, flexible, splices)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_topic_produce_data(
    data: bytes, pos: i64, version: i64, budget: Budget, view: memoryview
) -> tuple[TopicProduceData, i64]:
    flexible = version >= 9
    name: str = ""
    if version <= 12:
        name, pos = read_string(data, pos, flexible)
    topic_id: bytes = ZERO_UUID
    if version == 13:
        topic_id = read_uuid(data, pos)
        pos += 16
    count, pos = read_count(data, pos, flexible, budget)
    partition_data = []
    for _ in range(count):
        partition_data_item, pos = read_partition_produce_data(data, pos, version, budget, view)
        partition_data.append(partition_data_item)
    item = TopicProduceData(name=name, topic_id=topic_id, partition_data=partition_data)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_topic_produce_data(
    out: BytesWriter, item: TopicProduceData, version: i64, splices: Splices
) -> None:
    flexible = version >= 9
    if version <= 12:
        write_string(out, item.name, flexible)
    if version == 13:
        write_uuid(out, item.topic_id)
    partition_data = item.partition_data
    write_count(out, len(partition_data), flexible)
    for partition_data_item in partition_data:
        write_partition_produce_data(out, partition_data_item, version, splices)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_produce_request(
    data: bytes, pos: i64, version: i64, budget: Budget, view: memoryview
) -> tuple[ProduceRequest, i64]:
    flexible = version >= 9
    transactional_id: str | None = None
    if version >= 3:
        transactional_id, pos = read_nullable_string(data, pos, flexible)
    acks = read_i16_be(data, pos)
    timeout_ms = read_i32_be(data, pos + 2)
    pos += 6
    count, pos = read_count(data, pos, flexible, budget)
    topic_data = []
    for _ in range(count):
        topic_data_item, pos = read_topic_produce_data(data, pos, version, budget, view)
        topic_data.append(topic_data_item)
    item = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=topic_data
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_produce_request(out: BytesWriter, item: ProduceRequest, version: i64, splices: Splices) -> None:
    flexible = version >= 9
    if version >= 3:
        write_nullable_string(out, item.transactional_id, flexible)
    elif item.transactional_id is not None:
        raise Malformed
    write_i16_be(out, item.acks)
    write_i32_be(out, item.timeout_ms)
    topic_data = item.topic_data
    write_count(out, len(topic_data), flexible)
    for topic_data_item in topic_data:
        write_topic_produce_data(out, topic_data_item, version, splices)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[ProduceRequest, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_produce_request(data, position, version, Budget(elements_max), memoryview(source))


def encode(version: i64, message: ProduceRequest, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    splices: Splices = []
    write_produce_request(out, message, version, splices)
    return finished(out, splices, wanted)
