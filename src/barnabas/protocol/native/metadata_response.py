"""Reads and writes MetadataResponse, versions 0-13.

Written by `make messages` from schemas/MetadataResponse.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
)
from mypy_extensions import i16, i32, i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import ZERO_UUID, Buffer
from barnabas.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_count,
    read_i32_list,
    read_nullable_string,
    read_string,
    read_tags,
    read_uuid,
    write_bool,
    write_count,
    write_i32_list,
    write_nullable_string,
    write_string,
    write_unknown_tags,
    write_uuid,
)


def read_metadata_response_broker(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[MetadataResponseBroker, i64]:
    flexible = version >= 9
    node_id = read_i32_be(data, pos)
    pos += 4
    host, pos = read_string(data, pos, flexible)
    port = read_i32_be(data, pos)
    pos += 4
    rack: str | None = None
    if version >= 1:
        rack, pos = read_nullable_string(data, pos, flexible)
    item = MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_metadata_response_broker(out: BytesWriter, item: MetadataResponseBroker, version: i64) -> None:
    flexible = version >= 9
    write_i32_be(out, item.node_id)
    write_string(out, item.host, flexible)
    write_i32_be(out, item.port)
    if version >= 1:
        write_nullable_string(out, item.rack, flexible)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_metadata_response_partition(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[MetadataResponsePartition, i64]:
    flexible = version >= 9
    error_code = read_i16_be(data, pos)
    partition_index = read_i32_be(data, pos + 2)
    leader_id = read_i32_be(data, pos + 6)
    pos += 10
    leader_epoch: i32 = -1
    if version >= 7:
        leader_epoch = read_i32_be(data, pos)
        pos += 4
    replica_nodes, pos = read_i32_list(data, pos, flexible, budget)
    isr_nodes, pos = read_i32_list(data, pos, flexible, budget)
    offline_replicas: list[int] = []
    if version >= 5:
        offline_replicas, pos = read_i32_list(data, pos, flexible, budget)
    item = MetadataResponsePartition(
        error_code=error_code,
        partition_index=partition_index,
        leader_id=leader_id,
        leader_epoch=leader_epoch,
        replica_nodes=replica_nodes,
        isr_nodes=isr_nodes,
        offline_replicas=offline_replicas,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_metadata_response_partition(
    out: BytesWriter, item: MetadataResponsePartition, version: i64
) -> None:
    flexible = version >= 9
    write_i16_be(out, item.error_code)
    write_i32_be(out, item.partition_index)
    write_i32_be(out, item.leader_id)
    if version >= 7:
        write_i32_be(out, item.leader_epoch)
    write_i32_list(out, item.replica_nodes, flexible)
    write_i32_list(out, item.isr_nodes, flexible)
    if version >= 5:
        write_i32_list(out, item.offline_replicas, flexible)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_metadata_response_topic(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[MetadataResponseTopic, i64]:
    flexible = version >= 9
    error_code = read_i16_be(data, pos)
    pos += 2
    name, pos = read_nullable_string(data, pos, flexible)
    if name is None and version < 12:
        raise Malformed
    topic_id: bytes = ZERO_UUID
    if version >= 10:
        topic_id = read_uuid(data, pos)
        pos += 16
    is_internal: bool = False
    if version >= 1:
        is_internal = data[pos] != 0
        pos += 1
    count, pos = read_count(data, pos, flexible, budget)
    partitions = []
    for _ in range(count):
        partitions_item, pos = read_metadata_response_partition(data, pos, version, budget)
        partitions.append(partitions_item)
    topic_authorized_operations: i32 = -2147483648
    if version >= 8:
        topic_authorized_operations = read_i32_be(data, pos)
        pos += 4
    item = MetadataResponseTopic(
        error_code=error_code,
        name=name,
        topic_id=topic_id,
        is_internal=is_internal,
        partitions=partitions,
        topic_authorized_operations=topic_authorized_operations,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_metadata_response_topic(out: BytesWriter, item: MetadataResponseTopic, version: i64) -> None:
    flexible = version >= 9
    write_i16_be(out, item.error_code)
    if item.name is None and version < 12:
        raise Malformed
    write_nullable_string(out, item.name, flexible)
    if version >= 10:
        write_uuid(out, item.topic_id)
    if version >= 1:
        write_bool(out, item.is_internal)
    partitions = item.partitions
    write_count(out, len(partitions), flexible)
    for partitions_item in partitions:
        write_metadata_response_partition(out, partitions_item, version)
    if version >= 8:
        write_i32_be(out, item.topic_authorized_operations)
    elif item.topic_authorized_operations != -2147483648:
        raise Malformed
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_metadata_response(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[MetadataResponse, i64]:
    flexible = version >= 9
    throttle_time_ms: i32 = 0
    if version >= 3:
        throttle_time_ms = read_i32_be(data, pos)
        pos += 4
    count, pos = read_count(data, pos, flexible, budget)
    brokers = []
    for _ in range(count):
        brokers_item, pos = read_metadata_response_broker(data, pos, version, budget)
        brokers.append(brokers_item)
    cluster_id: str | None = None
    if version >= 2:
        cluster_id, pos = read_nullable_string(data, pos, flexible)
    controller_id: i32 = -1
    if version >= 1:
        controller_id = read_i32_be(data, pos)
        pos += 4
    count, pos = read_count(data, pos, flexible, budget)
    topics = []
    for _ in range(count):
        topics_item, pos = read_metadata_response_topic(data, pos, version, budget)
        topics.append(topics_item)
    cluster_authorized_operations: i32 = -2147483648
    if 8 <= version <= 10:
        cluster_authorized_operations = read_i32_be(data, pos)
        pos += 4
    error_code: i16 = 0
    if version == 13:
        error_code = read_i16_be(data, pos)
        pos += 2
    item = MetadataResponse(
        throttle_time_ms=throttle_time_ms,
        brokers=brokers,
        cluster_id=cluster_id,
        controller_id=controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_authorized_operations,
        error_code=error_code,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_metadata_response(out: BytesWriter, item: MetadataResponse, version: i64) -> None:
    flexible = version >= 9
    if version >= 3:
        write_i32_be(out, item.throttle_time_ms)
    brokers = item.brokers
    write_count(out, len(brokers), flexible)
    for brokers_item in brokers:
        write_metadata_response_broker(out, brokers_item, version)
    if version >= 2:
        write_nullable_string(out, item.cluster_id, flexible)
    if version >= 1:
        write_i32_be(out, item.controller_id)
    topics = item.topics
    write_count(out, len(topics), flexible)
    for topics_item in topics:
        write_metadata_response_topic(out, topics_item, version)
    if 8 <= version <= 10:
        write_i32_be(out, item.cluster_authorized_operations)
    elif item.cluster_authorized_operations != -2147483648:
        raise Malformed
    if version == 13:
        write_i16_be(out, item.error_code)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[MetadataResponse, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_metadata_response(data, position, version, Budget(elements_max))


def encode(version: i64, message: MetadataResponse, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_metadata_response(out, message, version)
    return out.getvalue()
