"""Java's hash of a text, by which Apache Kafka assigns keys to partitions and partitions to fetchers."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

_UINT32_MASK: Final = 2**32 - 1
# The texts in use come again and again, a few at a time.
_REMEMBERED: Final = 4_096


@lru_cache(_REMEMBERED)
def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, as a signed int."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in Struct(f">{len(units) // 2}H").unpack(units):
        value = (31 * value + unit) & _UINT32_MASK
    return value if value < 2**31 else value - 2**32
