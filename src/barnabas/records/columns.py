"""Records as columns: buffers in Arrow's layout, which Arrow takes as they are, without a step for each record.

offsets, timestamps         int64 little-endian, one a record
timestamp types             int8, one a record
keys, values                a BinaryColumn: int32 offsets, one more than there are records; the bytes joined; a bit a
                            record, the lowest first, that is 0 for null, or no bits at all if nothing is null
headers                     int32 offsets of each record's headers among all of them; names and values of all
"""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from barnabas.errors import InvalidRecord
from barnabas.model import Offset
from barnabas.records.builder import FIRST_OFFSET
from barnabas.records.compression import MAX_DECOMPRESSED_BYTES
from barnabas.records.header import BatchHeader, iterate_headers, parse_header
from barnabas.records.layout import INT32_MAX, MAGIC_V2, TIMESTAMP_TYPE_BIT
from barnabas.records.reader import decode_batch, decode_headers, open_records
from barnabas.records.record import Headers, MalformedRecord, contradiction
from barnabas.records.varint import INT64_MAX, INT64_MIN, read_varint, read_varlong, wrap_int64


class BinaryColumn:
    """Byte strings one after the other; `validity` is None if none of them is null."""

    __slots__ = ("data", "null_count", "offsets", "validity")

    def __init__(self, offsets: bytes, data: bytes, validity: bytes | None, null_count: int) -> None:
        self.offsets = offsets
        self.data = data
        self.validity = validity
        self.null_count = null_count


class RecordColumns:
    """The columns of some records; the module's docstring has their layout."""

    __slots__ = (
        "header_names",
        "header_offsets",
        "header_values",
        "keys",
        "offsets",
        "record_count",
        "timestamp_types",
        "timestamps",
        "values",
    )

    def __init__(
        self,
        record_count: int,
        offsets: bytes,
        timestamps: bytes,
        timestamp_types: bytes,
        keys: BinaryColumn,
        values: BinaryColumn,
        header_offsets: bytes,
        header_names: BinaryColumn,
        header_values: BinaryColumn,
    ) -> None:
        self.record_count = record_count
        self.offsets = offsets
        self.timestamps = timestamps
        self.timestamp_types = timestamp_types
        self.keys = keys
        self.values = values
        self.header_offsets = header_offsets
        self.header_names = header_names
        self.header_values = header_values


@final
class BinaryColumnBuilder:
    __slots__ = ("_bits", "_bits_count", "_data", "_null_count", "_offsets", "_validity")

    def __init__(self) -> None:
        self._offsets = BytesWriter()
        self._data = BytesWriter()
        self._validity = BytesWriter()
        self._bits: i64 = 0
        self._bits_count: i64 = 0
        self._null_count: i64 = 0
        write_i32_le(self._offsets, 0)

    def append(self, value: bytes) -> None:
        self._data.write(value)
        self._append_entry(1)

    def append_null(self) -> None:
        self._null_count += 1
        self._append_entry(0)

    def _append_entry(self, bit: i64) -> None:
        write_i32_le(self._offsets, len(self._data))
        self._bits |= bit << self._bits_count
        self._bits_count += 1
        if self._bits_count == 8:
            self._validity.append(u8(self._bits))
            self._bits = 0
            self._bits_count = 0

    def size_bytes(self) -> i64:
        return len(self._data)

    def finish(self) -> BinaryColumn:
        if self._bits_count:
            self._validity.append(u8(self._bits))
        validity = self._validity.getvalue() if self._null_count else None
        return BinaryColumn(self._offsets.getvalue(), self._data.getvalue(), validity, self._null_count)


