"""Unsigned varints: seven bits a byte, the lowest first, the top bit set on all bytes but the last.

Kafka reads them as 32-bit integers of at most five bytes. A value above 2³¹ - 1 would be negative there; as no length,
count or tag can be, it is refused here.
"""

from __future__ import annotations

from typing import Final

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import Buffer

MAX_VARINT: Final = 0x7FFFFFFF


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """The value at a position and the position behind it; IndexError if the bytes end before it does."""
    first = data[position]
    return (first, position + 1) if first < 128 else read_varint_rest(data, position + 1, first)


def read_varint_rest(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """As `read_varint`, when the first byte has been read and is not the last."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > MAX_VARINT:
                raise Malformed
            return value, position
    raise Malformed


def append_varint(out: bytearray, value: int) -> None:
    if not 0 <= value <= MAX_VARINT:
        raise Malformed
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
