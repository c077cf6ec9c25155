"""The entries of an index as two arrays, which are searched."""

from __future__ import annotations

import sys
from array import array
from typing import Final

VALUE_BYTES: Final = 4


class Columns:
    """The entries of an index, keys and values apart."""

    __slots__ = ("keys", "values")

    def __init__(self, keys: array[int], values: array[int]) -> None:
        self.keys = keys
        self.values = values


def rises(column: array[int]) -> bool:
    """Whether no value of the column is below the one before it."""
    values = column.tolist()
    return values == sorted(values)


def split_columns(data: bytes, entry_bytes: int) -> Columns:
    """The columns of an index file, at the speed of copying: a 4-byte word is the unit of both kinds of entry."""
    words = array("i")
    assert words.itemsize == VALUE_BYTES
    words.frombytes(data)
    little_endian = sys.byteorder == "little"
    if little_endian:
        words.byteswap()
    stride = entry_bytes // VALUE_BYTES
    values = words[stride - 1 :: stride]
    if stride == 2:
        return Columns(words[::2], values)
    halves = array("i", bytes(len(values) * 8))
    halves[1 if little_endian else 0 :: 2] = words[::3]
    halves[0 if little_endian else 1 :: 2] = words[1::3]
    keys = array("q")
    keys.frombytes(halves.tobytes())
    return Columns(keys, values)
