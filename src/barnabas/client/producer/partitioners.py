"""The choice of the partition of a record.

The caller's choice comes first. Otherwise a record with a key goes by the murmur2 hash of the key, as in Kafka's Java
clients, so that the same key always goes to the same partition. A record without a key goes to a partition that stays
the same for `batch.size` bytes ("sticky": batches fill up). Then the producer draws two other partitions at random and
takes the one with fewer waiting bytes (KIP-794), so that a slow broker gets less.

A custom partitioner is a function: (topic, key, value, partition_count) -> partition; key and value are bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from barnabas.errors import InvalidConfig

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF
_POSITIVE: Final = 0x7FFF_FFFF


def murmur2(data: bytes) -> i64:
    """The 32 bits of Kafka's murmur2, as a number without a sign."""
    length: i64 = len(data)
    m: i64 = _M
    mask: i64 = _MASK
    h: i64 = (_SEED ^ length) & mask
    end: i64 = length & ~3
    position: i64 = 0
    while position < end:
        k: i64 = (
            i64(data[position])
            | i64(data[position + 1]) << 8
            | i64(data[position + 2]) << 16
            | i64(data[position + 3]) << 24
        )
        k = (k * m) & mask
        k ^= k >> 24
        k = (k * m) & mask
        h = ((h * m) & mask) ^ k
        position += 4
    rest: i64 = length & 3
    if rest == 3:
        h ^= i64(data[end + 2]) << 16
    if rest >= 2:
        h ^= i64(data[end + 1]) << 8
    if rest >= 1:
        h ^= i64(data[end])
        h = (h * m) & mask
    h ^= h >> 13
    h = (h * m) & mask
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partition_count: i64) -> i64:
    return (murmur2(key) & _POSITIVE) % partition_count


def partitions_for_keys(keys: list[bytes | None], partition_count: i64, otherwise: i64) -> list[int]:
    """The partition of each key; records without one go to `otherwise`."""
    found: list[int] = []
    for key in keys:
        found.append(otherwise if key is None else partition_for_key(key, partition_count))  # noqa: PERF401
    return found


class RoundRobin:
    """Each record to the next partition, by topic, whether it has a key or not."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int:
        number = self._next.get(topic, 0)
        self._next[topic] = number + 1
        return number % partition_count


def partitioner_for(setting: object) -> Partitioner | None:
    """The function of `partitioner.class`; None for Kafka's own algorithm, which is built into the producer."""
    if setting is None:
        return None
    if isinstance(setting, str):
        name = setting.rpartition(".")[2].lower().replace("_", "").replace("-", "")
        if name in ("roundrobin", "roundrobinpartitioner"):
            return RoundRobin()
        if name in ("default", "defaultpartitioner", "sticky", "uniformstickypartitioner", "murmur2"):
            return None
        raise InvalidConfig(
            f"partitioner.class: {setting!r} is not known; it takes default, round-robin, or a function"
            " (topic, key, value, partition_count) -> partition"
        )
    if isinstance(setting, type):
        setting = setting()
    if not callable(setting):
        raise InvalidConfig(
            "partitioner.class takes a function (topic, key, value, partition_count) -> partition"
        )
    own: Partitioner = setting
    return own
