"""The batches of a log file with any content, for tools, without a segment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.log.file_system import File
from barnabas.records.header import BatchHeader, CorruptRecord, entry_size, parse_header
from barnabas.records.layout import LOG_OVERHEAD_BYTES

CHUNK_BYTES: Final = 1 << 20


class FoundBatch(NamedTuple):
    """A complete batch. Its checksum and its records have not been checked."""

    position: int
    header: BatchHeader
    data: bytes
    position_in_data: int


class BadBatch(CorruptRecord):
    """No batch begins at the position: the walk ends there."""

    def __init__(self, position: int, what: str) -> None:
        super().__init__(what)
        self.position = position
        self.what = what


def walk_batches(file: File, size_bytes: int) -> Iterator[FoundBatch]:
    """Each batch of the first `size_bytes` of a file; raises BadBatch where they cease to be batches."""
    position = 0
    chunk, chunk_position = b"", 0
    while position < size_bytes:
        at = position - chunk_position
        remaining_bytes = size_bytes - position
        if remaining_bytes < LOG_OVERHEAD_BYTES:
            raise BadBatch(position, f"{remaining_bytes} bytes are too few for a batch")
        if at + LOG_OVERHEAD_BYTES > len(chunk):
            chunk, chunk_position, at = file.pread(CHUNK_BYTES, position), position, 0
        try:
            batch_bytes = entry_size(chunk, at)
        except CorruptRecord:
            raise BadBatch(position, "no batch begins here: its length is below that of any record") from None
        if batch_bytes > remaining_bytes:
            raise BadBatch(
                position, f"a batch of {batch_bytes} bytes begins here, of which {remaining_bytes} are there"
            )
        if at + batch_bytes > len(chunk):
            # A length that is garbage cannot ask for more than the file has.
            chunk, chunk_position, at = file.pread(max(CHUNK_BYTES, batch_bytes), position), position, 0
            if len(chunk) < batch_bytes:
                raise BadBatch(position, "the file became shorter while it was read")
        try:
            header = parse_header(chunk, at)
        except CorruptRecord as error:
            raise BadBatch(position, f"no batch begins here: {error}") from None
        yield FoundBatch(position, header, chunk, at)
        position += header.size_bytes
