"""Reads and writes FetchResponse, versions 0-18.

Written by `make messages` from schemas/FetchResponse.json.
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
from mypy_extensions import i16, i32, i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import ZERO_UUID, Buffer
from barnabas.protocol.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    finished,
    read_count,
    read_nullable_count,
    read_nullable_string,
    read_records,
    read_string,
    read_tag,
    read_tag_count,
    read_tags,
    read_uuid,
    write_count,
    write_nullable_string,
    write_records,
    write_string,
    write_tags,
    write_unknown_tags,
    write_uuid,
)


def read_epoch_end_offset(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[EpochEndOffset, i64]:
    epoch = read_i32_be(data, pos)
    end_offset = read_i64_be(data, pos + 4)
    pos += 12
    item = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if data[pos] == 0:
        pos += 1
    else:
        item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_epoch_end_offset(out: BytesWriter, item: EpochEndOffset, version: i64) -> None:
    write_i32_be(out, item.epoch)
    write_i64_be(out, item.end_offset)
    write_unknown_tags(out, item.unknown_tagged_fields)


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


def read_snapshot_id(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[SnapshotId, i64]:
    end_offset = read_i64_be(data, pos)
    epoch = read_i32_be(data, pos + 8)
    pos += 12
    item = SnapshotId(end_offset=end_offset, epoch=epoch)
    if data[pos] == 0:
        pos += 1
    else:
        item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_snapshot_id(out: BytesWriter, item: SnapshotId, version: i64) -> None:
    write_i64_be(out, item.end_offset)
    write_i32_be(out, item.epoch)
    write_unknown_tags(out, item.unknown_tagged_fields)


def read_aborted_transaction(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[AbortedTransaction, i64]:
    flexible = version >= 12
    producer_id = read_i64_be(data, pos)
    first_offset = read_i64_be(data, pos + 8)
    pos += 16
    item = AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_aborted_transaction(out: BytesWriter, item: AbortedTransaction, version: i64) -> None:
    flexible = version >= 12
    write_i64_be(out, item.producer_id)
    write_i64_be(out, item.first_offset)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_partition_data(
    data: bytes, pos: i64, version: i64, budget: Budget, view: memoryview
) -> tuple[PartitionData, i64]:
    flexible = version >= 12
    partition_index = read_i32_be(data, pos)
    error_code = read_i16_be(data, pos + 4)
    high_watermark = read_i64_be(data, pos + 6)
    pos += 14
    last_stable_offset: i64 = -1
    if version >= 4:
        last_stable_offset = read_i64_be(data, pos)
        pos += 8
    log_start_offset: i64 = -1
    if version >= 5:
        log_start_offset = read_i64_be(data, pos)
        pos += 8
    aborted_transactions: list[AbortedTransaction] | None = []
    if version >= 4:
        count, pos = read_nullable_count(data, pos, flexible, budget)
        if count < 0:
            aborted_transactions = None
        else:
            aborted_transactions = []
            for _ in range(count):
                aborted_transactions_item, pos = read_aborted_transaction(data, pos, version, budget)
                aborted_transactions.append(aborted_transactions_item)
    preferred_read_replica: i32 = -1
    if version >= 11:
        preferred_read_replica = read_i32_be(data, pos)
        pos += 4
    records, pos = read_records(data, pos, flexible, view)
    item = PartitionData(
        partition_index=partition_index,
        error_code=error_code,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted_transactions=aborted_transactions,
        preferred_read_replica=preferred_read_replica,
        records=records,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            pos = read_partition_data_tags(item, data, pos, version, budget)
    return item, pos


def read_partition_data_tags(item: PartitionData, data: bytes, pos: i64, version: i64, budget: Budget) -> i64:
    unknown: list[tuple[int, bytes]] = []
    last: i64 = -1
    tag_count, pos = read_tag_count(data, pos, budget)
    for _ in range(tag_count):
        tag, pos, stop = read_tag(data, pos, last)
        last = tag
        if tag == 0:
            diverging_epoch, pos = read_epoch_end_offset(data, pos, version, budget)
            item.diverging_epoch = diverging_epoch
        elif tag == 1:
            current_leader, pos = read_leader_id_and_epoch(data, pos, version, budget)
            item.current_leader = current_leader
        elif tag == 2:
            snapshot_id, pos = read_snapshot_id(data, pos, version, budget)
            item.snapshot_id = snapshot_id
        else:
            unknown.append((tag, data[pos:stop]))
            pos = stop
        if pos != stop:
            raise Malformed
    item.unknown_tagged_fields = tuple(unknown)
    return pos


def write_partition_data(out: BytesWriter, item: PartitionData, version: i64, splices: Splices) -> None:
    flexible = version >= 12
    write_i32_be(out, item.partition_index)
    write_i16_be(out, item.error_code)
    write_i64_be(out, item.high_watermark)
    if version >= 4:
        write_i64_be(out, item.last_stable_offset)
    if version >= 5:
        write_i64_be(out, item.log_start_offset)
    if version >= 4:
        aborted_transactions = item.aborted_transactions
        if aborted_transactions is None:
            write_count(out, -1, flexible)
        else:
            write_count(out, len(aborted_transactions), flexible)
            for aborted_transactions_item in aborted_transactions:
                write_aborted_transaction(out, aborted_transactions_item, version)
    if version >= 11:
        write_i32_be(out, item.preferred_read_replica)
    elif item.preferred_read_replica != -1:
        raise Malformed
    write_records(out, item.records, flexible, splices)
    if version < 12 and (
        item.diverging_epoch.epoch != -1
        or item.diverging_epoch.end_offset != -1
        or item.diverging_epoch.unknown_tagged_fields
    ):
        raise Malformed
    if version < 12 and (
        item.current_leader.leader_id != -1
        or item.current_leader.leader_epoch != -1
        or item.current_leader.unknown_tagged_fields
    ):
        raise Malformed
    if version < 12 and (
        item.snapshot_id.end_offset != -1
        or item.snapshot_id.epoch != -1
        or item.snapshot_id.unknown_tagged_fields
    ):
        raise Malformed
    if flexible:
        write_partition_data_tags(out, item, version)
    elif item.unknown_tagged_fields:
        raise Malformed


def write_partition_data_tags(out: BytesWriter, item: PartitionData, version: i64) -> None:
    known: list[tuple[int, bytes]] = []
    if (
        item.diverging_epoch.epoch != -1
        or item.diverging_epoch.end_offset != -1
        or item.diverging_epoch.unknown_tagged_fields
    ):
        part = BytesWriter()
        write_epoch_end_offset(part, item.diverging_epoch, version)
        known.append((0, part.getvalue()))
    if (
        item.current_leader.leader_id != -1
        or item.current_leader.leader_epoch != -1
        or item.current_leader.unknown_tagged_fields
    ):
        part = BytesWriter()
        write_leader_id_and_epoch(part, item.current_leader, version)
        known.append((1, part.getvalue()))
    if (
        item.snapshot_id.end_offset != -1
        or item.snapshot_id.epoch != -1
        or item.snapshot_id.unknown_tagged_fields
    ):
        part = BytesWriter()
        write_snapshot_id(part, item.snapshot_id, version)
        known.append((2, part.getvalue()))
    write_tags(out, known, item.unknown_tagged_fields, 3)


def read_fetchable_topic_response(
    data: bytes, pos: i64, version: i64, budget: Budget, view: memoryview
) -> tuple[FetchableTopicResponse, i64]:
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
        partitions_item, pos = read_partition_data(data, pos, version, budget, view)
        partitions.append(partitions_item)
    item = FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=partitions)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_fetchable_topic_response(
    out: BytesWriter, item: FetchableTopicResponse, version: i64, splices: Splices
) -> None:
    flexible = version >= 12
    if version <= 12:
        write_string(out, item.topic, flexible)
    if version >= 13:
        write_uuid(out, item.topic_id)
    partitions = item.partitions
    write_count(out, len(partitions), flexible)
    for partitions_item in partitions:
        write_partition_data(out, partitions_item, version, splices)
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


def read_fetch_response(
    data: bytes, pos: i64, version: i64, budget: Budget, view: memoryview
) -> tuple[FetchResponse, i64]:
    flexible = version >= 12
    throttle_time_ms: i32 = 0
    if version >= 1:
        throttle_time_ms = read_i32_be(data, pos)
        pos += 4
    error_code: i16 = 0
    session_id: i32 = 0
    if version >= 7:
        error_code = read_i16_be(data, pos)
        session_id = read_i32_be(data, pos + 2)
        pos += 6
    count, pos = read_count(data, pos, flexible, budget)
    responses = []
    for _ in range(count):
        responses_item, pos = read_fetchable_topic_response(data, pos, version, budget, view)
        responses.append(responses_item)
    item = FetchResponse(
        throttle_time_ms=throttle_time_ms, error_code=error_code, session_id=session_id, responses=responses
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            pos = read_fetch_response_tags(item, data, pos, version, budget)
    return item, pos


def read_fetch_response_tags(item: FetchResponse, data: bytes, pos: i64, version: i64, budget: Budget) -> i64:
    unknown: list[tuple[int, bytes]] = []
    last: i64 = -1
    tag_count, pos = read_tag_count(data, pos, budget)
    for _ in range(tag_count):
        tag, pos, stop = read_tag(data, pos, last)
        last = tag
        if tag == 0:
            if version < 16:
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


def write_fetch_response(out: BytesWriter, item: FetchResponse, version: i64, splices: Splices) -> None:
    flexible = version >= 12
    if version >= 1:
        write_i32_be(out, item.throttle_time_ms)
    if version >= 7:
        write_i16_be(out, item.error_code)
        write_i32_be(out, item.session_id)
    elif item.session_id != 0:
        raise Malformed
    responses = item.responses
    write_count(out, len(responses), flexible)
    for responses_item in responses:
        write_fetchable_topic_response(out, responses_item, version, splices)
    if version < 16 and item.node_endpoints:
        raise Malformed
    if flexible:
        write_fetch_response_tags(out, item, version)
    elif item.unknown_tagged_fields:
        raise Malformed


def write_fetch_response_tags(out: BytesWriter, item: FetchResponse, version: i64) -> None:
    known: list[tuple[int, bytes]] = []
    if version >= 16 and item.node_endpoints:
        part = BytesWriter()
        node_endpoints = item.node_endpoints
        write_count(part, len(node_endpoints), True)
        for node_endpoints_item in node_endpoints:
            write_node_endpoint(part, node_endpoints_item, version)
        known.append((0, part.getvalue()))
    write_tags(out, known, item.unknown_tagged_fields, 1)


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[FetchResponse, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_fetch_response(data, position, version, Budget(elements_max), memoryview(source))


def encode(version: i64, message: FetchResponse, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    splices: Splices = []
    write_fetch_response(out, message, version, splices)
    return finished(out, splices, wanted)
