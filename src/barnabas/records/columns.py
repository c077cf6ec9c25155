"""Records as columns: buffers in Arrow's layout, filled in one compiled loop; arrow.py turns them into arrays.

    offsets, timestamps    int64 little-endian, one per record
    timestamp types        int8, one per record
    parts                  the bytes of the batches, original or decompressed, and the number of records in each
    bounds                 four int32 little-endian per record, with the bounds of key and value in the part:

                               | key start | key end | value start | value end |

    headers                int32 offsets of each record's headers among all headers; names and values of all headers

This module does not copy keys and values. The bounds in a part never decrease, so they are at the same time offsets of
an Arrow column over all its bytes. Each fourth element of this column is a key and each fourth is a value. An Arrow
kernel gathers these faster than a loop over the records could.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from barnabas.errors import InvalidRecord, KafkaError
from barnabas.model import Offset
from barnabas.records.builder import FIRST_OFFSET
from barnabas.records.compression import MAX_DECOMPRESSED_BYTES
from barnabas.records.header import BatchHeader
from barnabas.records.layout import INT32_MAX, MAGIC_V2, TIMESTAMP_TYPE_BIT
from barnabas.records.reader import decode_batch, decode_headers, open_records
from barnabas.records.record import Headers, MalformedRecord, contradiction
from barnabas.records.varint import INT64_MAX, INT64_MIN, read_varint, read_varlong, wrap_int64

# Smaller pieces of data are copied together: the kernel is not called for a handful of records.
PART_BYTES_MIN: Final = 512 * 1024


class Validity:
    """The validity bits of some values: one bit each, the lowest first, 0 for null; no bits if nothing is null."""

    __slots__ = ("bits", "null_count")

    def __init__(self, bits: bytes | None, null_count: int) -> None:
        self.bits = bits
        self.null_count = null_count


NONE_NULL: Final = Validity(None, 0)


class BinaryColumn:
    """Byte strings one after the other, and int32 offsets of them, one more than there are."""

    __slots__ = ("data", "offsets", "validity")

    def __init__(self, offsets: bytes, data: bytes, validity: Validity) -> None:
        self.offsets = offsets
        self.data = data
        self.validity = validity


class Part:
    """The bytes of some consecutive records."""

    __slots__ = ("data", "record_count")

    def __init__(self, data: bytes | memoryview, record_count: int) -> None:
        self.data = data
        self.record_count = record_count


class RecordColumns:
    """The columns of some records; the module's docstring has their layout."""

    __slots__ = (
        "bounds",
        "header_names",
        "header_offsets",
        "header_values",
        "key_validity",
        "offsets",
        "parts",
        "record_count",
        "timestamp_types",
        "timestamps",
        "value_validity",
    )

    def __init__(
        self,
        record_count: int,
        offsets: bytes,
        timestamps: bytes,
        timestamp_types: bytes,
        parts: list[Part],
        bounds: bytes,
        key_validity: Validity,
        value_validity: Validity,
        header_offsets: bytes,
        header_names: BinaryColumn,
        header_values: BinaryColumn,
    ) -> None:
        self.record_count = record_count
        self.offsets = offsets
        self.timestamps = timestamps
        self.timestamp_types = timestamp_types
        self.parts = parts
        self.bounds = bounds
        self.key_validity = key_validity
        self.value_validity = value_validity
        self.header_offsets = header_offsets
        self.header_names = header_names
        self.header_values = header_values


@final
class _ValidityBuilder:
    __slots__ = ("_bits", "_bits_count", "_written")

    def __init__(self) -> None:
        self._written = BytesWriter()
        self._bits: i64 = 0
        self._bits_count: i64 = 0

    def append(self, bit: i64) -> None:
        self._bits |= bit << self._bits_count
        self._bits_count += 1
        if self._bits_count == 8:
            self._written.append(u8(self._bits))
            self._bits = 0
            self._bits_count = 0

    def truncate(self, count: i64) -> None:
        whole = count >> 3
        if whole < len(self._written):
            self._bits = i64(self._written[whole])
            self._written.truncate(whole)
        self._bits_count = count & 7
        self._bits &= (1 << self._bits_count) - 1

    def finish(self) -> Validity:
        count = 8 * len(self._written) + self._bits_count
        if self._bits_count:
            self._written.append(u8(self._bits))
        bits = self._written.getvalue()
        null_count = count - int.from_bytes(bits, "little").bit_count()
        return Validity(bits if null_count else None, null_count)


