"""The choice of the records of a compacted log that stay: the part of the cleaner that reads every record.

A record stays if no later one has its key. A tombstone, a record without a value, stays until its batch's delete
horizon. The cleaner sets the horizon to `delete.retention.ms` ahead when it first meets the tombstone; the batch stores
it in place of the base timestamp. Transaction markers have the same horizon, once no record of their transaction is
left. A batch that loses all its records stays as an empty batch if it has the last sequence of a known producer, or the
last offset of the cleaned part.
"""

from __future__ import annotations

import time

from barnabas.log.cleaner.offset_map import OffsetMap
from barnabas.log.cleaner.transactions import CleanedTransactions
from barnabas.model import NO_TIMESTAMP, TimestampMs
from barnabas.records.builder import BatchBuilder, build_empty_batch
from barnabas.records.control import control_record_type
from barnabas.records.header import BatchHeader, verify_crc
from barnabas.records.layout import MAGIC_V2, TimestampType
from barnabas.records.reader import PART_RECORDS, decode_batch, decode_parts
from barnabas.records.record import Record


class LastRecord:
    """The last of an active producer: the offset of its last data, or -1, and its epoch."""

    __slots__ = ("last_data_offset", "producer_epoch")

    def __init__(self, last_data_offset: int, producer_epoch: int) -> None:
        self.last_data_offset = last_data_offset
        self.producer_epoch = producer_epoch


def map_batch(
    offsets: OffsetMap,
    transactions: CleanedTransactions,
    start_offset: int,
    header: BatchHeader,
    data: bytes,
    position: int,
) -> bool:
    """Notes the keys of a batch from an offset on; False, and the batch is not the map's, when it has no room."""
    verify_crc(data, position, header)
    if header.is_control:
        _observe_marker(transactions, header, decode_batch(data, position, header=header))
    elif not transactions.observe_batch(header):
        for part in decode_parts(data, position, header):
            for record in part:
                key = record.key
                if key is not None and record.offset >= start_offset:
                    if offsets.size >= offsets.capacity:
                        return False
                    offsets.put(key, record.offset)
            _offer_lock(len(part))
    if header.last_offset >= start_offset:
        offsets.latest_offset = header.last_offset
    return True


def _offer_lock(record_count: int) -> None:
    """Lets the event loop run, which waits for the interpreter's lock: compiled code never releases it by itself."""
    if record_count == PART_RECORDS:
        time.sleep(0)


def _observe_marker(transactions: CleanedTransactions, header: BatchHeader, records: list[Record]) -> bool:
    kind = control_record_type(records[0].key) if records else None
    return transactions.observe_marker(header, kind)


class RecordFilter:
    """One pass over the segments of a log with a map of its keys. Batches must come in order."""

    __slots__ = (
        "_delete_retention_ms",
        "_end_offset",
        "_has_tombstone",
        "_last_records",
        "_now_ms",
        "_offsets",
        "_transactions",
        "keeps_legacy_tombstones",
        "records_read",
        "records_without_key",
        "records_written",
    )

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        last_records: dict[int, LastRecord],
        *,
        now_ms: int,
        delete_retention_ms: int,
        end_offset: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._last_records = last_records
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._end_offset = end_offset
        self._has_tombstone = False
        # v0 and v1 have no delete horizon: the age of their segment decides.
        self.keeps_legacy_tombstones = True
        self.records_read = 0
        self.records_written = 0
        self.records_without_key = 0

    def filter(self, header: BatchHeader, data: bytes, position: int) -> bytes:
        """The rest of a batch: its own bytes, a new batch, or none."""
        verify_crc(data, position, header)
        sets_horizon = False
        retained: list[Record] = []
        if header.is_control:
            records = decode_batch(data, position, header=header)
            count = len(records)
            removable = _observe_marker(self._transactions, header, records)
            discards = removable and header.has_delete_horizon and header.base_timestamp <= self._now_ms
            sets_horizon = removable and not header.has_delete_horizon
            retained = [] if discards else records
        else:
            count = self._read_data(header, data, position, retained)
            sets_horizon = self._has_tombstone and header.magic >= MAGIC_V2 and not header.has_delete_horizon
        self.records_read += count
        if not retained:
            keeps_empty = header.magic >= MAGIC_V2 and self._keeps_empty(header)
            return build_empty_batch(header) if keeps_empty else b""
        self.records_written += len(retained)
        if len(retained) == count and not sets_horizon:
            return data[position : position + header.size_bytes]
        return self._rebuild(header, retained, sets_horizon)

    def _read_data(self, header: BatchHeader, data: bytes, position: int, retained: list[Record]) -> int:
        """Adds the records of a batch that stay; how many it has."""
        self._has_tombstone = False
        is_aborted = self._transactions.observe_batch(header)
        count = 0
        for part in decode_parts(data, position, header):
            count += len(part)
            if not is_aborted:
                self._retain(header, part, retained)
            _offer_lock(len(part))
        return count

    def _retain(self, header: BatchHeader, records: list[Record], retained: list[Record]) -> None:
        offsets = self._offsets
        latest_offset = offsets.latest_offset
        if header.magic < MAGIC_V2:
            keeps_tombstones = self.keeps_legacy_tombstones
        else:
            keeps_tombstones = not header.has_delete_horizon or self._now_ms < header.base_timestamp
        for record in records:
            key = record.key
            if record.offset > latest_offset:
                pass
            elif key is None:
                self.records_without_key += 1
                continue
            elif (record.value is None and not keeps_tombstones) or offsets.get(key) > record.offset:
                continue
            retained.append(record)
            if record.value is None:
                self._has_tombstone = True

    def _keeps_empty(self, header: BatchHeader) -> bool:
        if header.next_offset == self._end_offset:
            return True
        if not header.has_producer_id:
            return False
        last = self._last_records.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _rebuild(self, header: BatchHeader, retained: list[Record], sets_horizon: bool) -> bytes:
        delete_horizon_ms = NO_TIMESTAMP
        if sets_horizon:
            delete_horizon_ms = TimestampMs(self._now_ms + self._delete_retention_ms)
        elif header.has_delete_horizon:
            delete_horizon_ms = header.base_timestamp
        is_v2 = header.magic >= MAGIC_V2
        builder = BatchBuilder(
            magic=header.magic,
            compression=header.compression,
            timestamp_type=header.timestamp_type,
            base_offset=header.base_offset if is_v2 else retained[0].offset,
            log_append_time=header.max_timestamp
            if header.timestamp_type is TimestampType.LOG_APPEND_TIME
            else NO_TIMESTAMP,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            partition_leader_epoch=header.partition_leader_epoch,
            delete_horizon_ms=delete_horizon_ms,
        )
        for start in range(0, len(retained), PART_RECORDS):
            part = retained[start : start + PART_RECORDS]
            for record in part:
                builder.append_record(record)
            _offer_lock(len(part))
        # The last offset carries the last sequence of the producer: it stays though its record may not.
        return builder.build(last_offset=header.last_offset) if is_v2 else builder.build()
