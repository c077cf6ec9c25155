"""Records out of batches, one batch at a time; a batch's CRC is the business of header.verify_crc.

The loop over the records of v2 is compiled and takes `bytes`, whose elements cost next to nothing to read there. It
checks each length against the end of its record and leaves the end of the data itself to the IndexError of reading
beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

from barnabas.model import NO_SEQUENCE, Offset, TimestampMs
from barnabas.records.compression import MAX_DECOMPRESSED_BYTES, decompress
from barnabas.records.header import BatchHeader, iterate_headers, parse_header
from barnabas.records.layout import (
    BATCH_HEADER_BYTES,
    INT32_MAX,
    MAGIC_V2,
    TIMESTAMP_TYPE_BIT,
)
from barnabas.records.legacy import decode_message
from barnabas.records.record import NO_HEADERS, Headers, MalformedRecord, Record, contradiction
from barnabas.records.varint import INT64_MAX, INT64_MIN, read_varint, read_varlong, wrap_int64

PART_RECORDS: Final = 1_000


def decode_batch(
    data: bytes | bytearray | memoryview,
    position: int = 0,
    *,
    header: BatchHeader | None = None,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> list[Record]:
    """The records of the entry at the position, of whichever format; the header saves parsing it again.

    Raises InvalidRecord (or UnsupportedCompressionType, or CorruptMessage) if the bytes are not records.
    """
    if header is None:
        header = parse_header(data, position)
    if header.magic < MAGIC_V2:
        return decode_message(data, position, header, max_decompressed_bytes)
    payload, start, end = open_records(data, position, header, max_decompressed_bytes)
    return _decode_records(payload, start, end, header)


def open_records(
    data: bytes | bytearray | memoryview, position: int, header: BatchHeader, max_decompressed_bytes: int
) -> tuple[bytes, int, int]:
    """The records of a batch of v2, decompressed if need be: bytes, and where in them the records start and end."""
    end = position + header.size_bytes
    if end > len(data):
        raise MalformedRecord(
            f"the batch of {header.size_bytes} bytes at offset {header.base_offset} is cut off after"
            f" {len(data) - position}"
        )
    start = position + BATCH_HEADER_BYTES
    if isinstance(data, bytes):
        if not header.is_compressed:
            return data, start, end
        payload = data[start:end]
    else:
        payload = bytes(memoryview(data)[start:end])
    if header.is_compressed:
        payload = decompress(payload, header.compression, max_decompressed_bytes=max_decompressed_bytes)
    return payload, 0, len(payload)


def iterate_batches(
    data: bytes, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Each whole batch with its records, decoded when it is asked for."""
    position = 0
    for header in iterate_headers(data):
        yield (
            header,
            decode_batch(data, position, header=header, max_decompressed_bytes=max_decompressed_bytes),
        )
        position += header.size_bytes


