"""A segment of a partition's log: a file of record batches, and the indexes that lead into it.

    00000000000000000042.log          the batches, one after the other; the first offset is 42 or higher
    00000000000000000042.index        offset index: from an offset to a position in the log
    00000000000000000042.timeindex    time index: from a timestamp to an offset
    00000000000000000042.txnindex     transaction index: the aborted transactions that ended here, if there are any

The log file is authoritative: after a crash, `recover` truncates incomplete data and rebuilds the indexes from it.
Nothing is opened, and not even the size of the log file is read, before it is needed: reopening a broker with many
thousand segments costs one directory listing each.

One thread at a time appends, truncates, renames or recovers. Any thread may read or flush at the same time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from barnabas.clock import Clock
from barnabas.errors import InvalidRecord, KafkaStorageError
from barnabas.log.file_system import Data, FileSystem, StorageFailure
from barnabas.log.names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file,
)
from barnabas.log.segment.file import SegmentFile
from barnabas.log.segment.indexed_log import IndexedLog
from barnabas.log.segment.offset_index import SEGMENT_BYTES_MAX, OffsetIndex
from barnabas.log.segment.results import EntryPosition, SegmentRead
from barnabas.log.segment.scan import FIND_CHUNK_BYTES, ScannedEntry, find_offset, scan
from barnabas.log.segment.settings import SegmentSettings
from barnabas.log.segment.sparse_index import CorruptIndex
from barnabas.log.segment.time_index import TimeIndex
from barnabas.log.segment.transaction_index import TransactionIndex
from barnabas.model import NO_TIMESTAMP, Offset
from barnabas.primitives.file_slice import FileSlice
from barnabas.records.header import BatchHeader, CorruptRecord, verify_crc

logger = logging.getLogger(__name__)

_UNKNOWN: Final = -1

OnBatch = Callable[[BatchHeader, bytes, int], None]


class SegmentOffsetOverflow(KafkaStorageError):
    """An offset that is too far from the segment's base offset for its indexes: the segment must be split.

    `position` is where the batch with the offset stands, or would have stood.
    """

    def __init__(self, segment: Segment, offset: int, position: int) -> None:
        super().__init__(f"offset {offset} is beyond the indexes of segment {segment.path}")
        self.segment = segment
        self.offset = offset
        self.position = position


class Segment:
    __slots__ = (
        "_bytes_since_index_entry",
        "_clock",
        "_first_timestamp",
        "_fs",
        "_has_slack",
        "_index_interval_bytes",
        "_indexes_verified",
        "_log",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_size_bytes",
        "_timestamps_known",
        "_unsynced",
        "base_offset",
        "created_ms",
        "offset_index",
        "roll_jitter_ms",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        directory: str,
        base_offset: int,
        settings: SegmentSettings,
        *,
        has_transaction_index: bool = True,
        state: str = "",
    ) -> None:
        """A segment whose files exist: none is touched yet. `state` is the suffix of its files' names.

        `has_transaction_index` may be false if a listing has shown that there is none.
        """
        self._fs = fs
        self._clock = clock
        self.base_offset: int = base_offset
        self.created_ms: int = clock.now_ms()
        index_interval_bytes, max_index_bytes, self.roll_jitter_ms = settings
        self._index_interval_bytes = index_interval_bytes
        prefix = os.path.join(directory, segment_file(base_offset, ""))
        self._log = SegmentFile(fs, prefix + LOG_SUFFIX + state)
        indexed = IndexedLog(self._log, index_interval_bytes)
        self.offset_index = OffsetIndex(
            fs, prefix + OFFSET_INDEX_SUFFIX + state, base_offset, max_index_bytes, indexed
        )
        self.time_index = TimeIndex(
            fs, prefix + TIME_INDEX_SUFFIX + state, base_offset, max_index_bytes, indexed
        )
        self.transaction_index = TransactionIndex(
            fs, prefix + TRANSACTION_INDEX_SUFFIX + state, base_offset, exists=has_transaction_index
        )
        self._size_bytes = _UNKNOWN
        self._has_slack = False
        self._unsynced = False
        # Before the first append, which an index that is rebuilt from the log must not come across.
        self._indexes_verified = False
        self._bytes_since_index_entry = 0
        self._first_timestamp: int | None = None
        self._timestamps_known = False
        self._max_timestamp: int = NO_TIMESTAMP
        self._offset_of_max_timestamp: int = base_offset

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        clock: Clock,
        directory: str,
        base_offset: int,
        settings: SegmentSettings,
        *,
        preallocated_bytes: int = 0,
        state: str = "",
    ) -> Segment:
        """A new, empty segment; files that are in its way are emptied."""
        segment = cls(fs, clock, directory, base_offset, settings, state=state)
        file = segment._log.creating()
        file.truncate(0)
        if preallocated_bytes:
            file.truncate(preallocated_bytes)
            segment._has_slack = True
        segment._size_bytes = 0
        segment._unsynced = True
        segment._indexes_verified = True
        segment.offset_index.create()
        segment.time_index.create()
        segment.transaction_index.remove()
        return segment

    @property
    def path(self) -> str:
        """The path of the log file."""
        return self._log.path

    @property
    def size_bytes(self) -> int:
        if self._size_bytes < 0:
            size_bytes = self._log.size_bytes()
            if size_bytes > SEGMENT_BYTES_MAX:
                raise KafkaStorageError(
                    f"log file {self.path} has {size_bytes} bytes; a segment has at most {SEGMENT_BYTES_MAX}"
                )
            self._size_bytes = size_bytes
        return self._size_bytes

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp so far; NO_TIMESTAMP where there is none."""
        if not self._timestamps_known:
            self._load_timestamps()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch that has the largest timestamp."""
        if not self._timestamps_known:
            self._load_timestamps()
        return self._offset_of_max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """By what the segment is retained: the largest timestamp, or when the file was last written if it has none."""
        return self.max_timestamp if self.max_timestamp >= 0 else self._fs.modified_ms(self.path)

    @property
    def index_is_full(self) -> bool:
        return self.offset_index.is_full or self.time_index.is_full

    def can_append_offset(self, offset: int) -> bool:
        return self.offset_index.can_append_offset(offset)

    def append(self, data: Data, headers: Sequence[BatchHeader], head: bytes = b"") -> None:
        """Appends batches, whose headers are given, and adds an index entry wherever one is due.

        A head is written in place of the first bytes of the data.
        """
        assert headers
        position = self.size_bytes
        if not self.offset_index.can_append_offset(headers[-1].last_offset):
            raise SegmentOffsetOverflow(self, headers[-1].last_offset, position)
        assert position + len(data) <= SEGMENT_BYTES_MAX, self.path
        if not self._indexes_verified:
            self._verify_indexes()
        if not self._timestamps_known:
            self._load_timestamps()
        try:
            file = self._log.writing()
            if head:
                file.pwritev((head, memoryview(data)[len(head) :]), position)
            else:
                file.pwrite(data, position)
        except StorageFailure:
            # A part may have been written, which must not be there after a clean stop.
            self._has_slack = True
            raise
        self._unsynced = True
        if position == 0:
            self._first_timestamp = headers[0].max_timestamp
        self._size_bytes = position + len(data)
        for header in headers:
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp = header.max_timestamp
                self._offset_of_max_timestamp = header.last_offset
            if self._bytes_since_index_entry > self._index_interval_bytes:
                # A set of small batches from a leader may hold more entries than the index has room for.
                if not self.index_is_full:
                    self.offset_index.append(header.last_offset, position)
                    self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
                self._bytes_since_index_entry = 0
            self._bytes_since_index_entry += header.size_bytes
            position += header.size_bytes
        assert position == self._size_bytes, self.path

    def locate(self, offset: int) -> EntryPosition | None:
        """The first batch whose last offset is not below the offset."""
        position, next_position = self.offset_index.positions_around(offset)
        size_bytes = self.size_bytes
        # Index entries are more than an interval apart by no more than a batch.
        gap_bytes = min(next_position, size_bytes) - position
        batches_are_large = gap_bytes > self._index_interval_bytes + FIND_CHUNK_BYTES
        file = self._log.reading()
        try:
            return find_offset(
                file, self.path, offset, position, size_bytes, batches_are_large, position != 0
            )
        except CorruptRecord as error:
            if position == 0:
                raise
            self._distrust_offset_index(error)
        return find_offset(file, self.path, offset, 0, size_bytes, False)

    def start_position(self, offset: int) -> int:
        """From where on a walk comes across the offset: a batch begins there, and not behind the offset."""
        position = self.offset_index.position_for(offset)
        if position == 0:
            return 0
        try:
            find_offset(self._log.reading(), self.path, offset, position, self.size_bytes, False, True)
        except CorruptRecord as error:
            self._distrust_offset_index(error)
            return 0
        return position

    def batch_position_before(self, position: int) -> int:
        """Where a batch begins that is indexed and does not begin behind the position; 0 without one."""
        found = self.offset_index.position_before(position)
        if found and not self.offset_index.is_vouched_for:
            try:
                for _ in self.batches(found):
                    break
            except CorruptRecord as error:
                self._distrust_offset_index(error)
                return 0
        return found

    def read(
        self, start_offset: int, max_bytes: int, max_position: int, min_one_message: bool = False
    ) -> SegmentRead | None:
        """From the batch that has the start offset on, at most that many bytes, which end before the position.

        The first batch comes whole if at least one message is asked for. None when the offset is behind the last.
        """
        assert max_bytes >= 0
        found = self.locate(start_offset)
        if found is None:
            return None
        if min_one_message:
            max_bytes = max(max_bytes, found.size_bytes)
        size_bytes = max(0, min(max_bytes, min(max_position, self.size_bytes) - found.position))
        return SegmentRead(
            FileSlice(self._log.reading(), found.position, size_bytes),
            found.position,
            max_bytes < found.size_bytes,
        )

    def slice(self, position: int, size_bytes: int) -> FileSlice:
        assert position + size_bytes <= self.size_bytes
        return FileSlice(self._log.reading(), position, size_bytes)

    def batches(
        self, start_position: int = 0, end_position: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch. Raises CorruptRecord at bytes that cannot be one."""
        for position, header, _, _ in self._scan(start_position, end_position, whole=False):
            yield position, header

    def whole_batches(
        self, start_position: int = 0, end_position: int | None = None
    ) -> Iterator[ScannedEntry]:
        """Position and header of each batch, with bytes that contain all of it and its start in them."""
        return self._scan(start_position, end_position, whole=True)

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        return self.slice(position, header.size_bytes).read()

    def batches_since(self, timestamp: int, start_offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Batches from one on before which no record at or after the offset is as young as the timestamp."""
        indexed = self.time_index.lookup(timestamp)
        return self.batches(self.start_position(max(indexed.offset, start_offset)))

    def read_next_offset(self) -> Offset:
        """The offset after the last one. It is found from the last index entry on, if the log agrees with that."""
        indexed = self.offset_index.last_entry
        start_position: int = indexed.position
        if start_position and not self._has_batch(start_position, indexed.offset):
            logger.warning("index %s is wrong: all of the segment is read", self.offset_index.path)
            start_position = 0
        next_offset = self.base_offset
        for _, header in self.batches(start_position):
            next_offset = header.next_offset
        return Offset(next_offset)

    def has_overflow(self) -> bool:
        """Whether the last offset is beyond what the indexes can hold, as old brokers could write it."""
        next_offset = self.read_next_offset()
        return next_offset > self.base_offset and not self.can_append_offset(next_offset - 1)

    def first_timestamp(self) -> int | None:
        """The largest timestamp of the first batch; None while there is none."""
        if self._first_timestamp is None:
            for _, header in self.batches():
                self._first_timestamp = header.max_timestamp
                break
        return self._first_timestamp

    def time_waited_for_roll_ms(self, now_ms: int, record_timestamp: int) -> int:
        """How far the record is behind the first one; without timestamps, how old the segment is."""
        first_timestamp = self.first_timestamp()
        if first_timestamp is not None and first_timestamp >= 0:
            return record_timestamp - first_timestamp
        return now_ms - self.created_ms

    def truncate_to(self, offset: int) -> int:
        """Removes the batches that hold the offset or later ones; answers how many bytes went."""
        self._verify_indexes()
        found = self.locate(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        truncated_bytes = 0
        if found is not None:
            truncated_bytes = self.size_bytes - found.position
            self._truncate_log(found.position)
        if self.size_bytes == 0:
            self.created_ms = self._clock.now_ms()
            self._first_timestamp = None
        self._bytes_since_index_entry = 0
        self._find_largest_timestamp()
        return truncated_bytes

    def recover(self, on_batch: OnBatch | None = None, *, cut_on_overflow: bool = False) -> int:
        """Checks every batch, truncates the file before the first damaged or incomplete one, and rebuilds the indexes.

        Calls `on_batch` for each good batch, with bytes that contain all of it and its start in them; it may append to
        the transaction index, and reject the batch by CorruptRecord. Returns the number of truncated bytes.

        An offset beyond the indexes is damage too, if `cut_on_overflow` is set: no broker has written one for years.
        Otherwise SegmentOffsetOverflow is raised after the batches before it were indexed; nothing is truncated.
        """
        self.offset_index.reset()
        self.time_index.reset()
        self.transaction_index.reset()
        self._indexes_verified = True
        self._timestamps_known = True
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self._first_timestamp = None
        valid_bytes = 0
        indexed_bytes = 0
        next_offset = self.base_offset
        overflow: SegmentOffsetOverflow | None = None
        try:
            for position, header, chunk, at in self.whole_batches():
                verify_crc(chunk, at, header)
                last_offset = header.last_offset
                # The checksum does not cover the base offset.
                if header.base_offset < next_offset or header.last_offset_delta < 0:
                    raise CorruptRecord(
                        f"offsets {header.base_offset} to {last_offset} cannot follow {next_offset - 1}"
                    )
                if not self.offset_index.can_append_offset(last_offset):
                    overflow = SegmentOffsetOverflow(self, last_offset, position)
                    if cut_on_overflow:
                        raise CorruptRecord(str(overflow))
                    break
                if on_batch is not None:
                    on_batch(header, chunk, at)
                if header.max_timestamp > self._max_timestamp:
                    self._max_timestamp = header.max_timestamp
                    self._offset_of_max_timestamp = last_offset
                if position - indexed_bytes > self._index_interval_bytes and not self.index_is_full:
                    self.offset_index.append(last_offset, position)
                    self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
                    indexed_bytes = position
                valid_bytes = position + header.size_bytes
                next_offset = last_offset + 1
        except (CorruptRecord, InvalidRecord) as error:
            logger.warning("segment %s is cut at position %d: %s", self.path, valid_bytes, error)
            overflow = None
        # After a crash of only the process, data may be in the page cache only.
        self._unsynced = True
        self._bytes_since_index_entry = 0
        if overflow is not None:
            self.become_inactive()
            raise overflow
        truncated_bytes = self.size_bytes - valid_bytes
        if truncated_bytes:
            self._truncate_log(valid_bytes)
        self.become_inactive()
        return truncated_bytes

    def sanity_check(self, *, has_offset_index: bool, has_time_index: bool) -> None:
        """The checks when a segment is opened; a listing shows which files exist.

        Raises CorruptIndex if the indexes must be rebuilt.
        """
        if not has_offset_index:
            raise CorruptIndex(f"index {self.offset_index.path} is missing")
        if not has_time_index:
            raise CorruptIndex(f"index {self.time_index.path} is missing")
        if self.transaction_index.exists:
            self.transaction_index.sanity_check()

    def become_inactive(self) -> None:
        """Notes the largest timestamp in the time index, and cuts all files to what they hold."""
        self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self.offset_index.trim()
        self.time_index.trim()
        self._trim_log()

    def flush(self) -> None:
        """Returns once all that was appended before is on the disk."""
        if self._unsynced:
            self._unsynced = False
            self._log.writing().sync()
        self.offset_index.flush()
        self.time_index.flush()
        self.transaction_index.flush()

    def close(self, *, syncs: bool = True) -> None:
        """Leaves the files as a clean shutdown does, on the disk if they matter. Does not touch unchanged files."""
        if self._timestamps_known:
            self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        self._trim_log()
        self.offset_index.trim()
        self.time_index.trim()
        if syncs:
            self.flush()
        self.release()

    def release(self) -> None:
        """Lets go of files and memory and writes nothing: the disk may have failed, or the files are another's."""
        self._log.close()
        self.offset_index.release()
        self.time_index.release()
        self.transaction_index.release()

    def change_state(self, state: str) -> None:
        """Renames the files so that their names end with `state` ("" for those of a segment in use)."""
        prefix = os.path.join(os.path.dirname(self.path), segment_file(self.base_offset, ""))
        self._log.rename(prefix + LOG_SUFFIX + state)
        if state == DELETED_SUFFIX and self.transaction_index.exists:
            # A power failure may bring the log back. It must not come back without its aborted transactions: in
            # contrast to the other indexes, nothing shows that they are missing.
            self._fs.sync_dir(os.path.dirname(self.path))
        self.offset_index.rename(prefix + OFFSET_INDEX_SUFFIX + state)
        self.time_index.rename(prefix + TIME_INDEX_SUFFIX + state)
        self.transaction_index.rename(prefix + TRANSACTION_INDEX_SUFFIX + state)

    def relocate(self, directory: str) -> None:
        """Notes that the partition's directory has been renamed."""
        self._log.relocate(directory)
        self.offset_index.relocate(directory)
        self.time_index.relocate(directory)
        self.transaction_index.relocate(directory)

    def delete(self) -> None:
        """Removes the files; those that are gone already are not missed. Nothing is written after that."""
        self._timestamps_known = False
        self._unsynced = False
        self._has_slack = False
        self._log.remove()
        self.offset_index.remove()
        self.time_index.remove()
        self.transaction_index.remove()

    def modified_ms(self) -> int:
        return self._fs.modified_ms(self.path)

    def set_modified_ms(self, modified_ms: int) -> None:
        for path in (self.path, self.offset_index.path, self.time_index.path):
            self._fs.set_modified_ms(path, modified_ms)

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, base offset {self.base_offset}, {self._size_bytes} bytes)"

    def _scan(self, start_position: int, end_position: int | None, whole: bool) -> Iterator[ScannedEntry]:
        end = self.size_bytes
        if end_position is not None:
            end = min(end, end_position)
        return scan(self._log.reading(), self.path, start_position, end, whole)

    def _verify_indexes(self) -> None:
        self.offset_index.verify()
        self.time_index.verify()
        self._indexes_verified = True

    def _distrust_offset_index(self, error: CorruptRecord) -> None:
        """An entry has led nowhere. The index is rebuilt, unless batches are being appended."""
        if self._indexes_verified:
            logger.error("index %s is wrong: %s", self.offset_index.path, error)
        else:
            self.offset_index.rebuild(str(error))

    def _has_batch(self, position: int, last_offset: int) -> bool:
        if not 0 <= position < self.size_bytes:
            return False
        try:
            for _, header in self.batches(position):
                return header.last_offset == last_offset
        except CorruptRecord:
            pass
        return False

    def _load_timestamps(self) -> None:
        last = self.time_index.last_entry
        self._max_timestamp = last.timestamp
        self._offset_of_max_timestamp = last.offset
        self._timestamps_known = True

    def _find_largest_timestamp(self) -> None:
        self._load_timestamps()
        position = self.start_position(self._offset_of_max_timestamp)
        for _, header in self.batches(position):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp = header.max_timestamp
                self._offset_of_max_timestamp = header.last_offset

    def _truncate_log(self, size_bytes: int) -> None:
        self._log.writing().truncate(size_bytes)
        self._size_bytes = size_bytes
        self._has_slack = False
        self._unsynced = True

    def _trim_log(self) -> None:
        if self._has_slack:
            self._truncate_log(self._size_bytes)
