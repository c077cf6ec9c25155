"""The files of log directories as they are at one moment, even if a broker writes to them.

Sizes and inodes are read once. Later appends are not read. The inode shows whether a file was deleted or compacted
later, and a deleted file is read under its `.deleted` name until the broker removes it.

Index entries are hints: an entry counts only if the batch with its offset begins at its position.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.errors import InvalidConfig, KafkaError, KafkaStorageError
from barnabas.log import checkpoints, names
from barnabas.log.file_system import READ, DiskFileSystem, File, NoSuchFile
from barnabas.log.segment.index_columns import Columns, split_columns
from barnabas.log.segment.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from barnabas.log.segment.scan import ScannedEntry, scan
from barnabas.log.segment.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from barnabas.model import TopicPartition
from barnabas.records.header import BatchHeader, CorruptRecord, parse_header, verify_crc
from barnabas.records.layout import HEADER_PROBE_BYTES
from barnabas.records.reader import decode_batch
from barnabas.records.record import Record

NO_ENTRIES: Final = Columns(array("i"), array("i"))
# After this many wrong entries in a row the rest of an index is ignored.
WRONG_ENTRIES_MAX: Final = 64


class SegmentGone(KafkaStorageError):
    """A file was listed and is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """The log file of a segment; `end_base_offset` is the next one's base offset, None for the last."""

    path: str
    inode: int
    size_bytes: int
    base_offset: int
    end_base_offset: int | None

    @property
    def is_last(self) -> bool:
        return self.end_base_offset is None

    def sibling(self, suffix: str) -> str:
        return self.path.removesuffix(names.LOG_SUFFIX) + suffix


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFiles:
    """A partition's directory. The broker has synced all files before the recovery point, so they are complete."""

    partition: TopicPartition
    directory: str
    segments: tuple[SegmentFile, ...]
    log_start_offset: int
    recovery_point: int

    def is_synced(self, segment: SegmentFile) -> bool:
        return segment.end_base_offset is not None and segment.end_base_offset <= self.recovery_point

    def snapshots(self) -> list[int]:
        """The offsets of the producer snapshots, the newest first."""
        found = map(names.parse_segment_file, os.listdir(self.directory))
        return sorted(
            (
                each.base_offset
                for each in found
                if each and each.kind == names.PRODUCER_SNAPSHOT_SUFFIX and not each.state
            ),
            reverse=True,
        )


def find_partitions(paths: Sequence[str], chooses: Callable[[TopicPartition], bool]) -> list[PartitionFiles]:
    """The partitions in the paths, which are log directories or directories of partitions.

    Of several replicas of a partition, the most advanced one is chosen. InvalidConfig names a path that has none.
    """
    found: dict[TopicPartition, PartitionFiles] = {}
    for path in paths:
        for files in _partitions_of_host(path, chooses):
            other = found.get(files.partition)
            if other is None or _advance(files) > _advance(other):
                found[files.partition] = files
    return [found[partition] for partition in sorted(found)]


def _partitions_of_host(path: str, chooses: Callable[[TopicPartition], bool]) -> Iterator[PartitionFiles]:
    """Those of all brokers that have their log directories in this one."""
    first, *others = names.host_directories(path)
    if not others:
        yield from _partitions_in(path, chooses)
        return
    empty = 0
    for each in (first, *others):
        try:
            yield from _partitions_in(each, chooses)
        except InvalidConfig:
            # A broker may have no partition.
            empty += 1
            if empty > len(others):
                raise


def _partitions_in(path: str, chooses: Callable[[TopicPartition], bool]) -> Iterator[PartitionFiles]:
    path = os.path.abspath(path)
    try:
        listed = sorted(os.listdir(path))
    except OSError as error:
        raise InvalidConfig(
            f"{path}: {error.strerror}; name a broker's log directory or a partition's directory"
        ) from None
    if any((name := names.parse_segment_file(each)) and name.kind == names.LOG_SUFFIX for each in listed):
        try:
            partition = names.parse_partition_dir(os.path.basename(path)).partition
        except names.BadDirectoryName as error:
            raise InvalidConfig(f"{path}: {error}") from None
        root, chosen = os.path.dirname(path), [(partition, path)]
    else:
        root, chosen = path, list(_directories(path, listed))
        if not chosen:
            raise InvalidConfig(
                f"{path} has no directories of partitions, such as orders-0; name a broker's log directory"
            )
    starts = _checkpoint(root, names.LOG_START_OFFSET_CHECKPOINT)
    recovery_points = _checkpoint(root, names.RECOVERY_POINT_CHECKPOINT)
    for partition, directory in chosen:
        if chooses(partition):
            segments = _segments(directory)
            if segments:
                yield PartitionFiles(
                    partition=partition,
                    directory=directory,
                    segments=segments,
                    log_start_offset=max(starts.get(partition, 0), segments[0].base_offset),
                    recovery_point=recovery_points.get(partition, 0),
                )