@final
class _BinaryColumnBuilder:
    __slots__ = ("_data", "_offsets")

    def __init__(self) -> None:
        self._offsets = BytesWriter()
        self._data = BytesWriter()
        write_i32_le(self._offsets, 0)

    def append(self, value: bytes) -> None:
        self._data.write(value)
        write_i32_le(self._offsets, i32(len(self._data)))

    def size_bytes(self) -> i64:
        return len(self._data)

    def truncate(self, count: i64, size_bytes: i64) -> None:
        self._offsets.truncate(4 * (count + 1))
        self._data.truncate(size_bytes)

    def finish(self, validity: Validity) -> BinaryColumn:
        return BinaryColumn(self._offsets.getvalue(), self._data.getvalue(), validity)


@final
class ColumnsBuilder:
    """Gathers the records of batches; their headers only if they are wanted."""

    __slots__ = (
        "_bounds",
        "_data_bytes",
        "_header_count",
        "_header_names",
        "_header_offsets",
        "_header_validity",
        "_header_values",
        "_keys",
        "_max_decompressed_bytes",
        "_offsets",
        "_part_bytes",
        "_part_first",
        "_parts",
        "_piece",
        "_piece_end",
        "_piece_start",
        "_pieces",
        "_timestamp_types",
        "_timestamps",
        "_values",
        "_with_headers",
        "record_count",
    )

    def __init__(
        self, *, with_headers: bool = True, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    ) -> None:
        self.record_count: i64 = 0
        self._with_headers = with_headers
        self._max_decompressed_bytes = max_decompressed_bytes
        self._offsets = BytesWriter()
        self._timestamps = BytesWriter()
        self._timestamp_types = BytesWriter()
        self._bounds = BytesWriter()
        self._keys = _ValidityBuilder()
        self._values = _ValidityBuilder()
        self._data_bytes: i64 = 0
        self._parts: list[Part] = []
        # The last part: the number of its first record; its pieces, and within which bytes the last of them is.
        self._part_first: i64 = 0
        self._part_bytes: i64 = 0
        self._pieces: list[bytes | memoryview] = []
        self._piece = b""
        self._piece_start: i64 = 0
        self._piece_end: i64 = 0
        self._header_count: i64 = 0
        self._header_offsets = BytesWriter()
        self._header_names = _BinaryColumnBuilder()
        self._header_values = _BinaryColumnBuilder()
        self._header_validity = _ValidityBuilder()
        write_i32_le(self._header_offsets, 0)

    @property
    def size_bytes(self) -> int:
        """The size of the decompressed batches of the records."""
        return self._data_bytes

    def append_batch(
        self, data: bytes, position: int, *, header: BatchHeader, start_offset: Offset = FIRST_OFFSET
    ) -> None:
        """Adds the records at `start_offset` or later of the entry at the position, in any format.

        The caller checks the CRC. A record that cannot be read raises InvalidRecord (or UnsupportedCompressionType, or
        CorruptMessage), and then nothing of the entry is added.
        """
        record_count = self.record_count
        header_count = self._header_count
        names_bytes = self._header_names.size_bytes()
        values_bytes = self._header_values.size_bytes()
        try:
            if header.magic < MAGIC_V2:
                self._append_messages(data, position, header, start_offset)
            else:
                payload, start, end = open_records(data, position, header, self._max_decompressed_bytes)
                base = self._hold(payload, start, end, header)
                self._append_records(payload, start, end, header, base, start_offset)
        except KafkaError:
            self.record_count = record_count
            self._offsets.truncate(8 * record_count)
            self._timestamps.truncate(8 * record_count)
            self._bounds.truncate(16 * record_count)
            self._keys.truncate(record_count)
            self._values.truncate(record_count)
            self._header_count = header_count
            self._header_offsets.truncate(4 * (record_count + 1))
            self._header_names.truncate(header_count, names_bytes)
            self._header_values.truncate(header_count, values_bytes)
            self._header_validity.truncate(header_count)
            raise
        appended = self.record_count - record_count
        self._timestamp_types.write((header.timestamp_type & 0xFF).to_bytes(1, "big") * appended)

    def finish(self) -> RecordColumns:
        """The columns; the builder is then used up."""
        self._end_part()
        return RecordColumns(
            self.record_count,
            self._offsets.getvalue(),
            self._timestamps.getvalue(),
            self._timestamp_types.getvalue(),
            self._parts,
            self._bounds.getvalue(),
            self._keys.finish(),
            self._values.finish(),
            self._header_offsets.getvalue(),
            self._header_names.finish(NONE_NULL),
            self._header_values.finish(self._header_validity.finish()),
        )

    def _hold(self, data: bytes, start: i64, end: i64, header: BatchHeader) -> i64:
        """Makes these bytes the next piece of data.

        Returns the number to add to a position in them to get the position in their part.
        """
        # Batches that follow one another in the same bytes are one piece, so that nothing is copied.
        goes_on = data is self._piece and start >= self._piece_end
        size_bytes = end - (self._piece_end if goes_on else start)
        if self._data_bytes + size_bytes > INT32_MAX:
            raise InvalidRecord(
                f"the batch at offset {header.base_offset} does not fit into columns that already hold"
                f" {self._data_bytes} bytes"
            )
        if not goes_on:
            if self._part_bytes >= PART_BYTES_MIN:
                self._end_part()
            else:
                self._end_piece()
            self._piece = data
            self._piece_start = start
        self._piece_end = end
        self._part_bytes += size_bytes
        self._data_bytes += size_bytes
        return self._part_bytes - end

    def _end_piece(self) -> None:
        if self._piece_end > self._piece_start:
            self._pieces.append(memoryview(self._piece)[self._piece_start : self._piece_end])

    def _end_part(self) -> None:
        self._end_piece()
        pieces = self._pieces
        record_count = self.record_count - self._part_first
        if record_count:
            self._parts.append(Part(pieces[0] if len(pieces) == 1 else b"".join(pieces), record_count))
        self._part_first = self.record_count
        self._part_bytes = 0
        self._pieces = []

    def _append_messages(self, data: bytes, position: int, header: BatchHeader, start_offset: i64) -> None:
        messages = decode_batch(
            data, position, header=header, max_decompressed_bytes=self._max_decompressed_bytes
        )
        records = [each for each in messages if each.offset >= start_offset]
        content = b"".join([(each.key or b"") + (each.value or b"") for each in records])
        bound = self._hold(content, 0, len(content), header)
        for record in records:
            write_i64_le(self._offsets, record.offset)
            write_i64_le(self._timestamps, record.timestamp)
            write_i32_le(self._header_offsets, i32(self._header_count))
            for string, validity in ((record.key, self._keys), (record.value, self._values)):
                write_i32_le(self._bounds, i32(bound))
                if string is None:
                    validity.append(0)
                else:
                    validity.append(1)
                    bound += len(string)
                write_i32_le(self._bounds, i32(bound))
        self.record_count += len(records)

    def _append_records(
        self, data: bytes, start: i64, end: i64, header: BatchHeader, base: i64, start_offset: i64
    ) -> None:
        """Adds the records of a v2 batch in one loop: a call for each field would cost more than the field."""
        count: i64 = header.record_count
        base_offset: i64 = header.base_offset
        if count < 0 or base_offset < 0 or base_offset > INT64_MAX - INT32_MAX:
            raise MalformedRecord(f"a batch at offset {base_offset} claims to hold {count} records")
        base_timestamp: i64 = header.base_timestamp
        max_timestamp: i64 = header.max_timestamp
        log_append_time = header.attributes & TIMESTAMP_TYPE_BIT != 0
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
                self._header_values.append(b"")
                self._header_validity.append(0)
            else:
                self._header_values.append(value)
                self._header_validity.append(1)
            self._header_count += 1
        return position
