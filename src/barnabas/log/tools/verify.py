"""Checks a log directory for consistency, without changing it: every fault with its file and position.

For each partition one walk visits the segments in order: every batch's length, magic, checksum, offsets and records.
The results are then compared with the other files of the segment: an entry of the offset index must start at a batch
and lead to its offset, one of the time index must name the largest timestamp up to its offset, an aborted transaction
must have its marker. Snapshots and checkpoints are read and checked as at a start.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from barnabas.errors import KafkaError
from barnabas.log import checkpoints, names
from barnabas.log.file_system import READ, FileSystem, NoSuchFile
from barnabas.log.producers.snapshot import decode_snapshot
from barnabas.log.segment.offset_index import ENTRY as OFFSET_ENTRY
from barnabas.log.segment.time_index import ENTRY as TIME_ENTRY
from barnabas.log.segment.transaction_index import ENTRY as TRANSACTION_ENTRY
from barnabas.log.side_files import parse_side_files
from barnabas.log.tools.walk import BadBatch, FoundBatch, walk_batches
from barnabas.records.control import control_record_type
from barnabas.records.header import verify_crc
from barnabas.records.layout import INT32_MAX, MAGIC_V2, ControlRecordType
from barnabas.records.reader import decode_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    path: str
    position: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}: position {self.position}: {self.what}"


OnBytes = Callable[[int], None]


def verify_directory(fs: FileSystem, directory: str, on_bytes: OnBytes = lambda _: None) -> Iterator[Fault]:
    """All faults of a log directory, or of one partition's directory; `on_bytes` gets the number of log bytes read."""
    partitions = partition_directories(fs, directory)
    if not partitions:
        yield from _PartitionCheck(fs, directory, on_bytes).faults()
        return
    for name in fs.list_dir(directory):
        read = _ROOT_FILES.get(name)
        if read is not None:
            yield from _verify_text(fs, os.path.join(directory, name), read)
    for name in partitions:
        yield from _PartitionCheck(fs, os.path.join(directory, name), on_bytes).faults()


def partition_directories(fs: FileSystem, directory: str) -> list[str]:
    """The names of the partitions' directories in a log directory, without those that wait for deletion."""
    found = []
    for name in fs.list_dir(directory):
        if not fs.is_dir(os.path.join(directory, name)):
            continue
        try:
            parsed = names.parse_partition_dir(name)
        except names.BadDirectoryName:
            continue
        if parsed.mark in ("", names.FUTURE_DIR_SUFFIX):
            found.append(name)
    return found


def log_bytes(fs: FileSystem, directory: str) -> int:
    """How many bytes of records a walk over the directory will read."""
    folders = [os.path.join(directory, name) for name in partition_directories(fs, directory)] or [directory]
    return sum(
        fs.size_of(os.path.join(folder, name))
        for folder in folders
        for name in fs.list_dir(folder)
        if name.endswith(names.LOG_SUFFIX)
    )


