"""Walks over the entries of a log file: headers only, whole entries, or just far enough to find an offset.

A file that ends within an entry simply ends before it, as it does in Kafka: the entry was never written in full.
Bytes that cannot be an entry raise CorruptRecord, which names the file and the position.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from barnabas.errors import KafkaStorageError
from barnabas.log.file_system import File
from barnabas.log.segment.results import EntryPosition
from barnabas.records.header import BatchHeader, CorruptRecord, parse_header
from barnabas.records.layout import (
    HEADER_PROBE_BYTES,
    HEADER_UP_TO_MAGIC_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    LENGTH_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    MESSAGE_OVERHEAD_V0_BYTES,
)

# Small entries are read many at a time; of entries that are larger than such a chunk, the headers alone.
FIND_CHUNK_BYTES: Final = 4 << 10
_HEADER_CHUNK_BYTES: Final = 16 << 10
_WHOLE_CHUNK_BYTES: Final = 1 << 20

# From the base offset to the last offset delta, which a find looks at; a message at the end of a file may be shorter.
_FIND_BYTES: Final = LAST_OFFSET_DELTA_POSITION + 4
_PADDING: Final = bytes(_FIND_BYTES)

ScannedEntry = tuple[int, BatchHeader, bytes, int]


def find_offset(
    file: File,
    path: str,
    offset: int,
    position: int,
    end_position: int,
    entries_are_large: bool,
    position_is_hint: bool = False,
) -> EntryPosition | None:
    """The first entry at or after the position whose last offset is not below the offset.

    Raises CorruptRecord where no entry begins. If the position is but a hint, it is also raised for an entry there that
    begins behind the offset, and for entries that do not fill the file: the hint was wrong then.
    """
    wanted_offset: i64 = offset
    entry_position: i64 = position
    end: i64 = end_position
    if position_is_hint and (position < 0 or position >= end_position):
        raise CorruptRecord(f"log file {path} has no position {position}")
    while end - entry_position > HEADER_UP_TO_MAGIC_BYTES:
        chunk_bytes: i64 = HEADER_PROBE_BYTES if entries_are_large else FIND_CHUNK_BYTES
        if chunk_bytes > end - entry_position:
            chunk_bytes = end - entry_position
        chunk = file.pread(chunk_bytes, entry_position)
        if len(chunk) != chunk_bytes:
            raise _cut(path, end_position)
        if entry_position + chunk_bytes == end:
            chunk += _PADDING
        at: i64 = 0
        at_end: i64 = len(chunk) - _FIND_BYTES
        while at <= at_end and end - entry_position > HEADER_UP_TO_MAGIC_BYTES:
            length = i64(read_i32_be(chunk, at + LENGTH_POSITION))
            magic: i64 = chunk[at + MAGIC_POSITION]
            if length < MESSAGE_OVERHEAD_V0_BYTES or magic > MAGIC_V2:
                raise _corrupt(path, entry_position, length, magic)
            size_bytes = length + LOG_OVERHEAD_BYTES
            if size_bytes > end - entry_position:
                if position_is_hint:
                    raise _corrupt(path, entry_position, length, magic)
                return None
            last_offset: i64 = read_i64_be(chunk, at)
            if position_is_hint and entry_position == position and last_offset > wanted_offset:
                raise CorruptRecord(f"log file {path} has a later offset than {offset} at {position}")
            if magic == MAGIC_V2:
                last_offset += i64(read_i32_be(chunk, at + LAST_OFFSET_DELTA_POSITION))
            if last_offset >= wanted_offset:
                return EntryPosition(entry_position, size_bytes)
            at += size_bytes
            entry_position += size_bytes
            entries_are_large = size_bytes > FIND_CHUNK_BYTES
    if position_is_hint and entry_position != end:
        raise CorruptRecord(f"the entries of log file {path} from position {position} on do not fill it")
    return None


def scan(file: File, path: str, position: int, end_position: int, whole: bool) -> Iterator[ScannedEntry]:
    """Yields the position and header of each entry, with a chunk of the file and where in it the entry begins.

    The chunk has the header's bytes, and all of the entry's if whole ones are asked for.
    """
    chunk = b""
    chunk_position = position
    chunk_bytes = _WHOLE_CHUNK_BYTES if whole else _HEADER_CHUNK_BYTES
    while end_position - position > HEADER_UP_TO_MAGIC_BYTES:
        at = position - chunk_position
        if at + HEADER_PROBE_BYTES > len(chunk) and chunk_position + len(chunk) < end_position:
            chunk = _read(file, path, position, end_position, chunk_bytes)
            chunk_position = position
            at = 0
        length = int(read_i32_be(chunk, at + LENGTH_POSITION))
        if length < MESSAGE_OVERHEAD_V0_BYTES:
            raise _corrupt(path, position, length, 0)
        size_bytes = length + LOG_OVERHEAD_BYTES
        if size_bytes > end_position - position:
            return
        try:
            header = parse_header(chunk, at)
        except CorruptRecord as error:
            raise CorruptRecord(
                f"log file {path} is corrupt at position {position}: in what was read from {chunk_position} on, {error}"
            ) from error
        if whole and at + size_bytes > len(chunk):
            chunk = _read(file, path, position, end_position, max(_WHOLE_CHUNK_BYTES, size_bytes))
            chunk_position = position
            at = 0
        elif not whole:
            chunk_bytes = HEADER_PROBE_BYTES if size_bytes > _HEADER_CHUNK_BYTES else _HEADER_CHUNK_BYTES
        yield position, header, chunk, at
        position += size_bytes


def _read(file: File, path: str, position: int, end_position: int, size_bytes: int) -> bytes:
    chunk_bytes = min(size_bytes, end_position - position)
    chunk = file.pread(chunk_bytes, position)
    if len(chunk) != chunk_bytes:
        raise _cut(path, end_position)
    return chunk


def _corrupt(path: str, position: int, length: int, magic: int) -> CorruptRecord:
    return CorruptRecord(
        f"log file {path} is corrupt at position {position}: no entry has length {length} and magic {magic}"
    )


def _cut(path: str, end_position: int) -> KafkaStorageError:
    return KafkaStorageError(f"log file {path} has been cut: it no longer reaches position {end_position}")
