"""Records of `__transaction_state`, as Kafka writes them.

    key    int16 what it is about (0) | the transactional id, as TransactionLogKey of version 0
    value  int16 version              | the transaction, as TransactionLogValue; null to forget the transactional id

Version 1 is written from `transaction.version` 1 on, as in Kafka, and for transactions of version 2 of the protocol.
Version 0 has no tagged fields, so neither the other producer ids nor the version of the protocol.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from barnabas.errors import InvalidRecord
from barnabas.model import ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.messages.transaction_log_key import TransactionLogKey
from barnabas.protocol.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from barnabas.records.record import Record
from barnabas.transactions.producer import TRANSACTION_VERSION_1, TRANSACTION_VERSION_2
from barnabas.transactions.transaction import Transaction, TransactionState

_TYPE: Final = Struct(
    ">h"  # key: the type; value: version
)
assert _TYPE.size == 2

_TRANSACTIONAL_ID: Final = 0
_KEY_VERSION: Final = 0
_VALUE_VERSIONS: Final = range(2)
# States that a record may have; the others are passed through in memory.
_WRITTEN_STATES: Final = {
    state.value: state
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
}


class TransactionRecord:
    __slots__ = ("transaction", "transactional_id", "version")

    def __init__(
        self, transactional_id: str, transaction: Transaction | None, level: int = TRANSACTION_VERSION_1
    ) -> None:
        """`level` is the cluster's `transaction.version`."""
        self.transactional_id: Final = transactional_id
        self.transaction: Final = transaction
        self.version: Final = _value_version(transaction, level)

    def key_bytes(self) -> bytes:
        key = TransactionLogKey(transactional_id=self.transactional_id)
        return _TYPE.pack(_TRANSACTIONAL_ID) + encode(key, _KEY_VERSION)

    def value_bytes(self) -> bytes | None:
        transaction = self.transaction
        if transaction is None:
            return None
        value = TransactionLogValue(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_status=transaction.state.value,
            transaction_partitions=(
                None if transaction.state is TransactionState.EMPTY else _by_topic(transaction.partitions)
            ),
            transaction_last_update_timestamp_ms=transaction.last_update_timestamp,
            transaction_start_timestamp_ms=transaction.start_timestamp,
        )
        if self.version > 0:
            value.previous_producer_id = transaction.previous_producer_id
            value.next_producer_id = transaction.next_producer_id
            value.client_transaction_version = transaction.version
        return _TYPE.pack(self.version) + encode(value, self.version)


def _value_version(transaction: Transaction | None, level: int) -> int:
    needs_fields = transaction is not None and transaction.version >= TRANSACTION_VERSION_2
    return 1 if level >= TRANSACTION_VERSION_1 or needs_fields else 0


def _by_topic(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=found) for topic, found in by_topic.items()]


def parse_record(record: Record) -> TransactionRecord | None:
    """The contents of a record; None if a later release of Kafka has written it.

    Raises InvalidRecord if the bytes do not match their first two.
    """
    key = record.key
    if key is None or len(key) < _TYPE.size:
        raise InvalidRecord(
            f"the key {key!r} of the transaction record at offset {record.offset} is too short"
        )
    (about,) = _TYPE.unpack_from(key)
    if about != _TRANSACTIONAL_ID:
        return None
    try:
        transactional_id = decode(TransactionLogKey, key, _KEY_VERSION, _TYPE.size).transactional_id
        return TransactionRecord(transactional_id, _parse_value(record))
    except DecodeError as error:
        raise InvalidRecord(
            f"the transaction record at offset {record.offset} does not decode: {error}"
        ) from error


def _parse_value(record: Record) -> Transaction | None:
    data = record.value
    if data is None:
        return None
    where = f"the value of the transaction record at offset {record.offset}"
    if len(data) < _TYPE.size:
        raise InvalidRecord(f"{where} has no version")
    (version,) = _TYPE.unpack_from(data)
    if version not in _VALUE_VERSIONS:
        raise InvalidRecord(f"{where} has version {version}, not 0 to {_VALUE_VERSIONS[-1]}")
    value = decode(TransactionLogValue, data, version, _TYPE.size)
    state = _WRITTEN_STATES.get(value.transaction_status)
    if state is None:
        raise InvalidRecord(f"{where} has the state {value.transaction_status}")
    return Transaction(
        producer_id=ProducerId(value.producer_id),
        producer_epoch=ProducerEpoch(value.producer_epoch),
        previous_producer_id=ProducerId(value.previous_producer_id),
        next_producer_id=ProducerId(value.next_producer_id),
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_timestamp=TimestampMs(value.transaction_start_timestamp_ms),
        last_update_timestamp=TimestampMs(value.transaction_last_update_timestamp_ms),
        version=value.client_transaction_version,
    )
