"""A walk over the records of a batch that keeps none of them, for a leader that only checks them.

A batch may decompress to far more objects than it is worth, so this walk needs only the memory of its bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from mypy_extensions import i64

from barnabas.model import NO_TIMESTAMP, TimestampMs
from barnabas.records.header import BatchHeader
from barnabas.records.layout import TIMESTAMP_TYPE_BIT
from barnabas.records.record import MalformedRecord, contradiction
from barnabas.records.rules import RecordRules
from barnabas.records.varint import INT64_MAX, INT64_MIN, read_varint, read_varlong, wrap_int64


class ScannedRecords(NamedTuple):
    max_timestamp: TimestampMs
    offsets_consecutive: bool


def scan_records(
    data: bytes, start: i64, end: i64, header: BatchHeader, rules: RecordRules
) -> ScannedRecords:
    """Checks each record of v2 that stands between start and end, and that they are as many as the header says."""
    count: i64 = header.record_count
    base_timestamp: i64 = header.base_timestamp
    stamp: i64 = header.max_timestamp
    log_append_time = header.attributes & TIMESTAMP_TYPE_BIT != 0
    max_timestamp: i64 = NO_TIMESTAMP
    offsets_consecutive = True
    position: i64 = start
    index: i64 = 0
    try:
        while index < count:
            length, position = read_varint(data, position)
            record_end = position + length
            if length < 0 or record_end > end:
                raise contradiction("length", length, index, header)
            timestamp, position = read_varlong(data, position + 1)
            timestamp += base_timestamp
            if log_append_time:
                timestamp = stamp
            elif timestamp > INT64_MAX or timestamp < INT64_MIN:
                timestamp = wrap_int64(timestamp)
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            offset_delta, position = read_varint(data, position)
            if offset_delta != index:
                offsets_consecutive = False
            key_length, position = read_varint(data, position)
            rules.check(key_length >= 0, timestamp)
            position = _skip(key_length, position, record_end, index, header)
            length, position = read_varint(data, position)
            position = _skip(length, position, record_end, index, header)
            header_count, position = read_varint(data, position)
            if header_count < 0 or header_count > record_end - position:
                raise contradiction("header count", header_count, index, header)
            while header_count > 0:
                header_count -= 1
                length, position = read_varint(data, position)
                if length < 0:
                    raise contradiction("length of a header's name", length, index, header)
                position = _skip(length, position, record_end, index, header)
                length, position = read_varint(data, position)
                position = _skip(length, position, record_end, index, header)
            if position != record_end:
                raise contradiction("length", record_end - position, index, header)
            index += 1
    except IndexError:
        raise MalformedRecord(
            f"the records of the batch at offset {header.base_offset} end within record {index} of {count}"
        ) from None
    if position != end:
        raise MalformedRecord(
            f"{end - position} bytes follow the {count} records of the batch at offset {header.base_offset}"
        )
    return ScannedRecords(TimestampMs(max_timestamp), offsets_consecutive)


def _skip(length: i64, position: i64, record_end: i64, index: i64, header: BatchHeader) -> i64:
    if length <= 0:
        return position
    if length > record_end - position:
        raise contradiction("length of a field", length, index, header)
    return position + length
