"""The metrics of each topic: requests, records and bytes, in and out.

Partitions of a topic share its metrics, so that counting adds an integer to an attribute. The broker's own metrics are
the sum over all topics, including deleted ones: they only increase.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    RecordListTooLarge,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)

# Expected errors; the others mean that the broker should have been able to serve the request.
_EXPECTED_OF_PRODUCE: Final = (
    CorruptMessage,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    RecordListTooLarge,
    UnknownTopicOrPartition,
)
_EXPECTED_OF_FETCH: Final = (
    FencedLeaderEpoch,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)


class TopicMetrics:
    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_message_conversions",
        "messages_in",
        "produce_message_conversions",
        "replication_bytes_in",
        "replication_bytes_out",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.total_produce_requests = 0
        self.failed_produce_requests = 0
        self.total_fetch_requests = 0
        self.failed_fetch_requests = 0
        self.produce_message_conversions = 0
        self.fetch_message_conversions = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def count_failed_produce(self, error: KafkaError, size_bytes: int) -> None:
        if isinstance(error, MessageTooLarge | RecordListTooLarge):
            self.bytes_rejected += size_bytes
        if not isinstance(error, _EXPECTED_OF_PRODUCE):
            self.failed_produce_requests += 1

    def count_failed_fetch(self, error: KafkaError) -> None:
        if not isinstance(error, _EXPECTED_OF_FETCH):
            self.failed_fetch_requests += 1


# Kafka's names of the metrics, which Prometheus has in lower case, and their descriptions.
METRICS: Final[Mapping[str, str]] = {
    "messages_in": "Records appended.",
    "bytes_in": "Bytes of records appended.",
    "bytes_out": "Bytes of records sent to consumers.",
    "bytes_rejected": "Bytes of records refused because they are too large.",
    "total_produce_requests": "Appends asked for, by partition.",
    "failed_produce_requests": "Appends that failed with an unexpected error.",
    "total_fetch_requests": "Reads by consumers, by partition.",
    "failed_fetch_requests": "Reads that failed with an unexpected error.",
    "produce_message_conversions": "Records appended in another format than they came in.",
    "fetch_message_conversions": "Records sent in another format than they are kept in.",
    "replication_bytes_in": "Bytes of records copied from leaders.",
    "replication_bytes_out": "Bytes of records sent to followers.",
}


class BrokerTopicMetrics:
    """The metrics of all topics that have partitions here."""

    def __init__(self) -> None:
        self._by_topic: dict[str, TopicMetrics] = {}
        # The part of deleted topics in the broker's own metrics.
        self._deleted = TopicMetrics()

    def of(self, topic: str) -> TopicMetrics:
        """The topic's metrics, for its partitions to keep."""
        return self._by_topic.setdefault(topic, TopicMetrics())

    def remove(self, topic: str) -> None:
        gone = self._by_topic.pop(topic, None)
        if gone is not None:
            for name in METRICS:
                setattr(self._deleted, name, getattr(self._deleted, name) + getattr(gone, name))

    def readings(self, name: str) -> Iterator[tuple[Mapping[str, str], int]]:
        """The broker's own value, without labels, and that of each topic in use."""
        topics = list(self._by_topic.items())
        yield {}, getattr(self._deleted, name) + sum(getattr(metrics, name) for _, metrics in topics)
        for topic, metrics in topics:
            if metrics.total_produce_requests or metrics.total_fetch_requests or metrics.replication_bytes_in:
                yield {"topic": topic}, getattr(metrics, name)
