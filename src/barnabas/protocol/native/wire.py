"""What the generated codecs share: lengths, strings, arrays of numbers, unknown tagged fields.

Readers take the whole message as `bytes` and a position, and return what they read with the position after it.
They refuse bad bytes with an IndexError or a ValueError that says nothing more: the caller then decodes the same
bytes with the codec that keeps track of fields, which names the fault. So the usual case pays for no bookkeeping.
Writers append to a `BytesWriter` and refuse in the same way what does not fit.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64, u8

from barnabas.primitives.file_slice import FileSlice
from barnabas.protocol.errors import Malformed, TooManyElements
from barnabas.protocol.message import Buffer, Records, TaggedFields

MAX_STRING_BYTES: Final = 0x7FFF
MAX_VARINT: Final = 0x7FFFFFFF

# Records of this size and more are copied once, into the finished message.
SPLICE_BYTES: Final = 2048

Splices: TypeAlias = list[tuple[int, Records]]
"""Records that are not yet in the message that is being written, each with the position where it belongs."""


class Budget:
    """How many elements of arrays a message may still have."""

    __slots__ = ("left",)

    def __init__(self, left: i64) -> None:
        self.left: i64 = left

    def take(self, count: i64) -> None:
        self.left -= count
        if self.left < 0:
            raise TooManyElements


def read_uvarint(data: bytes, pos: i64) -> tuple[i64, i64]:
    byte: i64 = data[pos]
    pos += 1
    if byte < 0x80:
        return byte, pos
    value: i64 = byte & 0x7F
    shift: i64 = 7
    while shift < 35:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > MAX_VARINT:
                raise Malformed
            return value, pos
        shift += 7
    raise Malformed


def read_i8(data: bytes, pos: i64) -> i64:
    byte: i64 = data[pos]
    return byte - 256 if byte > 127 else byte


def read_uuid(data: bytes, pos: i64) -> bytes:
    if pos + 16 > len(data):
        raise Malformed
    return data[pos : pos + 16]


def read_count(data: bytes, pos: i64, flexible: bool, budget: Budget) -> tuple[i64, i64]:
    """The count of an array that may not be null."""
    count, pos = read_nullable_count(data, pos, flexible, budget)
    if count < 0:
        raise Malformed
    return count, pos


def read_nullable_count(data: bytes, pos: i64, flexible: bool, budget: Budget) -> tuple[i64, i64]:
    """An element takes a byte at least, which bounds the count, and the message's budget does."""
    count, pos = read_length(data, pos, flexible)
    if count > 0:
        budget.take(count)
    return count, pos


def read_length(data: bytes, pos: i64, flexible: bool) -> tuple[i64, i64]:
    """A count that is negative for null and not above the bytes that are left."""
    length: i64
    if flexible:
        length, pos = read_uvarint(data, pos)
        length -= 1
    else:
        length = i64(read_i32_be(data, pos))
        pos += 4
    if length > len(data) - pos:
        raise Malformed
    return length, pos


def read_string(data: bytes, pos: i64, flexible: bool) -> tuple[str, i64]:
    value, pos = read_nullable_string(data, pos, flexible)
    if value is None:
        raise Malformed
    return value, pos


def read_nullable_string(data: bytes, pos: i64, flexible: bool) -> tuple[str | None, i64]:
    size: i64
    if flexible:
        size, pos = read_uvarint(data, pos)
        size -= 1
    else:
        size = i64(read_i16_be(data, pos))
        pos += 2
    if size < 0:
        return None, pos
    end = pos + size
    if end > len(data) or size > MAX_STRING_BYTES:
        raise Malformed
    return data[pos:end].decode("utf-8", "replace"), end


def read_i32_list(data: bytes, pos: i64, flexible: bool, budget: Budget) -> tuple[list[int], i64]:
    count, pos = read_count(data, pos, flexible, budget)
    values: list[int] = []
    for _ in range(count):
        values.append(read_i32_be(data, pos))
        pos += 4
    return values, pos


def read_i64_list(data: bytes, pos: i64, flexible: bool, budget: Budget) -> tuple[list[int], i64]:
    count, pos = read_count(data, pos, flexible, budget)
    values: list[int] = []
    for _ in range(count):
        values.append(read_i64_be(data, pos))
        pos += 8
    return values, pos


def read_records(data: bytes, pos: i64, flexible: bool, view: memoryview) -> tuple[memoryview | None, i64]:
    """`view` is of the buffer that `data` is a copy of, or of `data` itself: records are not copied."""
    size, pos = read_length(data, pos, flexible)
    if size < 0:
        return None, pos
    return view[pos : pos + size], pos + size


