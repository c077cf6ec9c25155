"""Reads and writes AddPartitionsToTxnRequest, versions 0-5.

Written by `make messages` from schemas/AddPartitionsToTxnRequest.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i64_be,
    write_i16_be,
    write_i64_be,
)
from mypy_extensions import i16, i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_count,
    read_i32_list,
    read_string,
    read_tags,
    write_bool,
    write_count,
    write_i32_list,
    write_string,
    write_unknown_tags,
)


def read_add_partitions_to_txn_topic(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[AddPartitionsToTxnTopic, i64]:
    flexible = version >= 3
    name, pos = read_string(data, pos, flexible)
    partitions, pos = read_i32_list(data, pos, flexible, budget)
    item = AddPartitionsToTxnTopic(name=name, partitions=partitions)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_add_partitions_to_txn_topic(out: BytesWriter, item: AddPartitionsToTxnTopic, version: i64) -> None:
    flexible = version >= 3
    write_string(out, item.name, flexible)
    write_i32_list(out, item.partitions, flexible)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_add_partitions_to_txn_transaction(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[AddPartitionsToTxnTransaction, i64]:
    transactional_id, pos = read_string(data, pos, True)
    producer_id = read_i64_be(data, pos)
    producer_epoch = read_i16_be(data, pos + 8)
    verify_only = data[pos + 10] != 0
    pos += 11
    count, pos = read_count(data, pos, True, budget)
    topics = []
    for _ in range(count):
        topics_item, pos = read_add_partitions_to_txn_topic(data, pos, version, budget)
        topics.append(topics_item)
    item = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        verify_only=verify_only,
        topics=topics,
    )
    if data[pos] == 0:
        pos += 1
    else:
        item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_add_partitions_to_txn_transaction(
    out: BytesWriter, item: AddPartitionsToTxnTransaction, version: i64
) -> None:
    write_string(out, item.transactional_id, True)
    write_i64_be(out, item.producer_id)
    write_i16_be(out, item.producer_epoch)
    write_bool(out, item.verify_only)
    topics = item.topics
    write_count(out, len(topics), True)
    for topics_item in topics:
        write_add_partitions_to_txn_topic(out, topics_item, version)
    write_unknown_tags(out, item.unknown_tagged_fields)


def read_add_partitions_to_txn_request(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[AddPartitionsToTxnRequest, i64]:
    flexible = version >= 3
    transactions: list[AddPartitionsToTxnTransaction] = []
    if version >= 4:
        count, pos = read_count(data, pos, flexible, budget)
        transactions = []
        for _ in range(count):
            transactions_item, pos = read_add_partitions_to_txn_transaction(data, pos, version, budget)
            transactions.append(transactions_item)
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: i64 = 0
    v3_and_below_producer_epoch: i16 = 0
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = []
    if version <= 3:
        v3_and_below_transactional_id, pos = read_string(data, pos, flexible)
        v3_and_below_producer_id = read_i64_be(data, pos)
        v3_and_below_producer_epoch = read_i16_be(data, pos + 8)
        pos += 10
        count, pos = read_count(data, pos, flexible, budget)
        v3_and_below_topics = []
        for _ in range(count):
            v3_and_below_topics_item, pos = read_add_partitions_to_txn_topic(data, pos, version, budget)
            v3_and_below_topics.append(v3_and_below_topics_item)
    item = AddPartitionsToTxnRequest(
        transactions=transactions,
        v3_and_below_transactional_id=v3_and_below_transactional_id,
        v3_and_below_producer_id=v3_and_below_producer_id,
        v3_and_below_producer_epoch=v3_and_below_producer_epoch,
        v3_and_below_topics=v3_and_below_topics,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_add_partitions_to_txn_request(
    out: BytesWriter, item: AddPartitionsToTxnRequest, version: i64
) -> None:
    flexible = version >= 3
    if version >= 4:
        transactions = item.transactions
        write_count(out, len(transactions), flexible)
        for transactions_item in transactions:
            write_add_partitions_to_txn_transaction(out, transactions_item, version)
    elif item.transactions:
        raise Malformed
    if version <= 3:
        write_string(out, item.v3_and_below_transactional_id, flexible)
        write_i64_be(out, item.v3_and_below_producer_id)
        write_i16_be(out, item.v3_and_below_producer_epoch)
        v3_and_below_topics = item.v3_and_below_topics
        write_count(out, len(v3_and_below_topics), flexible)
        for v3_and_below_topics_item in v3_and_below_topics:
            write_add_partitions_to_txn_topic(out, v3_and_below_topics_item, version)
    elif (
        item.v3_and_below_transactional_id != ""
        or item.v3_and_below_producer_id != 0
        or item.v3_and_below_producer_epoch != 0
        or item.v3_and_below_topics
    ):
        raise Malformed
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(
    version: i64, source: Buffer, position: i64, elements_max: i64
) -> tuple[AddPartitionsToTxnRequest, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_add_partitions_to_txn_request(data, position, version, Budget(elements_max))


def encode(version: i64, message: AddPartitionsToTxnRequest, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_add_partitions_to_txn_request(out, message, version)
    return out.getvalue()
