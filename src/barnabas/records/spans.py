"""Records as columns of which keys and values stay where they are: for whoever gathers bytes faster than we could.

Of each record four int32 tell where in the data its key begins and ends, and where its value does:

    | key start | key end | value start | value end |  …

As they never go back, they are at the same time offsets of an Arrow column over all of the data, of which each fourth
element is a key, and each fourth a value; Arrow's `take` makes a column of them. All else is as in columns.py.
"""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from barnabas.errors import InvalidRecord
from barnabas.model import Offset
from barnabas.records.columns import BinaryColumn, BinaryColumnBuilder
from barnabas.records.compression import MAX_DECOMPRESSED_BYTES
from barnabas.records.header import BatchHeader
from barnabas.records.layout import INT32_MAX, MAGIC_V2, TIMESTAMP_TYPE_BIT
from barnabas.records.reader import decode_batch, decode_headers, open_records
from barnabas.records.record import Headers, MalformedRecord, contradiction
from barnabas.records.varint import INT64_MAX, INT64_MIN, read_varint, read_varlong, wrap_int64


class RecordSpans:
    """The columns of some records; the module's docstring has their layout."""

    __slots__ = (
        "bounds",
        "data",
        "header_names",
        "header_offsets",
        "header_values",
        "key_null_count",
        "key_validity",
        "offsets",
        "record_count",
        "timestamp_types",
        "timestamps",
        "value_null_count",
        "value_validity",
    )

    def __init__(
        self,
        record_count: int,
        offsets: bytes,
        timestamps: bytes,
        timestamp_types: bytes,
        data: bytes,
        bounds: bytes,
        key_validity: bytes | None,
        key_null_count: int,
        value_validity: bytes | None,
        value_null_count: int,
        header_offsets: bytes,
        header_names: BinaryColumn,
        header_values: BinaryColumn,
    ) -> None:
        self.record_count = record_count
        self.offsets = offsets
        self.timestamps = timestamps
        self.timestamp_types = timestamp_types
        self.data = data
        self.bounds = bounds
        self.key_validity = key_validity
        self.key_null_count = key_null_count
        self.value_validity = value_validity
        self.value_null_count = value_null_count
        self.header_offsets = header_offsets
        self.header_names = header_names
        self.header_values = header_values


@final
class _Validity:
    """A bit a record, the lowest first, that is 0 for null."""

    __slots__ = ("_bits", "_bits_count", "_written", "null_count")

    def __init__(self) -> None:
        self._written = BytesWriter()
        self._bits: i64 = 0
        self._bits_count: i64 = 0
        self.null_count: i64 = 0

    def append(self, bit: i64) -> None:
        self.null_count += 1 - bit
        self._bits |= bit << self._bits_count
        self._bits_count += 1
        if self._bits_count == 8:
            self._written.append(u8(self._bits))
            self._bits = 0
            self._bits_count = 0

    def finish(self) -> bytes | None:
        if self._bits_count:
            self._written.append(u8(self._bits))
        return self._written.getvalue() if self.null_count else None


