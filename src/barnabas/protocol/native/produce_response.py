"""Reads and writes ProduceResponse, versions 0-13.

Written by `make messages` from schemas/ProduceResponse.json.
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
from barnabas.protocol.message import ZERO_UUID, Buffer
from barnabas.protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_count,
    read_nullable_string,
    read_string,
    read_tag,
    read_tag_count,
    read_tags,
    read_uuid,
    write_count,
    write_nullable_string,
    write_string,
    write_tags,
    write_unknown_tags,
    write_uuid,
)


def read_batch_index_and_error_message(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[BatchIndexAndErrorMessage, i64]:
    flexible = version >= 9
    batch_index = read_i32_be(data, pos)
    pos += 4
    batch_index_error_message, pos = read_nullable_string(data, pos, flexible)
    item = BatchIndexAndErrorMessage(
        batch_index=batch_index, batch_index_error_message=batch_index_error_message
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_batch_index_and_error_message(
    out: BytesWriter, item: BatchIndexAndErrorMessage, version: i64
) -> None:
    flexible = version >= 9
    write_i32_be(out, item.batch_index)
    write_nullable_string(out, item.batch_index_error_message, flexible)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_leader_id_and_epoch(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[LeaderIdAndEpoch, i64]:
    leader_id = read_i32_be(data, pos)
    leader_epoch = read_i32_be(data, pos + 4)
    pos += 8
    item = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    if data[pos] == 0:
        pos += 1
    else:
        item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_leader_id_and_epoch(out: BytesWriter, item: LeaderIdAndEpoch, version: i64) -> None:
    write_i32_be(out, item.leader_id)
    write_i32_be(out, item.leader_epoch)
    write_unknown_tags(out, item.unknown_tagged_fields)


def read_partition_produce_response(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[PartitionProduceResponse, i64]:
    flexible = version >= 9
    index = read_i32_be(data, pos)
    error_code = read_i16_be(data, pos + 4)
    base_offset = read_i64_be(data, pos + 6)
    pos += 14
    log_append_time_ms: i64 = -1
    if version >= 2:
        log_append_time_ms = read_i64_be(data, pos)
        pos += 8
    log_start_offset: i64 = -1
    if version >= 5:
        log_start_offset = read_i64_be(data, pos)
        pos += 8
    record_errors: list[BatchIndexAndErrorMessage] = []
    error_message: str | None = None
    if version >= 8:
        count, pos = read_count(data, pos, flexible, budget)
        record_errors = []
        for _ in range(count):
            record_errors_item, pos = read_batch_index_and_error_message(data, pos, version, budget)
            record_errors.append(record_errors_item)
        error_message, pos = read_nullable_string(data, pos, flexible)
    item = PartitionProduceResponse(
        index=index,
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
        record_errors=record_errors,
        error_message=error_message,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            pos = read_partition_produce_response_tags(item, data, pos, version, budget)
    return item, pos


def read_partition_produce_response_tags(
    item: PartitionProduceResponse, data: bytes, pos: i64, version: i64, budget: Budget
) -> i64:
    unknown: list[tuple[int, bytes]] = []
    last: i64 = -1
    tag_count, pos = read_tag_count(data, pos, budget)
    for _ in range(tag_count):
        tag, pos, stop = read_tag(data, pos, last)
        last = tag
        if tag == 0:
            if version < 10:
                raise Malformed
            current_leader, pos = read_leader_id_and_epoch(data, pos, version, budget)
            item.current_leader = current_leader
        else:
            unknown.append((tag, data[pos:stop]))
            pos = stop
        if pos != stop:
            raise Malformed
    item.unknown_tagged_fields = tuple(unknown)
    return pos


def write_partition_produce_response(out: BytesWriter, item: PartitionProduceResponse, version: i64) -> None:
    flexible = version >= 9
    write_i32_be(out, item.index)
    write_i16_be(out, item.error_code)
    write_i64_be(out, item.base_offset)
    if version >= 2:
        write_i64_be(out, item.log_append_time_ms)
    if version >= 5:
        write_i64_be(out, item.log_start_offset)
    if version >= 8:
        record_errors = item.record_errors
        write_count(out, len(record_errors), flexible)
        for record_errors_item in record_errors:
            write_batch_index_and_error_message(out, record_errors_item, version)
        write_nullable_string(out, item.error_message, flexible)
    if version < 10 and (
        item.current_leader.leader_id != -1
        or item.current_leader.leader_epoch != -1
        or item.current_leader.unknown_tagged_fields
    ):
        raise Malformed
    if flexible:
        write_partition_produce_response_tags(out, item, version)
    elif item.unknown_tagged_fields:
        raise Malformed


def write_partition_produce_response_tags(
    out: BytesWriter, item: PartitionProduceResponse, version: i64
) -> None:
    known: list[tuple[int, bytes]] = []
    if version >= 10 and (
        item.current_leader.leader_id != -1
        or item.current_leader.leader_epoch != -1
        or item.current_leader.unknown_tagged_fields
    ):
        part = BytesWriter()
        write_leader_id_and_epoch(part, item.current_leader, version)
        known.append((0, part.getvalue()))
    write_tags(out, known, item.unknown_tagged_fields, 1)


def read_topic_produce_response(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[TopicProduceResponse, i64]:
    flexible = version >= 9
    name: str = ""
    if version <= 12:
        name, pos = read_string(data, pos, flexible)
    topic_id: bytes = ZERO_UUID
    if version == 13:
        topic_id = read_uuid(data, pos)
        pos += 16
    count, pos = read_count(data, pos, flexible, budget)
    partition_responses = []
    for _ in range(count):
        partition_responses_item, pos = read_partition_produce_response(data, pos, version, budget)
        partition_responses.append(partition_responses_item)
    item = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=partition_responses)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_topic_produce_response(out: BytesWriter, item: TopicProduceResponse, version: i64) -> None:
    flexible = version >= 9
    if version <= 12:
        write_string(out, item.name, flexible)
    if version == 13:
        write_uuid(out, item.topic_id)
    partition_responses = item.partition_responses
    write_count(out, len(partition_responses), flexible)
    for partition_responses_item in partition_responses:
        write_partition_produce_response(out, partition_responses_item, version)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_node_endpoint(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[NodeEndpoint, i64]:
    node_id = read_i32_be(data, pos)
    pos += 4
    host, pos = read_string(data, pos, True)
    port = read_i32_be(data, pos)
    pos += 4
    rack, pos = read_nullable_string(data, pos, True)
    item = NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
    if data[pos] == 0:
        pos += 1
    else:
        item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_node_endpoint(out: BytesWriter, item: NodeEndpoint, version: i64) -> None:
    write_i32_be(out, item.node_id)
    write_string(out, item.host, True)
    write_i32_be(out, item.port)
    write_nullable_string(out, item.rack, True)
    write_unknown_tags(out, item.unknown_tagged_fields)


def read_produce_response(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[ProduceResponse, i64]:
    flexible = version >= 9
    count, pos = read_count(data, pos, flexible, budget)
    responses = []
    for _ in range(count):
        responses_item, pos = read_topic_produce_response(data, pos, version, budget)
        responses.append(responses_item)
    throttle_time_ms: i32 = 0
    if version >= 1:
        throttle_time_ms = read_i32_be(data, pos)
        pos += 4
    item = ProduceResponse(responses=responses, throttle_time_ms=throttle_time_ms)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            pos = read_produce_response_tags(item, data, pos, version, budget)
    return item, pos


def read_produce_response_tags(
    item: ProduceResponse, data: bytes, pos: i64, version: i64, budget: Budget
) -> i64:
    unknown: list[tuple[int, bytes]] = []
    last: i64 = -1
    tag_count, pos = read_tag_count(data, pos, budget)
    for _ in range(tag_count):
        tag, pos, stop = read_tag(data, pos, last)
        last = tag
        if tag == 0:
            if version < 10:
                raise Malformed
            count, pos = read_count(data, pos, True, budget)
            node_endpoints = []
            for _ in range(count):
                node_endpoints_item, pos = read_node_endpoint(data, pos, version, budget)
                node_endpoints.append(node_endpoints_item)
            item.node_endpoints = node_endpoints
        else:
            unknown.append((tag, data[pos:stop]))
            pos = stop
        if pos != stop:
            raise Malformed
    item.unknown_tagged_fields = tuple(unknown)
    return pos


def write_produce_response(out: BytesWriter, item: ProduceResponse, version: i64) -> None:
    flexible = version >= 9
    responses = item.responses
    write_count(out, len(responses), flexible)
    for responses_item in responses:
        write_topic_produce_response(out, responses_item, version)
    if version >= 1:
        write_i32_be(out, item.throttle_time_ms)
    if version < 10 and item.node_endpoints:
        raise Malformed
    if flexible:
        write_produce_response_tags(out, item, version)
    elif item.unknown_tagged_fields:
        raise Malformed


def write_produce_response_tags(out: BytesWriter, item: ProduceResponse, version: i64) -> None:
    known: list[tuple[int, bytes]] = []
    if version >= 10 and item.node_endpoints:
        part = BytesWriter()
        node_endpoints = item.node_endpoints
        write_count(part, len(node_endpoints), True)
        for node_endpoints_item in node_endpoints:
            write_node_endpoint(part, node_endpoints_item, version)
        known.append((0, part.getvalue()))
    write_tags(out, known, item.unknown_tagged_fields, 1)


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[ProduceResponse, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_produce_response(data, position, version, Budget(elements_max))


def encode(version: i64, message: ProduceResponse, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_produce_response(out, message, version)
    return out.getvalue()
