"""Which partition of its topic a coordinator's key belongs to: Java's hash of the key decides, as in Apache Kafka."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

_INT32_MIN: Final = -(2**31)
_UINT32_MASK: Final = 2**32 - 1
# The keys in use come again and again, a few at a time.
_REMEMBERED_KEYS: Final = 4_096


@lru_cache(_REMEMBERED_KEYS)
def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, as a signed int."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in Struct(f">{len(units) // 2}H").unpack(units):
        value = (31 * value + unit) & _UINT32_MASK
    return value if value < 2**31 else value - 2**32


def partition_of_key(key: str, partition_count: int) -> int:
    value = java_hash(key)
    # The one number whose absolute value Java's int does not hold counts as zero.
    return 0 if value == _INT32_MIN else abs(value) % partition_count
