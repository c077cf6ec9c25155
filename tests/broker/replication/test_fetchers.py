"""Which fetcher a partition belongs to."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.fetchers import fetcher_number
from barnabas.model import TopicPartition


@pytest.mark.parametrize(
    ("topic", "partition", "count", "expected"),
    [
        # "a".hashCode() is 97: 31 * 97 + partition.
        ("a", 0, 10, 7),
        ("a", 5, 10, 2),
        ("a", 5, 1, 0),
        ("", 3, 2, 1),
        # Its hashCode() is the least int, and so is 31 times it. Java's int has no absolute value of that.
        ("polygenelubricants", 0, 7, 0),
        # One more is -2147483647.
        ("polygenelubricants", 1, 10, 7),
    ],
)
def test_the_number_of_a_fetcher_is_kafkas(topic: str, partition: int, count: int, expected: int) -> None:
    assert fetcher_number(TopicPartition(topic, partition), count) == expected