@final
class ColumnsBuilder:
    """Gathers the records of batches; only those at `start_offset` or later, as a fetch may begin within a batch."""

    __slots__ = (
        "_header_count",
        "_header_names",
        "_header_offsets",
        "_header_values",
        "_keys",
        "_max_decompressed_bytes",
        "_offsets",
        "_start_offset",
        "_timestamp_types",
        "_timestamps",
        "_values",
        "record_count",
    )

    def __init__(self, *, start_offset: Offset, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> None:
        self.record_count: i64 = 0
        self._start_offset: i64 = start_offset
        self._max_decompressed_bytes = max_decompressed_bytes
        self._offsets = BytesWriter()
        self._timestamps = BytesWriter()
        self._timestamp_types = BytesWriter()
        self._keys = BinaryColumnBuilder()
        self._values = BinaryColumnBuilder()
        self._header_count: i32 = 0
        self._header_offsets = BytesWriter()
        self._header_names = BinaryColumnBuilder()
        self._header_values = BinaryColumnBuilder()
        write_i32_le(self._header_offsets, 0)

    @property
    def size_bytes(self) -> int:
        """How many bytes of keys, values and headers have been gathered."""
        return (
            self._keys.size_bytes()
            + self._values.size_bytes()
            + self._header_names.size_bytes()
            + self._header_values.size_bytes()
        )

    def append_batch(self, data: bytes, position: int = 0, *, header: BatchHeader | None = None) -> None:
        """Adds the records of the entry at the position, of whichever format; the CRC is the caller's business."""
        if header is None:
            header = parse_header(data, position)
        count_before = self.record_count
        if header.magic < MAGIC_V2:
            self._append_messages(data, position, header)
        else:
            payload, start, end = open_records(data, position, header, self._max_decompressed_bytes)
            self._append_records(payload, start, end, header)
        appended = self.record_count - count_before
        self._timestamp_types.write((header.timestamp_type & 0xFF).to_bytes(1, "big") * appended)

    def finish(self) -> RecordColumns:
        """The columns; the builder is then used up."""
        return RecordColumns(
            self.record_count,
            self._offsets.getvalue(),
            self._timestamps.getvalue(),
            self._timestamp_types.getvalue(),
            self._keys.finish(),
            self._values.finish(),
            self._header_offsets.getvalue(),
            self._header_names.finish(),
            self._header_values.finish(),
        )

    def _check_room(self, size_bytes: int, header: BatchHeader) -> None:
        if self.size_bytes + size_bytes > INT32_MAX:
            raise InvalidRecord(
                f"the records of the batch at offset {header.base_offset} do not fit into columns that already hold"
                f" {self.size_bytes} bytes"
            )

    def _append_messages(self, data: bytes, position: int, header: BatchHeader) -> None:
        records = decode_batch(
            data, position, header=header, max_decompressed_bytes=self._max_decompressed_bytes
        )
        self._check_room(
            sum([len(record.key or b"") + len(record.value or b"") for record in records]), header
        )
        for record in records:
            if record.offset < self._start_offset:
                continue
            write_i64_le(self._offsets, record.offset)
            write_i64_le(self._timestamps, record.timestamp)
            write_i32_le(self._header_offsets, self._header_count)
            if record.key is None:
                self._keys.append_null()
            else:
                self._keys.append(record.key)
            if record.value is None:
                self._values.append_null()
            else:
                self._values.append(record.value)
            self.record_count += 1

    def _append_records(self, data: bytes, start: i64, end: i64, header: BatchHeader) -> None:
        self._check_room(end - start, header)
        count: i64 = header.record_count
        base_offset: i64 = header.base_offset
        if count < 0 or base_offset < 0 or base_offset > INT64_MAX - INT32_MAX:
            raise MalformedRecord(f"a batch at offset {base_offset} claims to hold {count} records")
        base_timestamp: i64 = header.base_timestamp
        max_timestamp: i64 = header.max_timestamp
        log_append_time = header.attributes & TIMESTAMP_TYPE_BIT != 0
        offsets = self._offsets
        timestamps = self._timestamps
        keys = self._keys
        values = self._values
        header_offsets = self._header_offsets
        position: i64 = start
        skipped: i64 = 0
        try:
            while count > 0:
                count -= 1
                length, position = read_varint(data, position)
                record_end = position + length
                if length < 0 or record_end > end:
                    raise contradiction("length", length, header.record_count - count - 1, header)
                position += 1
                timestamp, position = read_varlong(data, position)
                offset_delta, position = read_varint(data, position)
                offset = base_offset + offset_delta
                if offset < self._start_offset:
                    skipped += 1
                    position = record_end
                    continue
                timestamp += base_timestamp
                if log_append_time:
                    timestamp = max_timestamp
                elif timestamp > INT64_MAX or timestamp < INT64_MIN:
                    timestamp = wrap_int64(timestamp)
                write_i64_le(offsets, offset)
                write_i64_le(timestamps, timestamp)

                length, position = read_varint(data, position)
                if length < 0:
                    keys.append_null()
                elif position + length > record_end:
                    raise contradiction("key length", length, header.record_count - count - 1, header)
                else:
                    keys.append(data[position : position + length])
                    position += length

                length, position = read_varint(data, position)
                if length < 0:
                    values.append_null()
                elif position + length > record_end:
                    raise contradiction("value length", length, header.record_count - count - 1, header)
                else:
                    values.append(data[position : position + length])
                    position += length

                if data[position] == 0:
                    position += 1
                else:
                    position = self._append_headers(data, position, record_end)
                write_i32_le(header_offsets, self._header_count)
                if position != record_end:
                    raise contradiction(
                        "length", record_end - position, header.record_count - count - 1, header
                    )
        except IndexError:
            raise MalformedRecord(
                f"the records of the batch at offset {base_offset} end before the last of {header.record_count}"
            ) from None
        if position != end:
            raise MalformedRecord(
                f"{end - position} bytes follow the {header.record_count} records of the batch at offset {base_offset}"
            )
        self.record_count += header.record_count - skipped

    def _append_headers(self, data: bytes, position: i64, record_end: i64) -> i64:
        headers: Headers
        headers, position = decode_headers(data, position, record_end)
        for name, value in headers:
            self._header_names.append(name.encode())
            if value is None:
                self._header_values.append_null()
            else:
                self._header_values.append(value)
            self._header_count += 1
        return position


def decode_columns(
    data: bytes,
    *,
    start_offset: Offset = FIRST_OFFSET,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> RecordColumns:
    """The columns of all whole batches but control batches, as they come in the answer to a fetch."""
    builder = ColumnsBuilder(start_offset=start_offset, max_decompressed_bytes=max_decompressed_bytes)
    position = 0
    for header in iterate_headers(data):
        if not header.is_control:
            builder.append_batch(data, position, header=header)
        position += header.size_bytes
    return builder.finish()