class _Walked:
    """The result of the walk over one segment: one column per property, one row per batch."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.positions: list[int] = []
        self.last_offsets: list[int] = []
        self.max_timestamps: list[int] = []
        self.abort_markers: dict[int, int] = {}
        # Aborted transactions of which the log still has a batch: marker's offset -> (producer, first offset seen).
        self.aborted: dict[int, tuple[int, int]] = {}

    def add(self, batch: FoundBatch) -> None:
        self.positions.append(batch.position)
        self.last_offsets.append(batch.header.last_offset)
        self.max_timestamps.append(batch.header.max_timestamp)


class _PartitionCheck:
    def __init__(self, fs: FileSystem, directory: str, on_bytes: OnBytes) -> None:
        self._fs = fs
        self._directory = directory
        self._on_bytes = on_bytes
        self._files = fs.list_dir(directory)
        self._previous_last_offset = -1
        self._open_transactions: dict[int, int] = {}

    def faults(self) -> Iterator[Fault]:
        parsed = [name for name in map(names.parse_segment_file, self._files) if name and not name.state]
        bases = sorted(name.base_offset for name in parsed if name.kind == names.LOG_SUFFIX)
        for base_offset in bases:
            yield from self._verify_segment(base_offset, is_last=base_offset == bases[-1])
        for name in parsed:
            if name.kind == names.PRODUCER_SNAPSHOT_SUFFIX:
                yield from self._verify_snapshot(name.base_offset)
            elif name.kind != names.LOG_SUFFIX and name.base_offset not in bases:
                path = self._path(name.base_offset, name.kind)
                yield Fault(path=path, position=0, what="its log file is missing")
        for file, read in _PARTITION_FILES.items():
            if file in self._files:
                yield from _verify_text(self._fs, os.path.join(self._directory, file), read)

    def _path(self, base_offset: int, kind: str) -> str:
        return os.path.join(self._directory, names.segment_file(base_offset, kind))

    def _verify_segment(self, base_offset: int, *, is_last: bool) -> Iterator[Fault]:
        walked = _Walked(base_offset)
        yield from self._verify_log(walked)
        yield from self._verify_offset_index(walked, is_last)
        yield from self._verify_time_index(walked, is_last)
        yield from self._verify_transaction_index(walked)

    def _verify_log(self, walked: _Walked) -> Iterator[Fault]:
        path = self._path(walked.base_offset, names.LOG_SUFFIX)
        file = self._fs.open(path, READ)
        size_bytes = file.size_bytes()
        if walked.base_offset <= self._previous_last_offset:
            yield Fault(
                path=path,
                position=0,
                what=f"the segment before it reaches up to offset {self._previous_last_offset}",
            )
        walked_bytes = 0
        try:
            for batch in walk_batches(file, size_bytes):
                for what in self._batch_faults(walked, batch):
                    yield Fault(path=path, position=batch.position, what=what)
                walked.add(batch)
                self._previous_last_offset = max(self._previous_last_offset, batch.header.last_offset)
                self._on_bytes(batch.header.size_bytes)
                walked_bytes += batch.header.size_bytes
        except BadBatch as error:
            yield Fault(path=path, position=error.position, what=error.what)
            self._on_bytes(size_bytes - walked_bytes)

    def _batch_faults(self, walked: _Walked, batch: FoundBatch) -> Iterator[str]:
        header = batch.header
        try:
            verify_crc(batch.data, batch.position_in_data, header)
        except KafkaError as error:
            yield str(error)
            return
        # The base offset of a compressed message of an old format is not in its header.
        first_offset = header.base_offset
        if first_offset <= self._previous_last_offset or header.last_offset < first_offset:
            yield (
                f"offsets {first_offset} to {header.last_offset} do not follow {self._previous_last_offset}"
            )
        if first_offset < walked.base_offset or header.last_offset - walked.base_offset > INT32_MAX:
            yield (
                f"offsets {first_offset} to {header.last_offset} do not belong into the segment"
                f" that begins at {walked.base_offset}"
            )
        try:
            records = decode_batch(batch.data, batch.position_in_data, header=header)
            if header.is_control and records:
                self._note_marker(walked, header.producer_id, header.base_offset, records[0].key)
        except KafkaError as error:
            yield f"the records of the batch at offset {header.base_offset} cannot be read: {error}"
            return
        if header.magic >= MAGIC_V2:
            if records and records[-1].offset > header.last_offset:
                yield f"record {records[-1].offset} lies beyond its batch, which ends at {header.last_offset}"
            if header.is_transactional and not header.is_control:
                self._open_transactions.setdefault(header.producer_id, header.base_offset)
        if any(later.offset <= earlier.offset for earlier, later in pairwise(records)):
            yield f"the records of the batch at offset {header.base_offset} are not in order"

    def _note_marker(self, walked: _Walked, producer_id: int, offset: int, key: bytes | None) -> None:
        kind = control_record_type(key)
        if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            return
        first_offset = self._open_transactions.pop(producer_id, None)
        if kind == ControlRecordType.ABORT:
            walked.abort_markers[offset] = producer_id
            if first_offset is not None:
                walked.aborted[offset] = (producer_id, first_offset)

    def _read_index(self, path: str, entry_bytes: int, is_last: bool) -> Iterator[Fault | bytes]:
        """The entries, with a fault before them if the file has an invalid size. A missing file is a fault too."""
        try:
            data = self._fs.read_file(path)
        except NoSuchFile:
            yield Fault(path=path, position=0, what="the index is missing")
            return
        if len(data) % entry_bytes:
            yield Fault(
                path=path,
                position=len(data) - len(data) % entry_bytes,
                what=f"{len(data)} bytes are not a number of entries of {entry_bytes} bytes",
            )
        if is_last:
            # Before a clean stop the index of the active segment is preallocated with zeros.
            data = data[: -(-len(data.rstrip(b"\0")) // entry_bytes) * entry_bytes]
        yield data[: len(data) - len(data) % entry_bytes]

    def _verify_offset_index(self, walked: _Walked, is_last: bool) -> Iterator[Fault]:
        path = self._path(walked.base_offset, names.OFFSET_INDEX_SUFFIX)
        previous_offset, previous_position = -1, -1
        for data in self._read_index(path, OFFSET_ENTRY.size, is_last):
            if isinstance(data, Fault):
                yield data
                continue
            for number, (relative_offset, position) in enumerate(OFFSET_ENTRY.iter_unpack(data)):
                what = _offset_entry_fault(
                    walked, relative_offset, position, previous_offset, previous_position
                )
                if what:
                    yield Fault(path=path, position=number * OFFSET_ENTRY.size, what=what)
                previous_offset, previous_position = relative_offset, position

    def _verify_time_index(self, walked: _Walked, is_last: bool) -> Iterator[Fault]:
        path = self._path(walked.base_offset, names.TIME_INDEX_SUFFIX)
        largest = list(accumulate(walked.max_timestamps, max))
        previous_timestamp, previous_offset = -1, -1
        for data in self._read_index(path, TIME_ENTRY.size, is_last):
            if isinstance(data, Fault):
                yield data
                continue
            for number, (timestamp, relative_offset) in enumerate(TIME_ENTRY.iter_unpack(data)):
                what = _time_entry_fault(
                    walked, largest, timestamp, relative_offset, previous_timestamp, previous_offset
                )
                if what:
                    yield Fault(path=path, position=number * TIME_ENTRY.size, what=what)
                previous_timestamp, previous_offset = timestamp, relative_offset

    def _verify_transaction_index(self, walked: _Walked) -> Iterator[Fault]:
        path = self._path(walked.base_offset, names.TRANSACTION_INDEX_SUFFIX)
        try:
            data = self._fs.read_file(path)
        except NoSuchFile:
            # It exists only where a transaction was aborted.
            data = b""
        entry_bytes = TRANSACTION_ENTRY.size
        whole_bytes = len(data) - len(data) % entry_bytes
        if whole_bytes != len(data):
            yield Fault(path=path, position=whole_bytes, what="the last entry is cut off")
        missing = dict(walked.aborted)
        for number, entry in enumerate(TRANSACTION_ENTRY.iter_unpack(data[:whole_bytes])):
            version, producer_id, first_offset, last_offset, _ = entry
            found = missing.pop(last_offset, None)
            what = ""
            if version != 0:
                what = f"version {version} is unknown"
            elif walked.abort_markers.get(last_offset) != producer_id:
                what = f"there is no abort marker of producer {producer_id} at offset {last_offset}"
            elif found is not None and first_offset > found[1]:
                what = f"the transaction begins at offset {found[1]}, not {first_offset}"
            if what:
                yield Fault(path=path, position=number * entry_bytes, what=what)
        for offset, (producer_id, first_offset) in missing.items():
            yield Fault(
                path=path,
                position=whole_bytes,
                what=f"the transaction of producer {producer_id} from {first_offset} to {offset} is missing",
            )

    def _verify_snapshot(self, offset: int) -> Iterator[Fault]:
        path = self._path(offset, names.PRODUCER_SNAPSHOT_SUFFIX)
        try:
            entries = decode_snapshot(self._fs.read_file(path), path)
        except KafkaError as error:
            yield Fault(path=path, position=0, what=str(error))
            return
        for entry in entries:
            if entry.last_data_offset >= offset:
                yield Fault(
                    path=path,
                    position=0,
                    what=f"producer {entry.producer_id} has written up to {entry.last_data_offset}, after the snapshot",
                )


def _offset_entry_fault(
    walked: _Walked, relative_offset: int, position: int, previous_offset: int, previous_position: int
) -> str:
    offset = walked.base_offset + relative_offset
    if relative_offset <= previous_offset or position <= previous_position:
        return f"offset {offset} at position {position} does not follow the entry before it"
    row = bisect_left(walked.positions, position)
    if row == len(walked.positions) or walked.positions[row] != position:
        return f"no batch begins at position {position}, where offset {offset} is said to be"
    if offset > walked.last_offsets[-1]:
        return f"offset {offset} lies beyond the segment's last, {walked.last_offsets[-1]}"
    if row and offset <= walked.last_offsets[row - 1]:
        return f"offset {offset} lies before position {position}"
    return ""


def _time_entry_fault(
    walked: _Walked,
    largest: list[int],
    timestamp: int,
    relative_offset: int,
    previous_timestamp: int,
    previous_offset: int,
) -> str:
    offset = walked.base_offset + relative_offset
    if timestamp <= previous_timestamp or relative_offset < previous_offset:
        return f"timestamp {timestamp} at offset {offset} does not follow the entry before it"
    row = bisect_left(walked.last_offsets, offset)
    if relative_offset < 0 or row == len(walked.last_offsets):
        return f"offset {offset} is not in the segment"
    if largest[row] < timestamp:
        return f"no record up to offset {offset} has timestamp {timestamp}; the largest is {largest[row]}"
    # A search for a later time starts at the entry: no record before it may be that late.
    before = bisect_right(walked.last_offsets, offset - 1)
    if before and largest[before - 1] > timestamp:
        return f"a record before offset {offset} has timestamp {largest[before - 1]}, after {timestamp}"
    return ""


def _verify_text(fs: FileSystem, path: str, parse: Callable[[bytes, str], object]) -> Iterator[Fault]:
    try:
        parse(fs.read_file(path), path)
    except KafkaError as error:
        yield Fault(path=path, position=0, what=str(error))


def _check_epochs(data: bytes, path: str) -> None:
    epochs = checkpoints.parse_epochs(data, path)
    for (epoch, offset), (next_epoch, next_offset) in pairwise(epochs):
        if next_epoch <= epoch or next_offset < offset:
            raise checkpoints.BadCheckpoint(
                f"epoch {next_epoch} from offset {next_offset} on does not follow epoch {epoch} from {offset} on"
            )


def _check_side_files(data: bytes, path: str) -> None:
    if parse_side_files(data) is None:
        raise checkpoints.BadCheckpoint(f"{path} does not have the checksum that it names")


_ROOT_FILES: Final[dict[str, Callable[[bytes, str], object]]] = {
    names.RECOVERY_POINT_CHECKPOINT: checkpoints.parse_offsets,
    names.LOG_START_OFFSET_CHECKPOINT: checkpoints.parse_offsets,
    names.REPLICATION_OFFSET_CHECKPOINT: checkpoints.parse_offsets,
    names.CLEANER_OFFSET_CHECKPOINT: checkpoints.parse_offsets,
    names.LOG_START_OFFSET_CHECKPOINT + names.COPY_SUFFIX: checkpoints.parse_offsets,
    names.CLEANER_OFFSET_CHECKPOINT + names.COPY_SUFFIX: checkpoints.parse_offsets,
    names.META_PROPERTIES: checkpoints.parse_meta_properties,
}
_PARTITION_FILES: Final[dict[str, Callable[[bytes, str], object]]] = {
    names.LEADER_EPOCH_CHECKPOINT: _check_epochs,
    names.PARTITION_METADATA: checkpoints.parse_topic_id,
    names.SIDE_FILES: _check_side_files,
}