def _directories(path: str, listed: list[str]) -> Iterator[tuple[TopicPartition, str]]:
    for name in listed:
        directory = os.path.join(path, name)
        try:
            parsed = names.parse_partition_dir(name)
        except names.BadDirectoryName:
            continue
        if not parsed.mark and os.path.isdir(directory):
            yield parsed.partition, directory


def _checkpoint(root: str, name: str) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint; none if it is missing or damaged, as in a broker."""
    try:
        return {**checkpoints.read_offsets(DiskFileSystem(), os.path.join(root, name))}
    except KafkaStorageError:
        return {}


def _segments(directory: str) -> tuple[SegmentFile, ...]:
    try:
        listed = os.listdir(directory)
    except FileNotFoundError:
        # The topic was deleted after the listing.
        return ()
    parsed = [name for name in map(names.parse_segment_file, listed) if name is not None]
    bases = sorted(name.base_offset for name in parsed if name.kind == names.LOG_SUFFIX and not name.state)
    found: list[SegmentFile] = []
    for base_offset, end_base_offset in zip(bases, [*bases[1:], None], strict=True):
        path = os.path.join(directory, names.segment_file(base_offset, names.LOG_SUFFIX))
        try:
            status = os.stat(path)
        except FileNotFoundError:
            # Retention deleted it after the listing.
            continue
        found.append(
            SegmentFile(
                path=path,
                inode=status.st_ino,
                size_bytes=status.st_size,
                base_offset=base_offset,
                end_base_offset=end_base_offset,
            )
        )
    return tuple(found)


def open_segment(path: str, inode: int) -> File:
    """The file that was listed; raises SegmentGone if it no longer exists."""
    fs = DiskFileSystem()
    for name in (path, path + names.DELETED_SUFFIX):
        try:
            file = fs.open(name, READ)
        except NoSuchFile:
            continue
        if os.fstat(file.fileno()).st_ino == inode:
            return file
    raise SegmentGone(f"{path} was deleted or compacted after it was listed")


def read_index(segment: SegmentFile, suffix: str, entry_bytes: int) -> Columns:
    """The entries of an index without its preallocated zeros; none if there is no file."""
    try:
        file = DiskFileSystem().open(segment.sibling(suffix), READ)
        count = _used_entries(file, file.size_bytes() // entry_bytes, entry_bytes)
        data = file.pread(count * entry_bytes, 0)
    except KafkaStorageError:
        return NO_ENTRIES
    return split_columns(data[: len(data) - len(data) % entry_bytes], entry_bytes)


def _used_entries(file: File, count: int, entry_bytes: int) -> int:
    """The number of entries before the zeros, found by bisection: an index may have millions preallocated."""
    nothing = bytes(entry_bytes)
    if count and file.pread(entry_bytes, (count - 1) * entry_bytes) != nothing:
        return count
    return bisect_left(
        range(count), True, key=lambda slot: file.pread(entry_bytes, slot * entry_bytes) == nothing
    )


class OffsetIndexReader:
    """An offset index. Only entries that point at their batch are used."""

    def __init__(self, segment: SegmentFile, file: File) -> None:
        self._segment = segment
        self._file = file
        entries = read_index(segment, names.OFFSET_INDEX_SUFFIX, OFFSET_ENTRY_BYTES)
        self._offsets = entries.keys
        self._positions = entries.values

    def start_position(self, offset: int) -> int:
        """The largest known position of a batch at or before the batch that holds the offset."""
        slot = bisect_right(self._offsets, offset - self._segment.base_offset) - 1
        for candidate in range(slot, max(slot - WRONG_ENTRIES_MAX, -1), -1):
            if self._is_right(candidate):
                return self._positions[candidate]
        return 0

    def end_position(self, offset: int) -> int:
        """A position after all batches with records before the offset; the end of the file without such an entry."""
        slot = bisect_right(self._offsets, offset - self._segment.base_offset - 1)
        # The batch of this entry ends at or after the offset, and may begin before it.
        return self._first_right(slot + 1)

    def position_after(self, position: int) -> int:
        """The first known position of a batch after the given one; the end of the file if there is none."""
        return self._first_right(bisect_right(self._positions, position))

    def _first_right(self, slot: int) -> int:
        for candidate in range(slot, min(slot + WRONG_ENTRIES_MAX, len(self._positions))):
            if self._is_right(candidate):
                return self._positions[candidate]
        return self._segment.size_bytes

    def _is_right(self, slot: int) -> bool:
        position = self._positions[slot]
        if not 0 < position < self._segment.size_bytes:
            return False
        header = header_at(self._file, position)
        return (
            header is not None
            and header.last_offset == self._segment.base_offset + self._offsets[slot]
            and position + header.size_bytes <= self._segment.size_bytes
        )


def header_at(file: File, position: int) -> BatchHeader | None:
    """The header at the position; None if no batch can begin there."""
    try:
        return parse_header(file.pread(HEADER_PROBE_BYTES, position))
    except CorruptRecord:
        return None


def scan_headers(segment: SegmentFile, file: File, position: int) -> Iterator[ScannedEntry]:
    return scan(file, segment.path, position, segment.size_bytes, False)


def log_end_offset(files: PartitionFiles) -> int:
    """The offset after the last complete batch."""
    segment = files.segments[-1]
    end_offset = segment.base_offset
    file = open_segment(segment.path, segment.inode)
    position = OffsetIndexReader(segment, file).start_position(1 << 62)
    try:
        for _, header, _, _ in scan_headers(segment, file, position):
            end_offset = header.next_offset
    except CorruptRecord:
        # Readers stop here too.
        pass
    return end_offset


def _advance(files: PartitionFiles) -> tuple[int, int]:
    """Orders replicas by leader epoch, then by end: one that is ahead in an older epoch will be truncated."""
    try:
        epochs = checkpoints.read_epochs(
            DiskFileSystem(), os.path.join(files.directory, names.LEADER_EPOCH_CHECKPOINT)
        )
        epoch = epochs[-1][0] if epochs else -1
    except KafkaStorageError:
        epoch = -1
    return epoch, log_end_offset(files)


def first_offset_at(files: PartitionFiles, time_ms: int) -> int | None:
    """The offset of the first record at the time or later; None if there is none."""
    for segment in files.segments:
        skipped_offset = last_offset_before(files, segment, time_ms)
        if segment.end_base_offset is not None and skipped_offset >= segment.end_base_offset - 1:
            continue
        file = open_segment(segment.path, segment.inode)
        position = OffsetIndexReader(segment, file).start_position(max(skipped_offset, segment.base_offset))
        try:
            for at, header, _, _ in scan_headers(segment, file, position):
                if header.max_timestamp >= time_ms and header.last_offset >= files.log_start_offset:
                    for record in _records(file, at, header):
                        if record.timestamp >= time_ms and record.offset >= files.log_start_offset:
                            return record.offset
        except CorruptRecord:
            # Reading the segment reports the damage; the next segment may have the record.
            continue
    return None


def _records(file: File, position: int, header: BatchHeader) -> list[Record]:
    """The records of a batch; none if it is damaged."""
    data = file.pread(header.size_bytes, position)
    try:
        verify_crc(data, 0, header)
        return decode_batch(data, 0, header=header)
    except KafkaError:
        return []


def last_offset_before(files: PartitionFiles, segment: SegmentFile, time_ms: int) -> int:
    """An offset up to which all records of the segment are older, from the time index of a synced segment; or -1."""
    if not files.is_synced(segment):
        return -1
    entries = read_index(segment, names.TIME_INDEX_SUFFIX, TIME_ENTRY_BYTES)
    slot = bisect_right(entries.keys, time_ms - 1) - 1
    if slot < 0:
        return -1
    assert segment.end_base_offset is not None
    if slot == len(entries.keys) - 1:
        # The last entry has the largest timestamp of all.
        return segment.end_base_offset - 1
    return segment.base_offset + entries.values[slot]