def read_tag_count(data: bytes, pos: i64, budget: Budget) -> tuple[i64, i64]:
    count, pos = read_uvarint(data, pos)
    budget.take(count)
    return count, pos


def read_tag(data: bytes, pos: i64, last: i64) -> tuple[i64, i64, i64]:
    """A tag, the position of its field and the position behind it."""
    tag, pos = read_uvarint(data, pos)
    size, pos = read_uvarint(data, pos)
    if tag <= last or size > len(data) - pos:
        raise Malformed
    return tag, pos, pos + size


def read_tags(data: bytes, pos: i64, budget: Budget) -> tuple[TaggedFields, i64]:
    """The tagged fields of a struct that knows none."""
    unknown: list[tuple[int, bytes]] = []
    last: i64 = -1
    count, pos = read_tag_count(data, pos, budget)
    for _ in range(count):
        tag, pos, stop = read_tag(data, pos, last)
        last = tag
        unknown.append((tag, data[pos:stop]))
        pos = stop
    return tuple(unknown), pos


def write_uvarint(out: BytesWriter, value: i64) -> None:
    if not 0 <= value <= MAX_VARINT:
        raise Malformed
    while value >= 0x80:
        out.append(u8((value & 0x7F) | 0x80))
        value >>= 7
    out.append(u8(value))


def write_count(out: BytesWriter, count: i64, flexible: bool) -> None:
    """The count of an array, -1 for null."""
    if flexible:
        write_uvarint(out, count + 1)
    else:
        write_i32_be(out, i32(count))


def write_string(out: BytesWriter, value: str, flexible: bool) -> None:
    encoded = value.encode("utf-8")
    size: i64 = len(encoded)
    if size > MAX_STRING_BYTES:
        raise Malformed
    if flexible:
        write_uvarint(out, size + 1)
    else:
        write_i16_be(out, i16(size))
    out.write(encoded)


def write_nullable_string(out: BytesWriter, value: str | None, flexible: bool) -> None:
    if value is not None:
        write_string(out, value, flexible)
    elif flexible:
        out.append(0)
    else:
        write_i16_be(out, -1)


def write_i32_list(out: BytesWriter, values: list[int], flexible: bool) -> None:
    write_count(out, len(values), flexible)
    for value in values:
        write_i32_be(out, value)


def write_i64_list(out: BytesWriter, values: list[int], flexible: bool) -> None:
    write_count(out, len(values), flexible)
    for value in values:
        write_i64_be(out, value)


def write_bool(out: BytesWriter, value: bool) -> None:
    out.append(1 if value else 0)


def write_i8(out: BytesWriter, value: i64) -> None:
    if not -128 <= value <= 127:
        raise Malformed
    out.append(u8(value & 0xFF))


def write_uuid(out: BytesWriter, value: bytes) -> None:
    if len(value) != 16:
        raise Malformed
    out.write(value)


def write_records(out: BytesWriter, value: Records | None, flexible: bool, splices: Splices) -> None:
    if value is None:
        write_count(out, -1, flexible)
        return
    size: i64 = len(value)
    write_count(out, size, flexible)
    if size < SPLICE_BYTES and not isinstance(value, FileSlice):
        out.write(bytes(value))
    else:
        splices.append((len(out), value))


def finished(out: BytesWriter, splices: Splices, wanted: Splices | None) -> bytes:
    """The message with its records in their places, or without them where the caller wants them apart."""
    written = out.getvalue()
    if wanted is not None:
        wanted.extend(splices)
        return written
    if not splices:
        return written
    parts: list[Buffer] = []
    start = 0
    for position, records in splices:
        if isinstance(records, FileSlice):
            raise Malformed
        parts.append(written[start:position])
        parts.append(records)
        start = position
    parts.append(written[start:])
    return b"".join(parts)


def write_unknown_tags(out: BytesWriter, unknown: TaggedFields) -> None:
    if unknown:
        write_tags(out, [], unknown, 0)
    else:
        out.append(0)


def write_tags(
    out: BytesWriter,
    known: list[tuple[int, bytes]],
    unknown: tuple[tuple[int, Buffer], ...],
    known_tags_end: i64,
) -> None:
    """Tagged fields by ascending tag. Tags below `known_tags_end` belong to fields that the schema knows."""
    write_uvarint(out, len(known) + len(unknown))
    for tag, data in known:
        _write_tag(out, tag, data)
    last: i64 = known_tags_end - 1
    for unknown_tag, unknown_data in unknown:
        if unknown_tag <= last:
            raise Malformed
        last = unknown_tag
        _write_tag(out, last, unknown_data)


def _write_tag(out: BytesWriter, tag: i64, data: Buffer) -> None:
    write_uvarint(out, tag)
    write_uvarint(out, len(data))
    out.write(bytes(data))
