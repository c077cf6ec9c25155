"""Transactions of thousands of offsets and hundreds of partitions: done in pieces, and answered as if they were not."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.handlers.groups.wide_commit import PIECE_PARTITIONS
from barnabas.broker.waiting.turns import AT_ONCE
from barnabas.errors import InvalidProducerEpoch, UnknownTopicOrPartition
from barnabas.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.group_requests import fetch_offsets, wait_for_coordinator
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.broker.transaction_requests import (
    add_offsets,
    add_partitions,
    data_values,
    end_transaction,
    init_producer,
    produce_in_transaction,
    read_committed,
)
from tests.waiting import wait_until

PARTITIONS = 2 * AT_ONCE
COUNT = 2 * PIECE_PARTITIONS + 500


def wide_commit(
    client: RawClient, transactional_id: str, producer: tuple[int, int], group_id: str, *, first: int = 0
) -> list[tuple[str, list[tuple[int, int]]]]:
    """Each existing partition many times, and one that does not exist; errors by topic and partition."""
    partitions = [
        TxnOffsetCommitRequestPartition(
            partition_index=number % PARTITIONS, committed_offset=first + number, committed_metadata="m" * 500
        )
        for number in range(COUNT)
    ]
    missing = TxnOffsetCommitRequestPartition(partition_index=PARTITIONS, committed_offset=1)
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[
            TxnOffsetCommitRequestTopic(name=name, partitions=[missing, *partitions])
            for name in ("one", "two")
        ],
    )
    response: Any = client.ask("TxnOffsetCommit", 3, request)
    return [
        (topic.name, [(each.partition_index, each.error_code) for each in topic.partitions])
        for topic in response.topics
    ]


@pytest.fixture(scope="module", autouse=True)
def _topics(broker: Any) -> None:
    with broker.client() as client:
        for name in ("one", "two"):
            create_topic(client, name, PARTITIONS)
        wait_for_coordinator(client, "group")


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_larger_than_a_batch(client: RawClient, is_committed: bool) -> None:
    group_id = f"group-{is_committed}"
    wait_for_coordinator(client, group_id)
    producer = init_producer(client, group_id)
    add_offsets(client, group_id, producer, group_id)
    known = [(number % PARTITIONS, 0) for number in range(COUNT)]
    expected = [*known, (PARTITIONS, UnknownTopicOrPartition.code)]
    assert wide_commit(client, group_id, producer, group_id) == [("one", expected), ("two", expected)]
    end_transaction(client, group_id, producer, commit=is_committed)
    last = {number % PARTITIONS: number for number in range(COUNT)}
    offsets = {("two", index): last[index] if is_committed else -1 for index in range(PARTITIONS)}
    indexes = {"two": list(range(PARTITIONS))}
    wait_until(lambda: fetch_offsets(client, group_id, indexes) == offsets)


def test_a_wide_commit_of_a_fenced_producer(client: RawClient) -> None:
    producer_id, epoch = init_producer(client, "fenced")
    add_offsets(client, "fenced", (producer_id, epoch), "group")
    init_producer(client, "fenced")
    for _, found in wide_commit(client, "fenced", (producer_id, epoch), "group"):
        codes = {code for index, code in found if index < PARTITIONS}
        assert codes == {InvalidProducerEpoch.code}


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_transaction_ends_in_many_partitions(client: RawClient, is_committed: bool) -> None:
    topic, name = f"ended-{is_committed}", f"wide-{is_committed}"
    create_topic(client, topic, PARTITIONS)
    producer = init_producer(client, name)
    add_partitions(client, name, producer, topic, *range(PARTITIONS))
    for index in range(PARTITIONS):
        produced = produce_in_transaction(
            client,
            topic,
            b"value",
            producer_id=producer[0],
            producer_epoch=producer[1],
            sequence=0,
            transactional_id=name,
            partition=index,
        )
        assert produced.error_code == 0
    end_transaction(client, name, producer, commit=is_committed)

    def seen(index: int) -> tuple[int, list[bytes | None]]:
        answer = read_committed(client, topic, partition=index)
        aborted = {each.producer_id for each in answer.aborted_transactions or []}
        values = [] if aborted else data_values(answer.records)
        return answer.last_stable_offset, values

    # The record, and its marker.
    expected = (2, [b"value"] if is_committed else [])
    for index in range(PARTITIONS):
        wait_until(lambda at=index: seen(at) == expected)  # type: ignore[misc]
