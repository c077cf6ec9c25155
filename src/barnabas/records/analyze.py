"""The contents of the headers of a partition's new records: all that a follower checks, and a leader's first step."""

from __future__ import annotations

from barnabas.errors import MessageTooLarge
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, Offset
from barnabas.records.header import BatchHeader, iterate_headers, parse_header, verify_crc
from barnabas.records.layout import (
    BATCH_HEADER_BYTES,
    COMPRESSION_MASK,
    HEADER_UP_TO_MAGIC_BYTES,
    INT32_MAX,
    MAGIC_V2,
)
from barnabas.records.policy import UNCOMPRESSED


class AnalyzedRecords:
    """The headers of some batches together.

    `valid_bytes` excludes an incomplete last batch. `first_offset` is unknown (-1) if the first batch is older than v2.
    The offset of the largest timestamp is that of the end of its batch.
    """

    __slots__ = (
        "first_offset",
        "headers",
        "last_leader_epoch",
        "last_offset",
        "last_offset_of_first_batch",
        "max_timestamp",
        "offset_of_max_timestamp",
        "offsets_increase",
        "source_compression",
        "valid_bytes",
    )

    def __init__(self) -> None:
        self.headers: list[BatchHeader] = []
        self.valid_bytes = 0
        self.first_offset = NO_OFFSET
        self.last_offset = NO_OFFSET
        self.last_offset_of_first_batch = NO_OFFSET
        self.last_leader_epoch = NO_LEADER_EPOCH
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = NO_OFFSET
        self.offsets_increase = True
        self.source_compression = UNCOMPRESSED


def analyze_records(
    data: bytes | bytearray | memoryview, *, max_message_bytes: int = INT32_MAX, is_own: bool = False
) -> AnalyzedRecords:
    """Checks every whole batch by its header and, unless it was made in this process, its CRC.

    That is all that a follower asks of its leader's records.
    """
    analyzed = AnalyzedRecords()
    position = 0
    end = len(data)
    while end - position >= HEADER_UP_TO_MAGIC_BYTES:
        header = _whole_header(data, position, end)
        if header is None:
            break
        last_offset = Offset(header.base_offset + header.last_offset_delta)
        if position == 0:
            if header.magic == MAGIC_V2:
                analyzed.first_offset = header.base_offset
            analyzed.last_offset_of_first_batch = last_offset
        elif last_offset <= analyzed.last_offset:
            analyzed.offsets_increase = False
        analyzed.last_offset = last_offset
        analyzed.last_leader_epoch = header.partition_leader_epoch
        if header.size_bytes > max_message_bytes:
            raise MessageTooLarge(
                f"a batch of {header.size_bytes} bytes exceeds the {max_message_bytes} that the topic allows"
            )
        if not is_own:
            verify_crc(data, position, header)
        if header.max_timestamp > analyzed.max_timestamp:
            analyzed.max_timestamp = header.max_timestamp
            analyzed.offset_of_max_timestamp = last_offset
        if header.attributes & COMPRESSION_MASK:
            analyzed.source_compression = header.compression
        analyzed.headers.append(header)
        position += header.size_bytes
    analyzed.valid_bytes = position
    return analyzed


def _whole_header(data: bytes | bytearray | memoryview, position: int, end: int) -> BatchHeader | None:
    """The header of the next entry, None if the entry is cut off; raises if no entry begins like that."""
    if end - position >= BATCH_HEADER_BYTES:
        header = parse_header(data, position)
        return header if header.size_bytes <= end - position else None
    # Too short for a batch of v2, but a message of v0 or v1 may be there.
    headers = iterate_headers(data[position:])
    return headers[0] if headers else None