def decode_parts(
    data: bytes, position: int, header: BatchHeader, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[list[Record]]:
    """The records of a batch, a thousand at a time, for a thread that others wait for between."""
    if header.magic < MAGIC_V2 or header.record_count <= PART_RECORDS:
        yield decode_batch(data, position, header=header, max_decompressed_bytes=max_decompressed_bytes)
        return
    payload, at, end = open_records(data, position, header, max_decompressed_bytes)
    for start in range(0, header.record_count, PART_RECORDS):
        records, at = _decode_some(
            payload, at, end, header, start, min(start + PART_RECORDS, header.record_count)
        )
        yield records
    _check_end(at, end, header)


def _decode_records(data: bytes, start: i64, end: i64, header: BatchHeader) -> list[Record]:
    count = header.record_count
    if count < 0:
        raise MalformedRecord(f"the batch at offset {header.base_offset} claims to hold {count} records")
    records, position = _decode_some(data, start, end, header, 0, count)
    _check_end(position, end, header)
    return records


def _check_end(position: int, end: int, header: BatchHeader) -> None:
    if position != end:
        raise MalformedRecord(
            f"{end - position} bytes follow the {header.record_count} records of the batch at offset"
            f" {header.base_offset}"
        )


def _decode_some(
    data: bytes, position: i64, end: i64, header: BatchHeader, first: i64, behind_last: i64
) -> tuple[list[Record], i64]:
    """Records of the batch by their number, and the position behind them."""
    records: list[Record] = []
    count: i64 = behind_last - first
    base_offset: i64 = header.base_offset
    if base_offset < 0 or base_offset > INT64_MAX - INT32_MAX:
        raise MalformedRecord(f"a batch cannot begin at offset {base_offset}")
    base_timestamp: i64 = header.base_timestamp
    log_append_time = header.attributes & TIMESTAMP_TYPE_BIT != 0
    max_timestamp: i64 = header.max_timestamp
    base_sequence: i64 = header.base_sequence
    record_end: i64
    length: i64
    timestamp: i64
    offset_delta: i64
    sequence: i64 = NO_SEQUENCE
    key: bytes | None
    value: bytes | None
    headers: Headers
    try:
        while count > 0:
            count -= 1
            length, position = read_varint(data, position)
            record_end = position + length
            if length < 0 or record_end > end:
                raise contradiction("length", length, first + len(records), header)
            # Nothing has a meaning yet among a record's own attributes.
            position += 1

            timestamp, position = read_varlong(data, position)
            timestamp += base_timestamp
            if log_append_time:
                timestamp = max_timestamp
            elif timestamp > INT64_MAX or timestamp < INT64_MIN:
                # Only where integers have no end: compiled, they wrap by themselves, as Java's do.
                timestamp = wrap_int64(timestamp)

            offset_delta, position = read_varint(data, position)
            if base_sequence >= 0:
                sequence = (base_sequence + offset_delta) & INT32_MAX

            length, position = read_varint(data, position)
            if length < 0:
                key = None
            elif position + length > record_end:
                raise contradiction("key length", length, first + len(records), header)
            else:
                key = data[position : position + length]
                position += length

            length, position = read_varint(data, position)
            if length < 0:
                value = None
            elif position + length > record_end:
                raise contradiction("value length", length, first + len(records), header)
            else:
                value = data[position : position + length]
                position += length

            if data[position] == 0:
                position += 1
                headers = NO_HEADERS
            else:
                headers, position = decode_headers(data, position, record_end)
            if position != record_end:
                raise contradiction("length", record_end - position, first + len(records), header)
            records.append(
                Record(
                    Offset(base_offset + offset_delta), TimestampMs(timestamp), key, value, headers, sequence
                )
            )
    except IndexError:
        raise MalformedRecord(
            f"the records of the batch at offset {header.base_offset} end within record {first + len(records)} of"
            f" {header.record_count}"
        ) from None
    return records, position


def decode_headers(data: bytes, position: i64, record_end: i64) -> tuple[Headers, i64]:
    """The headers of a record, which they end, and the position behind them."""
    count: i64
    length: i64
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = []
    count, position = read_varint(data, position)
    if count < 0 or count > record_end - position:
        raise MalformedRecord(f"a record claims to have {count} headers in {record_end - position} bytes")
    while count > 0:
        count -= 1
        length, position = read_varint(data, position)
        if length < 0 or position + length > record_end:
            raise MalformedRecord(f"a header's name of {length} bytes does not fit into its record")
        # Kafka shows bytes that are not UTF-8 as replacement characters, and so do we.
        name = data[position : position + length].decode("utf-8", "replace")
        position += length
        length, position = read_varint(data, position)
        if length < 0:
            value = None
        elif position + length > record_end:
            raise MalformedRecord(
                f"the value of header {name!r}, {length} bytes, does not fit into its record"
            )
        else:
            value = data[position : position + length]
            position += length
        headers.append((name, value))
    return tuple(headers), position
