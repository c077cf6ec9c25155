"""A compacted log with a model beside it, for the cleaner's tests.

The model is every record that was ever written, and which transactions were committed. What the cleaner must keep of it
is simple: whoever reads committed records from the start and keeps the last value of each key sees the same before and
after.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from barnabas.clock import ManualClock
from barnabas.config.log_config import LogConfig
from barnabas.log.cleaner.cleaner import Cleaned, Cleaner
from barnabas.log.cleaner.dirty import log_to_clean
from barnabas.log.cleaner.offset_map import OffsetMap
from barnabas.log.partition.environment import LogEnvironment, PriorState
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.log.tools.inspection import read_from
from barnabas.log.tools.verify import verify_directory
from barnabas.model import ProducerEpoch, ProducerId, TimestampMs
from barnabas.records.builder import BatchBuilder, end_transaction_marker
from barnabas.records.header import BatchHeader
from barnabas.records.layout import CompressionType, ControlRecordType
from barnabas.records.policy import AppendOrigin
from barnabas.records.reader import decode_batch
from barnabas.records.record import Record
from tests.log.simulated import SimulatedFileSystem

DIRECTORY: Final = "/data/compacted-0"
CONFIG: Final = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=4000,
    segment_index_bytes=4096,
    index_interval_bytes=300,
    delete_retention_ms=60_000,
)

KeyValue = tuple[bytes | None, bytes | None]


class Written(NamedTuple):
    """A record as it was written, with its transaction, or -1."""

    record: Record
    transaction: int


class CompactedLog:
    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.clock = ManualClock()
        self.fs = SimulatedFileSystem(self.clock)
        self.config = config
        self.written: dict[int, Written] = {}
        self.sequences: dict[int, int] = {}
        self.transaction_of: dict[int, int] = {}
        self.committed: set[int] = set()
        self.first_dirty_offset = 0
        self._transactions = 0
        self.log = self._open(clean_shutdown=False)

    def _open(self, *, clean_shutdown: bool) -> PartitionLog:
        log = PartitionLog.open(
            DIRECTORY,
            environment=LogEnvironment(fs=self.fs, clock=self.clock),
            config=self.config,
            prior=PriorState(clean_shutdown=clean_shutdown),
        )
        log.update_high_watermark(log.log_end_offset)
        return log

    def append(
        self,
        *records: KeyValue,
        producer_id: int = -1,
        transactional: bool = False,
        compression: CompressionType = CompressionType.NONE,
    ) -> None:
        base_sequence = -1
        if producer_id >= 0:
            base_sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = base_sequence + len(records)
        builder = BatchBuilder(
            compression=compression,
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(0 if producer_id >= 0 else -1),
            base_sequence=base_sequence,
            is_transactional=transactional,
        )
        if transactional and producer_id not in self.transaction_of:
            self._transactions += 1
            self.transaction_of[producer_id] = self._transactions
        for key, value in records:
            self.clock.advance_ms(1)
            builder.append(TimestampMs(self.clock.now_ms()), key, value, (("h", key),) if value else ())
        data = builder.build()
        info = self.log.append_as_leader(bytearray(data), leader_epoch=0)
        for index, record in enumerate(decode_batch(data)):
            record.offset = type(record.offset)(info.first_offset + index)
            transaction = self.transaction_of[producer_id] if transactional else -1
            self.written[record.offset] = Written(record, transaction)
        self.log.update_high_watermark(self.log.log_end_offset)

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        kind = ControlRecordType.COMMIT if commits else ControlRecordType.ABORT
        marker = end_transaction_marker(
            control_type=kind,
            timestamp=TimestampMs(self.clock.now_ms()),
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(0),
            coordinator_epoch=0,
        )
        self.log.append_as_leader(bytearray(marker), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        self.log.update_high_watermark(self.log.log_end_offset)
        transaction = self.transaction_of.pop(producer_id)
        if commits:
            self.committed.add(transaction)

    def roll(self) -> None:
        self.log.roll()

    def clean(self, memory_bytes: int = 1 << 20) -> Cleaned:
        target = log_to_clean(self.log, self.first_dirty_offset, self.clock.now_ms())
        cleaned = Cleaner(OffsetMap(memory_bytes), self.clock).clean(
            self.log, target.first_dirty_offset, target.end_offset
        )
        self.first_dirty_offset = cleaned.end_offset
        return cleaned

    def reopen(self) -> None:
        self.log.flush()
        self.log.close()
        self.log = self._open(clean_shutdown=True)

    def crash(self, rng: Random) -> None:
        """What was not flushed may be gone; the model follows the log."""
        self.fs = self.fs.crash(rng)
        self.log = self._open(clean_shutdown=False)
        end = self.log.log_end_offset
        self.written = {offset: written for offset, written in self.written.items() if offset < end}

    def kill(self) -> None:
        """The process ends, and all that was written is there."""
        self.fs = self.fs.kill()
        self.log = self._open(clean_shutdown=False)

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        return [
            (header, decode_batch(data, position, header=header))
            for segment in self.log.segments.all
            for _, header, data, position in segment.whole_batches()
        ]

    def records(self, isolation: Isolation = Isolation.HIGH_WATERMARK) -> list[Record]:
        return [record for _, record in read_from(self.log, self.log.log_start_offset, isolation)]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def view(self) -> dict[bytes, bytes]:
        """What a reader of committed records ends up with."""
        values: dict[bytes, bytes] = {}
        for record in self.records(Isolation.TXN_COMMITTED):
            _note(values, record)
        return values

    def expected_view(self) -> dict[bytes, bytes]:
        values: dict[bytes, bytes] = {}
        last_stable_offset = self.log.last_stable_offset
        for offset, (record, transaction) in sorted(self.written.items()):
            if offset < last_stable_offset and (transaction < 0 or transaction in self.committed):
                _note(values, record)
        return values

    def check(self) -> None:
        """The view is that of the model, nothing was invented or changed, and the files agree with each other."""
        assert self.view() == self.expected_view()
        for record in self.records():
            written = self.written[record.offset].record
            assert (record.key, record.value, record.timestamp, record.headers) == (
                written.key,
                written.value,
                written.timestamp,
                written.headers,
            )
        assert list(verify_directory(self.fs, "/data")) == []


def _note(values: dict[bytes, bytes], record: Record) -> None:
    assert record.key is not None
    if record.value is None:
        values.pop(record.key, None)
    else:
        values[record.key] = record.value


def keys(*names: str) -> Sequence[KeyValue]:
    return [(name.encode(), b"value of " + name.encode()) for name in names]
