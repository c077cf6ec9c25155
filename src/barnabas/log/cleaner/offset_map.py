"""The last offset of each key in the dirty part of a log.

Keys are not kept. An entry is 24 bytes: 128 bits of digest in two words, and the offset + 1, so that zero marks an
empty slot. The digest is the interpreter's own, SipHash, taken twice with secret prefixes, which is faster than a call
of any cryptographic hash. Two keys with one digest would lose a record: among a billion keys the probability is 10⁻²¹,
and it cannot be raised without the prefixes.

The map uses open addressing with linear probing in one flat vector: the three words of an entry mostly share a cache
line. The vector starts small and doubles, up to the bound.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from librt.vecs import extend, vec
from mypy_extensions import i64

ENTRY_BYTES: Final = 24
_WORDS: Final = 3
_SLOTS_MIN: Final = 1024

assert sys.hash_info.width == 64
assert sys.hash_info.algorithm.startswith("siphash")


class OffsetMap:
    """Bounded by `memory_bytes`: at most `capacity` keys, at which point `put` must not be called for a new one."""

    __slots__ = (
        "_high_prefix",
        "_low_prefix",
        "_mask",
        "_resize_at",
        "_slots_max",
        "_table",
        "capacity",
        "latest_offset",
        "load_factor",
        "size",
    )

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        assert 0 < load_factor < 1
        slots = _SLOTS_MIN
        while slots * 2 * ENTRY_BYTES <= memory_bytes:
            slots *= 2
        self._low_prefix = os.urandom(16)
        self._high_prefix = os.urandom(16)
        self._slots_max = slots
        self.load_factor = load_factor
        self.capacity = int(slots * load_factor)
        self.clear()

    def clear(self) -> None:
        self._allocate(_SLOTS_MIN)
        self.size = 0
        self.latest_offset = -1

    @property
    def is_full(self) -> bool:
        return self.size >= self.capacity

    def put(self, key: bytes, offset: int) -> None:
        """The last put of a key stands, as offsets come in rising order."""
        low: i64 = hash(self._low_prefix + key)
        high: i64 = hash(self._high_prefix + key)
        table = self._table
        mask: i64 = self._mask
        slot: i64 = low & mask
        while True:
            word: i64 = slot * 3
            if table[word + 2] == 0:
                break
            if table[word] == low and table[word + 1] == high:
                table[word + 2] = offset + 1
                return
            slot = (slot + 1) & mask
        assert self.size < self.capacity
        table[word] = low
        table[word + 1] = high
        table[word + 2] = offset + 1
        self.size += 1
        if self.size >= self._resize_at:
            self._double()

    def get(self, key: bytes) -> int:
        """The last offset of a key, or -1."""
        low: i64 = hash(self._low_prefix + key)
        high: i64 = hash(self._high_prefix + key)
        table = self._table
        mask: i64 = self._mask
        slot: i64 = low & mask
        while True:
            word: i64 = slot * 3
            offset = table[word + 2]
            if offset == 0:
                return -1
            if table[word] == low and table[word + 1] == high:
                return offset - 1
            slot = (slot + 1) & mask

    def _allocate(self, slots: int) -> None:
        table = vec[i64]([0] * (_SLOTS_MIN * _WORDS))
        while len(table) < slots * _WORDS:
            table = extend(table, table)
        self._table = table
        self._mask = slots - 1
        # At the bound the load factor alone limits: an empty slot always remains to end a search.
        self._resize_at = slots if slots == self._slots_max else slots * 3 // 4

    def _double(self) -> None:
        old = self._table
        old_words = len(old)
        self._allocate((self._mask + 1) * 2)
        table = self._table
        mask: i64 = self._mask
        source: i64 = 0
        while source < old_words:
            if old[source + 2] != 0:
                low = old[source]
                slot: i64 = low & mask
                while table[slot * 3 + 2] != 0:
                    slot = (slot + 1) & mask
                word: i64 = slot * 3
                table[word] = low
                table[word + 1] = old[source + 1]
                table[word + 2] = old[source + 2]
            source += 3
