"""Zigzag varints, as records of v2 have them: 7 bits a byte, the lowest first, the sign in the lowest bit of all."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from barnabas.records.record import MalformedRecord

INT64_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
INT64_MIN: Final = -0x8000_0000_0000_0000


def read_varint(data: bytes, position: i64) -> tuple[i64, i64]:
    """A zigzag varint of at most 5 bytes, whose bits beyond 32 Java drops, and the position behind it."""
    bits: i64 = 0
    shift: i64 = 0
    byte: i64 = data[position]
    while byte >= 0x80:
        bits |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if shift > 28:
            raise MalformedRecord(f"the varint that ends at position {position} has more than 5 bytes")
        byte = data[position]
    bits = (bits | byte << shift) & 0xFFFF_FFFF
    return (bits >> 1) ^ -(bits & 1), position + 1


def read_varlong(data: bytes, position: i64) -> tuple[i64, i64]:
    """A zigzag varint of at most 10 bytes, and the position behind it."""
    start = position
    bits: i64 = 0
    shift: i64 = 0
    byte: i64 = data[position]
    while byte >= 0x80:
        bits |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if shift > 56:
            return _read_10_byte_varlong(data, start), start + 10
        byte = data[position]
    bits |= byte << shift
    return (bits >> 1) ^ -(bits & 1), position + 1


def _read_10_byte_varlong(data: bytes, start: int) -> i64:
    """The longest varlong does not fit into 64 bits on the way: this one counts with integers of any size."""
    if data[start + 9] >= 0x80:
        raise MalformedRecord(f"the varlong at position {start} has more than 10 bytes")
    bits: int = 0
    for index in range(10):
        bits |= (data[start + index] & 0x7F) << (7 * index)
    bits &= 0xFFFF_FFFF_FFFF_FFFF
    return (bits >> 1) ^ -(bits & 1)


def wrap_int64(number: int) -> int:
    """The low 64 bits of a number. Compiled sums wrap by themselves, as Java's do; Python's integers are unbounded."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def write_varint(writer: BytesWriter, number: i64) -> None:
    """A zigzag varint of any of Kafka's two widths."""
    bits: i64 = (number << 1) ^ (number >> 63)
    while bits < 0 or bits >= 0x80:
        writer.append(u8((bits & 0x7F) | 0x80))
        # A logical shift: the 64 bits are not a number here.
        bits = (bits >> 7) & 0x01FF_FFFF_FFFF_FFFF
    writer.append(u8(bits))


def varint_size(number: i64) -> i64:
    bits: i64 = (number << 1) ^ (number >> 63)
    size: i64 = 1
    while bits < 0 or bits >= 0x80:
        bits = (bits >> 7) & 0x01FF_FFFF_FFFF_FFFF
        size += 1
    return size