@final
class SpansBuilder:
    """Gathers the records of batches at `start_offset` or later; headers only if they are wanted.

    It is used up by a batch that cannot be read, and by `finish`.
    """

    __slots__ = (
        "_bounds",
        "_data_bytes",
        "_header_count",
        "_header_names",
        "_header_offsets",
        "_header_values",
        "_keys",
        "_max_decompressed_bytes",
        "_offsets",
        "_parts",
        "_start_offset",
        "_timestamp_types",
        "_timestamps",
        "_values",
        "_with_headers",
        "record_count",
    )

    def __init__(
        self,
        *,
        start_offset: Offset,
        with_headers: bool = True,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self.record_count: i64 = 0
        self._start_offset: i64 = start_offset
        self._with_headers = with_headers
        self._max_decompressed_bytes = max_decompressed_bytes
        self._offsets = BytesWriter()
        self._timestamps = BytesWriter()
        self._timestamp_types = BytesWriter()
        self._bounds = BytesWriter()
        self._keys = _Validity()
        self._values = _Validity()
        self._parts: list[bytes] = []
        self._data_bytes: i64 = 0
        self._header_count: i64 = 0
        self._header_offsets = BytesWriter()
        self._header_names = BinaryColumnBuilder()
        self._header_values = BinaryColumnBuilder()
        write_i32_le(self._header_offsets, 0)

    @property
    def size_bytes(self) -> int:
        """How many bytes of batches, decompressed, are held."""
        return self._data_bytes

    def append_batch(self, data: bytes, position: int, *, header: BatchHeader) -> None:
        """Adds the records of the entry at the position, of whichever format; the CRC is the caller's business."""
        count_before = self.record_count
        if header.magic < MAGIC_V2:
            self._append_messages(data, position, header)
        else:
            payload, start, end = open_records(data, position, header, self._max_decompressed_bytes)
            # Batches that stand in the same bytes hold them once.
            if not self._parts or self._parts[-1] is not payload:
                self._hold(payload, header)
            self._append_records(payload, start, end, header, self._data_bytes - len(payload))
        appended = self.record_count - count_before
        self._timestamp_types.write((header.timestamp_type & 0xFF).to_bytes(1, "big") * appended)

    def finish(self) -> RecordSpans:
        """The columns; the builder is then used up."""
        parts = self._parts
        return RecordSpans(
            self.record_count,
            self._offsets.getvalue(),
            self._timestamps.getvalue(),
            self._timestamp_types.getvalue(),
            parts[0] if len(parts) == 1 else b"".join(parts),
            self._bounds.getvalue(),
            self._keys.finish(),
            self._keys.null_count,
            self._values.finish(),
            self._values.null_count,
            self._header_offsets.getvalue(),
            self._header_names.finish(),
            self._header_values.finish(),
        )

    def _hold(self, part: bytes, header: BatchHeader) -> None:
        size_bytes: i64 = len(part)
        if self._data_bytes + size_bytes > INT32_MAX:
            raise InvalidRecord(
                f"the batch at offset {header.base_offset} does not fit into columns that already hold"
                f" {self._data_bytes} bytes"
            )
        self._parts.append(part)
        self._data_bytes += size_bytes

    def _append_messages(self, data: bytes, position: int, header: BatchHeader) -> None:
        for record in decode_batch(
            data, position, header=header, max_decompressed_bytes=self._max_decompressed_bytes
        ):
            if record.offset < self._start_offset:
                continue
            write_i64_le(self._offsets, record.offset)
            write_i64_le(self._timestamps, record.timestamp)
            write_i32_le(self._header_offsets, i32(self._header_count))
            for content, validity in ((record.key, self._keys), (record.value, self._values)):
                write_i32_le(self._bounds, i32(self._data_bytes))
                self._hold(content or b"", header)
                write_i32_le(self._bounds, i32(self._data_bytes))
                validity.append(0 if content is None else 1)
            self.record_count += 1

    def _append_records(self, data: bytes, start: i64, end: i64, header: BatchHeader, base: i64) -> None:
        count: i64 = header.record_count
        base_offset: i64 = header.base_offset
        if count < 0 or base_offset < 0 or base_offset > INT64_MAX - INT32_MAX:
            raise MalformedRecord(f"a batch at offset {base_offset} claims to hold {count} records")
        base_timestamp: i64 = header.base_timestamp
        max_timestamp: i64 = header.max_timestamp
        log_append_time = header.attributes & TIMESTAMP_TYPE_BIT != 0
        start_offset = self._start_offset
        with_headers = self._with_headers
        offsets = self._offsets
        timestamps = self._timestamps
        bounds = self._bounds
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
                timestamp, position = read_varlong(data, position + 1)
                offset_delta, position = read_varint(data, position)
                offset = base_offset + offset_delta
                if offset < start_offset:
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
                write_i32_le(bounds, i32(base + position))
                if length < 0:
                    keys.append(0)
                else:
                    if length > record_end - position:
                        raise contradiction("key length", length, header.record_count - count - 1, header)
                    keys.append(1)
                    position += length
                write_i32_le(bounds, i32(base + position))

                length, position = read_varint(data, position)
                write_i32_le(bounds, i32(base + position))
                if length < 0:
                    values.append(0)
                else:
                    if length > record_end - position:
                        raise contradiction("value length", length, header.record_count - count - 1, header)
                    values.append(1)
                    position += length
                write_i32_le(bounds, i32(base + position))

                if data[position] == 0:
                    position += 1
                elif with_headers:
                    position = self._append_headers(data, position, record_end)
                else:
                    position = record_end
                write_i32_le(header_offsets, i32(self._header_count))
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
