"""Reading assigned partitions up to known ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.model import TopicPartition
from tests.waiting import wait_until

# This bounds a wait on a busy machine.
READ_TIMEOUT_S: Final = 120.0
POLL_MS: Final = 100


def read_up_to(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> list[ConsumerRecord]:
    """Polls until the position of each partition has reached its end."""
    found: list[ConsumerRecord] = []
    wait_until(
        lambda: all(consumer.position(partition) >= end for partition, end in ends.items()),
        lambda: f"{len(found)} records up to {ends}",
        timeout_s=READ_TIMEOUT_S,
        meanwhile=lambda: found.extend(consumer.poll(POLL_MS)),
    )
    return found
