"""Records of transactions in every version, and records that are not what they should be."""

from __future__ import annotations

import pytest

from barnabas.errors import InvalidRecord
from barnabas.model import NO_PRODUCER_ID, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from barnabas.records.record import Record
from barnabas.transactions.records import TransactionRecord, parse_record
from barnabas.transactions.transaction import Transaction, TransactionState
from barnabas.value import replace

KEY = b"\x00\x00\x00\x02id"
TRANSACTION = Transaction(
    producer_id=ProducerId(7),
    producer_epoch=ProducerEpoch(3),
    previous_producer_id=ProducerId(6),
    next_producer_id=ProducerId(8),
    timeout_ms=60_000,
    state=TransactionState.PREPARE_COMMIT,
    partitions=frozenset({TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0)}),
    start_timestamp=TimestampMs(1),
    last_update_timestamp=TimestampMs(2),
    version=2,
)


def stored(key: bytes | None, value: bytes | None) -> Record:
    return Record(Offset(42), TimestampMs(0), key, value)


@pytest.mark.parametrize(
    "transaction",
    [
        TRANSACTION,
        Transaction(producer_id=ProducerId(7), timeout_ms=1, last_update_timestamp=TimestampMs(2)),
        None,
    ],
    ids=["full", "empty", "gone"],
)
def test_what_is_written_is_read(transaction: Transaction | None) -> None:
    record = TransactionRecord("id", transaction)
    assert record.key_bytes() == KEY
    assert (record.value_bytes() is None) == (transaction is None)
    parsed = parse_record(stored(record.key_bytes(), record.value_bytes()))
    assert parsed is not None
    assert (parsed.transactional_id, parsed.transaction) == ("id", transaction)


@pytest.mark.parametrize(("level", "client", "version"), [(0, 0, 0), (0, 2, 1), (1, 0, 1), (2, 2, 1)])
def test_the_level_and_the_transaction_decide_on_the_version(level: int, client: int, version: int) -> None:
    transaction = replace(TRANSACTION, version=client)
    record = TransactionRecord("id", transaction, level)
    value = record.value_bytes()
    assert value is not None
    assert value[:2] == bytes([0, version])
    parsed = parse_record(stored(record.key_bytes(), value))
    assert parsed is not None
    without_fields = replace(
        transaction, previous_producer_id=NO_PRODUCER_ID, next_producer_id=NO_PRODUCER_ID, version=0
    )
    assert parsed.transaction == (transaction if version else without_fields)


@pytest.mark.parametrize("version", [0, 1])
def test_transactions_are_read_in_every_version(version: int) -> None:
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="a", partition_ids=[0, 2])],
        transaction_last_update_timestamp_ms=2,
        transaction_start_timestamp_ms=1,
    )
    if version:
        value.previous_producer_id, value.next_producer_id, value.client_transaction_version = 6, 8, 2
    parsed = parse_record(stored(KEY, version.to_bytes(2, "big") + encode(value, version)))
    assert parsed is not None
    assert parsed.transaction is not None
    transaction = parsed.transaction
    assert transaction.state is TransactionState.ONGOING
    assert transaction.partitions == {TopicPartition("a", 0), TopicPartition("a", 2)}
    assert (transaction.previous_producer_id, transaction.next_producer_id, transaction.version) == (
        (6, 8, 2) if version else (-1, -1, 0)
    )


def test_a_key_of_a_later_release_is_left_alone() -> None:
    assert parse_record(stored(b"\x00\x01whatever", b"")) is None


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        (None, None, "too short"),
        (b"\x00", None, "too short"),
        (b"\x00\x00\x00\x09id", None, "does not decode"),
        (KEY, b"\x00", "has no version"),
        (KEY, b"\x00\x02", "has version 2"),
        (KEY, b"\xff\xff", "has version -1"),
        (KEY, b"\x00\x01\x00", "does not decode"),
        (KEY, b"\x00\x00" + encode(TransactionLogValue(transaction_status=6), 0), "has the state 6"),
        (KEY, b"\x00\x00" + encode(TransactionLogValue(transaction_status=9), 0), "has the state 9"),
    ],
)
def test_records_that_are_not_what_they_should_be(key: bytes | None, value: bytes | None, what: str) -> None:
    with pytest.raises(InvalidRecord, match=what) as refusal:
        parse_record(stored(key, value))
    assert "42" in str(refusal.value)
