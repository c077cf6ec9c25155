"""Columns of keys and of values for `send_many`: lists of bytes, or Arrow's memory as it is.

Arrow columns are not converted to lists: a record's bytes are cut out when it is written to its batch.
"""

from __future__ import annotations

from typing import Any, Final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

# The ends of values in Arrow's ordinary columns have 32 bits.
JOINED_BYTES_MAX: Final = 2**31 - 1


class BytesColumn:
    """Bytes or None for each record."""

    __slots__ = ("count",)

    count: i64

    def at(self, position: i64) -> bytes | None:
        raise NotImplementedError

    def longest_bytes(self) -> i64:
        raise NotImplementedError


class ListedBytes(BytesColumn):
    __slots__ = ("_values",)

    def __init__(self, values: list[bytes | None]) -> None:
        self.count = len(values)
        self._values = values

    def at(self, position: i64) -> bytes | None:
        return self._values[position]

    def longest_bytes(self) -> i64:
        longest: i64 = 0
        for value in self._values:
            if value is not None and len(value) > longest:
                longest = len(value)
        return longest


class ArrowBytes(BytesColumn):
    """An Arrow array of binary or text: values side by side, and where each of them ends."""

    __slots__ = ("_data", "_ends", "_first", "_first_bit", "_is_wide", "_validity")

    _data: bytes
    _ends: bytes
    _validity: bytes | None
    _first: i64
    _first_bit: i64
    _is_wide: bool

    def __init__(
        self, data: bytes, ends: bytes, is_wide: bool, validity: bytes | None, first_bit: i64, count: i64
    ) -> None:
        self.count = count
        self._data = data
        # One number more than there are values, from where the data begins.
        self._ends = ends
        self._is_wide = is_wide
        self._first = 0
        self._first = self._end(0) if count else 0
        self._validity = validity
        self._first_bit = first_bit

    def _end(self, number: i64) -> i64:
        if self._is_wide:
            return read_i64_le(self._ends, 8 * number) - self._first
        return i64(read_i32_le(self._ends, 4 * number)) - self._first

    def at(self, position: i64) -> bytes | None:
        validity = self._validity
        if validity is not None:
            bit = self._first_bit + position
            if not (i64(validity[bit >> 3]) >> (bit & 7)) & 1:
                return None
        return self._data[self._end(position) : self._end(position + 1)]

    def longest_bytes(self) -> i64:
        longest: i64 = 0
        start: i64 = 0
        position: i64 = 0
        while position < self.count:
            position += 1
            end = self._end(position)
            if end - start > longest:
                longest = end - start
            start = end
        return longest


def arrow_bytes(column: Any) -> BytesColumn | None:
    """The column if it is one of binary or text, else None."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks != 1 and column.nbytes > JOINED_BYTES_MAX:
            return None
        # One copy of the bytes costs far less than an object for each value.
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    kind = column.type
    is_wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not (is_wide or pa.types.is_binary(kind) or pa.types.is_string(kind)):
        return None
    count = len(column)
    if count == 0:
        return ArrowBytes(b"", b"", is_wide, None, 0, 0)
    validity, ends, data = column.buffers()
    width = 8 if is_wide else 4
    ends_bytes = ends.slice(column.offset * width, (count + 1) * width).to_pybytes()
    first = int.from_bytes(ends_bytes[:width], "little")
    last = int.from_bytes(ends_bytes[-width:], "little")
    return ArrowBytes(
        b"" if last == first else data.slice(first, last - first).to_pybytes(),
        ends_bytes,
        is_wide,
        None if validity is None or column.null_count == 0 else validity.to_pybytes(),
        column.offset,
        count,
    )


def binary_values(column: Any) -> list[Any]:
    """The values of an Arrow column as a list, with text as bytes."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in binary_values(chunk)]
    found = arrow_bytes(column)
    if found is None:
        plain: list[Any] = column.to_pylist()
        return plain
    return [found.at(position) for position in range(found.count)]
