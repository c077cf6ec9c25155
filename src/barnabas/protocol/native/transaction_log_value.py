"""Reads and writes TransactionLogValue, versions 0-1.

Written by `make messages` from schemas/TransactionLogValue.json.
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
from mypy_extensions import i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_i8,
    read_i32_list,
    read_nullable_count,
    read_string,
    read_tag,
    read_tag_count,
    read_tags,
    write_count,
    write_i8,
    write_i32_list,
    write_string,
    write_tags,
    write_unknown_tags,
)


def read_partitions_schema(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[PartitionsSchema, i64]:
    flexible = version == 1
    topic, pos = read_string(data, pos, flexible)
    partition_ids, pos = read_i32_list(data, pos, flexible, budget)
    item = PartitionsSchema(topic=topic, partition_ids=partition_ids)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_partitions_schema(out: BytesWriter, item: PartitionsSchema, version: i64) -> None:
    flexible = version == 1
    write_string(out, item.topic, flexible)
    write_i32_list(out, item.partition_ids, flexible)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_transaction_log_value(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[TransactionLogValue, i64]:
    flexible = version == 1
    producer_id = read_i64_be(data, pos)
    producer_epoch = read_i16_be(data, pos + 8)
    transaction_timeout_ms = read_i32_be(data, pos + 10)
    transaction_status = read_i8(data, pos + 14)
    pos += 15
    count, pos = read_nullable_count(data, pos, flexible, budget)
    if count < 0:
        transaction_partitions = None
    else:
        transaction_partitions = []
        for _ in range(count):
            transaction_partitions_item, pos = read_partitions_schema(data, pos, version, budget)
            transaction_partitions.append(transaction_partitions_item)
    transaction_last_update_timestamp_ms = read_i64_be(data, pos)
    transaction_start_timestamp_ms = read_i64_be(data, pos + 8)
    pos += 16
    item = TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_timeout_ms=transaction_timeout_ms,
        transaction_status=transaction_status,
        transaction_partitions=transaction_partitions,
        transaction_last_update_timestamp_ms=transaction_last_update_timestamp_ms,
        transaction_start_timestamp_ms=transaction_start_timestamp_ms,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            pos = read_transaction_log_value_tags(item, data, pos, version, budget)
    return item, pos


def read_transaction_log_value_tags(
    item: TransactionLogValue, data: bytes, pos: i64, version: i64, budget: Budget
) -> i64:
    unknown: list[tuple[int, bytes]] = []
    last: i64 = -1
    tag_count, pos = read_tag_count(data, pos, budget)
    for _ in range(tag_count):
        tag, pos, stop = read_tag(data, pos, last)
        last = tag
        if tag == 0:
            previous_producer_id = read_i64_be(data, pos)
            pos += 8
            item.previous_producer_id = previous_producer_id
        elif tag == 1:
            next_producer_id = read_i64_be(data, pos)
            pos += 8
            item.next_producer_id = next_producer_id
        elif tag == 2:
            client_transaction_version = read_i16_be(data, pos)
            pos += 2
            item.client_transaction_version = client_transaction_version
        elif tag == 3:
            next_producer_epoch = read_i16_be(data, pos)
            pos += 2
            item.next_producer_epoch = next_producer_epoch
        else:
            unknown.append((tag, data[pos:stop]))
            pos = stop
        if pos != stop:
            raise Malformed
    item.unknown_tagged_fields = tuple(unknown)
    return pos


def write_transaction_log_value(out: BytesWriter, item: TransactionLogValue, version: i64) -> None:
    flexible = version == 1
    write_i64_be(out, item.producer_id)
    write_i16_be(out, item.producer_epoch)
    write_i32_be(out, item.transaction_timeout_ms)
    write_i8(out, item.transaction_status)
    transaction_partitions = item.transaction_partitions
    if transaction_partitions is None:
        write_count(out, -1, flexible)
    else:
        write_count(out, len(transaction_partitions), flexible)
        for transaction_partitions_item in transaction_partitions:
            write_partitions_schema(out, transaction_partitions_item, version)
    write_i64_be(out, item.transaction_last_update_timestamp_ms)
    write_i64_be(out, item.transaction_start_timestamp_ms)
    if version < 1 and item.previous_producer_id != -1:
        raise Malformed
    if version < 1 and item.next_producer_id != -1:
        raise Malformed
    if version < 1 and item.client_transaction_version != 0:
        raise Malformed
    if version < 1 and item.next_producer_epoch != -1:
        raise Malformed
    if flexible:
        write_transaction_log_value_tags(out, item, version)
    elif item.unknown_tagged_fields:
        raise Malformed


def write_transaction_log_value_tags(out: BytesWriter, item: TransactionLogValue, version: i64) -> None:
    known: list[tuple[int, bytes]] = []
    if item.previous_producer_id != -1:
        part = BytesWriter()
        write_i64_be(part, item.previous_producer_id)
        known.append((0, part.getvalue()))
    if item.next_producer_id != -1:
        part = BytesWriter()
        write_i64_be(part, item.next_producer_id)
        known.append((1, part.getvalue()))
    if item.client_transaction_version != 0:
        part = BytesWriter()
        write_i16_be(part, item.client_transaction_version)
        known.append((2, part.getvalue()))
    if item.next_producer_epoch != -1:
        part = BytesWriter()
        write_i16_be(part, item.next_producer_epoch)
        known.append((3, part.getvalue()))
    write_tags(out, known, item.unknown_tagged_fields, 4)


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[TransactionLogValue, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_transaction_log_value(data, position, version, Budget(elements_max))


def encode(version: i64, message: TransactionLogValue, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_transaction_log_value(out, message, version)
    return out.getvalue()
