"""Determines which records of a partition's files were committed, as a broker does when it starts.

The broker has synced everything up to the newest producer snapshot before the recovery point: the snapshot names the
transactions that are open there, and the transaction indexes name those that were aborted before. The headers of later
batches and the markers show the rest.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.errors import KafkaError, KafkaStorageError
from barnabas.log import names
from barnabas.log.file_system import DiskFileSystem, File
from barnabas.log.producers.snapshot import decode_snapshot
from barnabas.log.reader.partition_files import (
    OffsetIndexReader,
    PartitionFiles,
    SegmentFile,
    open_segment,
    scan_headers,
)
from barnabas.log.segment.sparse_index import CorruptIndex
from barnabas.log.segment.transaction_index import TransactionIndex
from barnabas.records.control import control_record_type
from barnabas.records.header import BatchHeader, CorruptRecord
from barnabas.records.layout import ControlRecordType
from barnabas.records.reader import decode_batch

ENDS: Final = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


class Aborted(NamedTuple):
    """A transaction from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """Aborted transactions in the order of their markers; `last_stable_offset` is None if none is open."""

    aborted: tuple[Aborted, ...]
    last_stable_offset: int | None

    def aborted_between(self, start_offset: int, end_offset: int) -> tuple[Aborted, ...]:
        return tuple(
            each
            for each in self.aborted
            if each.first_offset < end_offset and each.last_offset >= start_offset
        )


class AbortedBatches:
    """Distinguishes batches of aborted transactions from others."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._by_producer: dict[int, list[tuple[int, int]]] = {}
        for each in sorted(aborted, key=lambda transaction: transaction.first_offset):
            self._by_producer.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))

    def has(self, header: BatchHeader) -> bool:
        transactions = self._by_producer.get(header.producer_id)
        if transactions is None or not header.is_transactional or header.is_control:
            return False
        slot = bisect_right(transactions, (header.base_offset, 1 << 63)) - 1
        return slot >= 0 and header.base_offset <= transactions[slot][1]


class TransactionReader:
    """Follows the transactions of a partition. When the log has grown, only the new part is read.

    Raises CorruptRecord at a damaged batch, which may hide a marker, unless damage is allowed.
    """

    def __init__(self, *, fails_on_corruption: bool) -> None:
        self._fails_on_corruption = fails_on_corruption
        # The offset up to which transactions have been followed; -1 before the first read.
        self._next_offset = -1
        self._open: dict[int, int] = {}
        self._aborted: list[Aborted] = []

    def read(self, files: PartitionFiles) -> Transactions:
        """The transactions in the files as they are now."""
        if self._next_offset < files.segments[0].base_offset:
            self._begin(files)
        for header, data in _headers_from(files, self._next_offset, self._fails_on_corruption):
            self._next_offset = header.next_offset
            if header.is_control:
                self._end(header, data)
            elif header.is_transactional:
                self._open.setdefault(header.producer_id, header.base_offset)
        return Transactions(
            aborted=tuple(self._aborted), last_stable_offset=min(self._open.values(), default=None)
        )

    def forget_before(self, offset: int) -> None:
        """Drops transactions that ended before the offset, which a stream has passed."""
        self._aborted = [each for each in self._aborted if each.last_offset >= offset]

    def _begin(self, files: PartitionFiles) -> None:
        self._next_offset, self._open = _newest_snapshot(files)
        self._aborted = []
        try:
            for segment in files.segments:
                if segment.base_offset < self._next_offset:
                    self._aborted += [
                        each for each in _indexed(segment) if each.last_offset < self._next_offset
                    ]
        except CorruptIndex:
            # The index is derived from the log, so read the log instead.
            self._next_offset, self._open, self._aborted = files.segments[0].base_offset, {}, []

    def _end(self, header: BatchHeader, data: bytes) -> None:
        kind = _marker(header, data)
        if kind in ENDS:
            first_offset = self._open.pop(header.producer_id, None)
            if first_offset is not None and kind is ControlRecordType.ABORT:
                self._aborted.append(Aborted(header.producer_id, first_offset, header.base_offset))


def _newest_snapshot(files: PartitionFiles) -> tuple[int, dict[int, int]]:
    """The offset of the newest valid synced snapshot, and the first offsets of the transactions open there."""
    for offset in files.snapshots():
        if offset > files.recovery_point:
            continue
        path = os.path.join(files.directory, names.segment_file(offset, names.PRODUCER_SNAPSHOT_SUFFIX))
        try:
            entries = decode_snapshot(DiskFileSystem().read_file(path), path)
        except KafkaStorageError:
            continue
        return offset, {
            entry.producer_id: entry.current_txn_first_offset
            for entry in entries
            if entry.current_txn_first_offset >= 0
        }
    return files.segments[0].base_offset, {}


def _indexed(segment: SegmentFile) -> Iterator[Aborted]:
    path = segment.sibling(names.TRANSACTION_INDEX_SUFFIX)
    index = TransactionIndex(DiskFileSystem(), path, segment.base_offset, exists=True)
    for each in index.entries():
        yield Aborted(each.producer_id, each.first_offset, each.last_offset)


def _headers_from(
    files: PartitionFiles, offset: int, fails_on_corruption: bool
) -> Iterator[tuple[BatchHeader, bytes]]:
    """The headers of batches from an offset on, with the bytes of control batches."""
    for segment in files.segments:
        if segment.end_base_offset is not None and segment.end_base_offset <= offset:
            continue
        file = open_segment(segment.path, segment.inode)
        index = OffsetIndexReader(segment, file)
        position = index.start_position(max(offset, segment.base_offset))
        while position < segment.size_bytes:
            try:
                for at, header, _, _ in scan_headers(segment, file, position):
                    position = at + header.size_bytes
                    if header.base_offset >= offset:
                        yield header, file.pread(header.size_bytes, at) if header.is_control else b""
                break
            except CorruptRecord:
                after = index.position_after(position)
                if after == segment.size_bytes and segment.is_last and is_blank(file, position, after):
                    break
                if fails_on_corruption:
                    raise
                position = after


def is_blank(file: File, position: int, end_position: int) -> bool:
    """Whether there are only zeros, as in a preallocated file or after a crash."""
    chunk_bytes = 1 << 20
    while position < end_position:
        chunk = file.pread(min(chunk_bytes, end_position - position), position)
        if chunk.strip(b"\0"):
            return False
        if not chunk:
            return True
        position += len(chunk)
    return True


def _marker(header: BatchHeader, data: bytes) -> ControlRecordType:
    """The type of a control batch; UNKNOWN if the cleaner has emptied it or it is damaged."""
    try:
        records = decode_batch(data, 0, header=header)
        return control_record_type(records[0].key) if records else ControlRecordType.UNKNOWN
    except KafkaError:
        return ControlRecordType.UNKNOWN
