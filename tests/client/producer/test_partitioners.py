"""Partitions of records: murmur2 as Java has it, round-robin, own functions."""

from __future__ import annotations

import pytest

from barnabas.client.producer.partitioners import (
    RoundRobin,
    murmur2,
    partition_for_key,
    partitioner_for,
    partitions_for_keys,
)
from barnabas.errors import InvalidConfig

# From the tests of Kafka's own Utils.murmur2, as signed 32-bit numbers.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA)
def test_murmur2_is_that_of_java(key: bytes) -> None:
    hashed = murmur2(key)
    assert (hashed if hashed < 1 << 31 else hashed - (1 << 32)) == JAVA[key]


def test_every_length_is_in_range() -> None:
    for length in range(40):
        assert 0 <= partition_for_key(bytes(range(length)), 7) < 7


def test_keys_of_a_column() -> None:
    keys = [*JAVA, None, b""]
    assert partitions_for_keys(keys, 7, 5) == [
        5 if key is None else partition_for_key(key, 7) for key in keys
    ]


def test_round_robin_counts_a_topic() -> None:
    partitioner = RoundRobin()
    assert [partitioner("a", None, None, 3) for _ in range(4)] == [0, 1, 2, 0]
    assert partitioner("b", b"key", None, 3) == 0


def test_a_partitioner_is_named_or_given() -> None:
    assert partitioner_for(None) is None
    assert partitioner_for("default") is None
    assert isinstance(partitioner_for("round-robin"), RoundRobin)
    assert isinstance(partitioner_for("org.apache.kafka.clients.producer.RoundRobinPartitioner"), RoundRobin)
    assert partitioner_for(max) is max
    for wrong in ("nearest", 7):
        with pytest.raises(InvalidConfig, match=r"partitioner\.class"):
            partitioner_for(wrong)
