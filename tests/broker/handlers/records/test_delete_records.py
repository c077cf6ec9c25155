"""DeleteRecords on a running broker: few partitions at once, many in turns."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.waiting.turns import AT_ONCE
from barnabas.errors import (
    NONE,
    InvalidTopicException,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, produce

PARTITIONS = 4
RECORDS = 10


def delete(client: RawClient, wanted: dict[str, list[tuple[int, int]]]) -> Any:
    """Deletes before an offset in each partition; the results by topic, in the order of the request."""
    topics = [
        DeleteRecordsTopic(
            name=name,
            partitions=[
                DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in partitions
            ],
        )
        for name, partitions in wanted.items()
    ]
    response = client.ask("DeleteRecords", 2, DeleteRecordsRequest(timeout_ms=30_000, topics=topics))
    return {
        topic.name: [(each.partition_index, each.low_watermark, each.error_code) for each in topic.partitions]
        for topic in response.topics
    }


@pytest.mark.parametrize("repeats", [1, 2 * AT_ONCE])
def test_each_partition_is_answered_for(client: RawClient, repeats: int) -> None:
    topic, compacted = f"deleted-{repeats}", f"compacted-{repeats}"
    create_topic(client, topic, PARTITIONS)
    create_topic(client, compacted, cleanup_policy="compact")
    for index in range(PARTITIONS):
        assert produce(client, topic, batch(*[b"value"] * RECORDS), partition=index).error_code == NONE
    wanted = {
        topic: [(0, 3), (1, -1), (2, 0), (3, RECORDS + 1), (PARTITIONS, 0)] * repeats,
        compacted: [(0, 0)],
        "__consumer_offsets": [(0, 0)],
        "missing": [(0, 0)],
    }
    assert delete(client, wanted) == {
        topic: [
            (0, 3, NONE),
            (1, RECORDS, NONE),
            (2, 0, NONE),
            (3, -1, OffsetOutOfRange.code),
            (PARTITIONS, -1, UnknownTopicOrPartition.code),
        ]
        * repeats,
        compacted: [(0, -1, PolicyViolation.code)],
        "__consumer_offsets": [(0, -1, InvalidTopicException.code)],
        "missing": [(0, -1, UnknownTopicOrPartition.code)],
    }


def test_nothing_to_delete(client: RawClient) -> None:
    assert delete(client, {}) == {}
