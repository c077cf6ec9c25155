"""Reads and writes AddPartitionsToTxnResponse, versions 0-5.

Written by `make messages` from schemas/AddPartitionsToTxnResponse.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
)
from mypy_extensions import i16, i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_count,
    read_string,
    read_tags,
    write_count,
    write_string,
    write_unknown_tags,
)


def read_add_partitions_to_txn_partition_result(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[AddPartitionsToTxnPartitionResult, i64]:
    flexible = version >= 3
    partition_index = read_i32_be(data, pos)
    partition_error_code = read_i16_be(data, pos + 4)
    pos += 6
    item = AddPartitionsToTxnPartitionResult(
        partition_index=partition_index, partition_error_code=partition_error_code
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_add_partitions_to_txn_partition_result(
    out: BytesWriter, item: AddPartitionsToTxnPartitionResult, version: i64
) -> None:
    flexible = version >= 3
    write_i32_be(out, item.partition_index)
    write_i16_be(out, item.partition_error_code)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_add_partitions_to_txn_topic_result(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[AddPartitionsToTxnTopicResult, i64]:
    flexible = version >= 3
    name, pos = read_string(data, pos, flexible)
    count, pos = read_count(data, pos, flexible, budget)
    results_by_partition = []
    for _ in range(count):
        results_by_partition_item, pos = read_add_partitions_to_txn_partition_result(
            data, pos, version, budget
        )
        results_by_partition.append(results_by_partition_item)
    item = AddPartitionsToTxnTopicResult(name=name, results_by_partition=results_by_partition)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_add_partitions_to_txn_topic_result(
    out: BytesWriter, item: AddPartitionsToTxnTopicResult, version: i64
) -> None:
    flexible = version >= 3
    write_string(out, item.name, flexible)
    results_by_partition = item.results_by_partition
    write_count(out, len(results_by_partition), flexible)
    for results_by_partition_item in results_by_partition:
        write_add_partitions_to_txn_partition_result(out, results_by_partition_item, version)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_add_partitions_to_txn_result(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[AddPartitionsToTxnResult, i64]:
    transactional_id, pos = read_string(data, pos, True)
    count, pos = read_count(data, pos, True, budget)
    topic_results = []
    for _ in range(count):
        topic_results_item, pos = read_add_partitions_to_txn_topic_result(data, pos, version, budget)
        topic_results.append(topic_results_item)
    item = AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topic_results)
    if data[pos] == 0:
        pos += 1
    else:
        item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_add_partitions_to_txn_result(
    out: BytesWriter, item: AddPartitionsToTxnResult, version: i64
) -> None:
    write_string(out, item.transactional_id, True)
    topic_results = item.topic_results
    write_count(out, len(topic_results), True)
    for topic_results_item in topic_results:
        write_add_partitions_to_txn_topic_result(out, topic_results_item, version)
    write_unknown_tags(out, item.unknown_tagged_fields)


def read_add_partitions_to_txn_response(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[AddPartitionsToTxnResponse, i64]:
    flexible = version >= 3
    throttle_time_ms = read_i32_be(data, pos)
    pos += 4
    error_code: i16 = 0
    results_by_transaction: list[AddPartitionsToTxnResult] = []
    if version >= 4:
        error_code = read_i16_be(data, pos)
        pos += 2
        count, pos = read_count(data, pos, flexible, budget)
        results_by_transaction = []
        for _ in range(count):
            results_by_transaction_item, pos = read_add_partitions_to_txn_result(data, pos, version, budget)
            results_by_transaction.append(results_by_transaction_item)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = []
    if version <= 3:
        count, pos = read_count(data, pos, flexible, budget)
        results_by_topic_v3_and_below = []
        for _ in range(count):
            results_by_topic_v3_and_below_item, pos = read_add_partitions_to_txn_topic_result(
                data, pos, version, budget
            )
            results_by_topic_v3_and_below.append(results_by_topic_v3_and_below_item)
    item = AddPartitionsToTxnResponse(
        throttle_time_ms=throttle_time_ms,
        error_code=error_code,
        results_by_transaction=results_by_transaction,
        results_by_topic_v3_and_below=results_by_topic_v3_and_below,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_add_partitions_to_txn_response(
    out: BytesWriter, item: AddPartitionsToTxnResponse, version: i64
) -> None:
    flexible = version >= 3
    write_i32_be(out, item.throttle_time_ms)
    if version >= 4:
        write_i16_be(out, item.error_code)
        results_by_transaction = item.results_by_transaction
        write_count(out, len(results_by_transaction), flexible)
        for results_by_transaction_item in results_by_transaction:
            write_add_partitions_to_txn_result(out, results_by_transaction_item, version)
    elif item.results_by_transaction:
        raise Malformed
    if version <= 3:
        results_by_topic_v3_and_below = item.results_by_topic_v3_and_below
        write_count(out, len(results_by_topic_v3_and_below), flexible)
        for results_by_topic_v3_and_below_item in results_by_topic_v3_and_below:
            write_add_partitions_to_txn_topic_result(out, results_by_topic_v3_and_below_item, version)
    elif item.results_by_topic_v3_and_below:
        raise Malformed
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(
    version: i64, source: Buffer, position: i64, elements_max: i64
) -> tuple[AddPartitionsToTxnResponse, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_add_partitions_to_txn_response(data, position, version, Budget(elements_max))


def encode(version: i64, message: AddPartitionsToTxnResponse, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_add_partitions_to_txn_response(out, message, version)
    return out.getvalue()
