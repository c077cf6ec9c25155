"""A walk over the batches of a piece of a log file, which may contain anything.

The walk checks each batch's length, magic, checksum and position in the order of offsets. Bytes that are not a batch
form a Corruption, and the walk continues after them: at the next batch if one follows, else at a batch that the offset
index knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.errors import CorruptMessage
from barnabas.log.file_system import File
from barnabas.log.reader.partition_files import OffsetIndexReader, SegmentGone, header_at, open_segment
from barnabas.log.reader.transactions import is_blank
from barnabas.records.header import BatchHeader, CorruptRecord, parse_header, verify_crc
from barnabas.records.layout import HEADER_PROBE_BYTES, HEADER_UP_TO_MAGIC_BYTES, INT32_MAX
from barnabas.spark.logs.plan import Piece

# Read at once: large enough for few calls, small enough to stay in a processor's cache.
CHUNK_BYTES: Final = 1 << 20


class Found(NamedTuple):
    """A complete batch with a valid checksum."""

    position: int
    header: BatchHeader
    data: bytes
    position_in_data: int


class Corruption(NamedTuple):
    """Bytes from the position that are not a batch, with their header if it is valid."""

    position: int
    next_position: int
    what: str
    header: BatchHeader | None

    def error(self, path: str) -> CorruptMessage:
        return CorruptRecord(
            f"log file {path} is corrupt at position {self.position}: {self.what}; set onCorruption to rows or skip to"
            " read what is around it"
        )


class PieceWalk:
    def __init__(self, piece: Piece) -> None:
        self._piece: Final = piece
        self._file: Final[File] = open_segment(piece.segment.path, piece.segment.inode)
        self._chunk = b""
        self._chunk_position = 0
        # An index has offsets relative to the base offset, of 31 bits.
        self._end_base_offset: Final = (
            piece.segment.base_offset + INT32_MAX + 1
            if piece.segment.end_base_offset is None
            else piece.segment.end_base_offset
        )

    def __iter__(self) -> Iterator[Found | Corruption]:
        """Raises SegmentGone if the file is cut off while it is read."""
        piece = self._piece
        end = piece.end_position
        position = piece.start_position
        next_offset = piece.segment.base_offset
        while position < end:
            header: BatchHeader | None = None
            try:
                header, at = self._batch_at(position, next_offset)
            except CorruptRecord as error:
                next_position = self._position_after(position)
                if next_position < 0:
                    return
                yield Corruption(position, next_position, str(error), self._header)
                position = next_position
                continue
            yield Found(position, header, self._chunk, at)
            next_offset = header.next_offset
            position += header.size_bytes

    def _batch_at(self, position: int, next_offset: int) -> tuple[BatchHeader, int]:
        """The header, and where in the chunk the batch stands."""
        self._header: BatchHeader | None = None
        end = self._piece.end_position
        at = position - self._chunk_position
        if at + HEADER_PROBE_BYTES > len(self._chunk):
            at = self._load(position, CHUNK_BYTES)
        if end - position < HEADER_UP_TO_MAGIC_BYTES:
            raise CorruptRecord(f"{end - position} bytes are too few for a batch")
        try:
            header = parse_header(self._chunk, at)
        except CorruptRecord:
            raise CorruptRecord("no batch begins here") from None
        if header.size_bytes > end - position:
            raise CorruptRecord(
                f"a batch of {header.size_bytes} bytes begins here, of which {end - position} are there"
            )
        if at + header.size_bytes > len(self._chunk):
            at = self._load(position, max(CHUNK_BYTES, header.size_bytes))
        try:
            verify_crc(self._chunk, at, header)
        except CorruptRecord:
            self._header = header
            raise CorruptRecord(
                f"the checksum {header.crc} of the batch at offset {header.base_offset} is not that of its bytes"
            ) from None
        if not next_offset <= header.base_offset <= header.last_offset < self._end_base_offset:
            self._header = header
            raise CorruptRecord(
                f"offsets {header.base_offset} to {header.last_offset} are not between {next_offset}, which comes next,"
                f" and {self._end_base_offset}, where the segment ends at the latest"
            )
        return header, at

    def _load(self, position: int, size_bytes: int) -> int:
        wanted_bytes = min(size_bytes, self._piece.end_position - position)
        chunk = self._file.pread(wanted_bytes, position)
        if len(chunk) < wanted_bytes:
            raise SegmentGone(
                f"{self._piece.segment.path} was truncated to {position + len(chunk)} bytes after the query was planned"
            )
        self._chunk = chunk
        self._chunk_position = position
        return 0

    def _position_after(self, position: int) -> int:
        """The position after bytes that are not a batch; -1 if they are only an incomplete end of the log."""
        piece = self._piece
        header = self._header
        if header is not None:
            follows = position + header.size_bytes
            if follows == piece.end_position or header_at(self._file, follows) is not None:
                return follows
        found = OffsetIndexReader(piece.segment, self._file).position_after(position)
        if piece.is_tail and found >= piece.end_position:
            torn = header_at(self._file, position)
            if torn is not None and position + torn.size_bytes > piece.end_position:
                return -1
            if piece.end_position - position < HEADER_PROBE_BYTES or is_blank(
                self._file, position, piece.end_position
            ):
                return -1
        return min(found, piece.end_position)


def walk_range(piece: Piece) -> Iterator[Found | Corruption]:
    """The same up to the piece's end offset; ignores everything after the last batch before it."""
    for item in PieceWalk(piece):
        if isinstance(item, Found):
            if item.header.base_offset >= piece.end_offset:
                return
            yield item
            if item.header.next_offset >= piece.end_offset:
                return
        else:
            yield item
