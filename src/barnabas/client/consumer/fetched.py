"""The result of a fetch for one partition, walked batch by batch when the caller needs the records.

The loop that receives only moves bytes. The polling caller walks them: it verifies checksums, and omits records before
the position, control batches, and, for read_committed, the batches of aborted transactions: the broker names these by
producer and first offset, and each ends with its abort marker.
"""

from __future__ import annotations

from typing import Final

from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.partition_state import PartitionState
from barnabas.errors import KafkaError, RecordListTooLarge
from barnabas.records.compression import MAX_DECOMPRESSED_BYTES
from barnabas.records.control import control_record_type
from barnabas.records.header import BatchHeader, entry_size, parse_header, verify_crc
from barnabas.records.layout import (
    CONTROL_BIT,
    HEADER_UP_TO_MAGIC_BYTES,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    ControlRecordType,
)
from barnabas.records.reader import decode_batch

AbortedTransactions = list[tuple[int, int]]
"""First offset and producer id of each, by ascending offset."""

NONE_ABORTED: Final[AbortedTransactions] = []


class Fetched:
    """The bytes of one partition in a fetch response, or the error in their place."""

    __slots__ = (
        "_aborted",
        "_aborted_count",
        "_aborting",
        "_check_crcs",
        "_end",
        "_start",
        "batch_position",
        "data",
        "end_epoch",
        "end_offset",
        "error",
        "index",
        "is_drained",
        "next_offset",
        "next_position",
        "records",
        "size_bytes",
        "state",
    )

    def __init__(
        self,
        state: PartitionState,
        data: bytes | memoryview,
        *,
        end_offset: int = -1,
        end_epoch: int = -1,
        aborted: AbortedTransactions = NONE_ABORTED,
        check_crcs: bool = True,
        error: KafkaError | None = None,
    ) -> None:
        self.state = state
        self.size_bytes = len(data)
        self.error = error
        # The offset behind the last whole batch, and that batch's leader epoch.
        self.end_offset = end_offset
        self.end_epoch = end_epoch
        self.data: bytes | memoryview = data
        # Where the batches begin and end in the data.
        self._start = 0
        self._end = self.size_bytes
        # Where the batch that `next_batch` has returned begins, and where it ends.
        self.batch_position = 0
        self.next_position = 0
        # The records of that batch, how many of them are handed out, and the offset behind it.
        self.records: list[ConsumerRecord] = []
        self.index = 0
        self.next_offset = -1
        # Whether the caller has started to read it: then the next fetch may follow.
        self.is_drained = False
        self._check_crcs = check_crcs
        self._aborted = aborted
        self._aborted_count = 0
        self._aborting: set[int] = set()

    @property
    def decoded_ahead(self) -> int:
        """Decoded records that are not handed out yet."""
        return len(self.records) - self.index

    def read_in_place(self, whole: bytes, start: int) -> None:
        """Before anything is read: the data is a part of these bytes, which begins there, and need not be copied."""
        self.data = whole
        self._start = self.next_position = start
        self._end = start + self.size_bytes

    def as_bytes(self) -> bytes:
        """The data as bytes, which compiled code reads fastest; copied at the first call, by the polling caller.

        After `read_in_place` they are the bytes around the data, and all positions are positions in them.
        """
        data = self.data
        if not isinstance(data, bytes):
            data = self.data = bytes(data)
        return data

    def next_batch(self, position: int) -> BatchHeader | None:
        """The next batch with records at the position or later that are to be read; None at the end.

        Raises CorruptMessage if a batch's bytes are not what its writer wrote.
        """
        data = self.as_bytes()
        end = self._end
        while end - self.next_position >= HEADER_UP_TO_MAGIC_BYTES:
            start = self.next_position
            size_bytes = entry_size(data, start)
            if size_bytes > end - start:
                break
            header = parse_header(data, start)
            if self._check_crcs:
                verify_crc(data, start, header)
            self.batch_position = start
            self.next_position = start + size_bytes
            if header.magic == MAGIC_V2 and self._is_left_out(data, header):
                continue
            if header.next_offset > position:
                return header
        if self.next_position == self._start and self.size_bytes > 0:
            raise RecordListTooLarge(
                f"the batch at offset {position} of {self.state.partition} does not fit into the"
                f" {self.size_bytes} bytes that were fetched: raise max.partition.fetch.bytes and fetch.max.bytes"
            )
        return None

    def _is_left_out(self, data: bytes, header: BatchHeader) -> bool:
        attributes = header.attributes
        if not attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
            return False
        aborted = self._aborted
        while self._aborted_count < len(aborted) and aborted[self._aborted_count][0] <= header.last_offset:
            self._aborting.add(aborted[self._aborted_count][1])
            self._aborted_count += 1
        if attributes & CONTROL_BIT:
            if self._aborting and header.producer_id in self._aborting:
                markers = decode_batch(
                    data,
                    self.batch_position,
                    header=header,
                    max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
                )
                if markers and control_record_type(markers[0].key) is ControlRecordType.ABORT:
                    self._aborting.discard(header.producer_id)
            return True
        return header.producer_id in self._aborting


def end_of(data: bytes | memoryview, fallback: int) -> tuple[int, int]:
    """The offset after the last whole batch and that batch's leader epoch: the next fetch continues there."""
    position = 0
    end = len(data)
    last: int | None = None
    while end - position >= HEADER_UP_TO_MAGIC_BYTES:
        size_bytes = entry_size(data, position)
        if size_bytes > end - position:
            break
        last = position
        position += size_bytes
    if last is None:
        return fallback, -1
    header = parse_header(data, last)
    return max(header.next_offset, fallback), header.partition_leader_epoch
