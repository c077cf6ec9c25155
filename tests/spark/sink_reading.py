"""What stands in a topic, as a reader of committed records finds it."""

from __future__ import annotations

from barnabas.client.admin.admin import Admin
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.model import TopicPartition
from tests.consuming import read_up_to


def committed_records(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """All committed records of a topic; waits for transactions that are being ended."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        [described] = admin.describe_topics([topic]).values()
        partitions = [TopicPartition(topic, each.partition) for each in described.partitions]
        ends = {partition: listed.offset or 0 for partition, listed in admin.list_offsets(partitions).items()}
    with Consumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(partitions)
        return read_up_to(consumer, ends)


def committed_values(bootstrap: str, topic: str) -> list[str]:
    """The values as text, sorted."""
    return sorted((record.value or b"").decode() for record in committed_records(bootstrap, topic))
