"""Which partition of its topic a coordinator's key belongs to: Java's hash of the key decides, as in Apache Kafka."""

from __future__ import annotations

from typing import Final

from barnabas.primitives.java_hash import java_hash

_INT32_MIN: Final = -(2**31)


def partition_of_key(key: str, partition_count: int) -> int:
    value = java_hash(key)
    # The one number whose absolute value Java's int does not hold counts as zero.
    return 0 if value == _INT32_MIN else abs(value) % partition_count
