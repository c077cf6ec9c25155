"""Fetches of so many partitions that they are read in turns: what they wait for ends their waiting all the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.waiting.turns import AT_ONCE
from barnabas.errors import UnknownTopicOrPartition
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.requests import decode_response
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, produce, values
from tests.broker.running import RunningBroker
from tests.waiting import wait_until

PARTITIONS = 3 * AT_ONCE
LONG_MS = 60_000
WAIT_S = 30


@pytest.fixture
def other(broker: RunningBroker) -> Iterator[RawClient]:
    with broker.client() as connected:
        yield connected


def wide_fetch(topic: str, *, max_wait_ms: int, min_bytes: int = 1, count: int = PARTITIONS) -> FetchRequest:
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(count)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )


def received(client: RawClient) -> Any:
    [topic] = decode_response(api_for_name("Fetch"), 12, client.receive_frame()).body.responses
    return topic.partitions


def found(partitions: Any) -> dict[int, list[bytes | None]]:
    return {each.partition_index: values(each.records) for each in partitions if each.records}


def test_all_that_is_there(client: RawClient) -> None:
    create_topic(client, "all", PARTITIONS)
    for index in (0, AT_ONCE, PARTITIONS - 1):
        assert produce(client, "all", batch(b"%d" % index), partition=index).error_code == 0
    client.send("Fetch", 12, wide_fetch("all", max_wait_ms=LONG_MS))
    partitions = received(client)
    assert [each.partition_index for each in partitions] == list(range(PARTITIONS))
    assert found(partitions) == {index: [b"%d" % index] for index in (0, AT_ONCE, PARTITIONS - 1)}


def test_a_record_ends_the_waiting(client: RawClient, other: RawClient, broker: RunningBroker) -> None:
    create_topic(client, "waits", PARTITIONS)
    size_bytes = len(batch(bytes(100)))
    for number in range(3):
        client.send("Fetch", 12, wide_fetch("waits", max_wait_ms=LONG_MS, min_bytes=number * size_bytes + 1))
        wait_until_it_waits(broker)
        began_s = time.monotonic()
        assert produce(other, "waits", batch(bytes(100)), partition=PARTITIONS - 5).error_code == 0
        partitions = received(client)
        assert time.monotonic() - began_s < WAIT_S
        assert found(partitions) == {PARTITIONS - 5: [bytes(100)] * (number + 1)}


@pytest.mark.slow
def test_several_records_are_enough_together(
    client: RawClient, other: RawClient, broker: RunningBroker
) -> None:
    create_topic(client, "together", PARTITIONS)
    client.send("Fetch", 12, wide_fetch("together", max_wait_ms=LONG_MS, min_bytes=10_000))
    wait_until_it_waits(broker)
    for index in range(10):
        assert produce(other, "together", batch(bytes(1_000)), partition=index * 7).error_code == 0
    assert found(received(client)) == {index * 7: [bytes(1_000)] for index in range(10)}


@pytest.mark.slow
def test_time_is_over(client: RawClient) -> None:
    create_topic(client, "quiet", PARTITIONS)
    began_s = time.monotonic()
    client.send("Fetch", 12, wide_fetch("quiet", max_wait_ms=300))
    assert found(received(client)) == {}
    assert time.monotonic() - began_s >= 0.3


@pytest.mark.slow
def test_an_error_is_told_at_once(client: RawClient, other: RawClient, broker: RunningBroker) -> None:
    create_topic(client, "few", 2)
    client.send("Fetch", 12, wide_fetch("few", max_wait_ms=LONG_MS))
    codes = [each.error_code for each in received(client)]
    assert codes == [0, 0] + [UnknownTopicOrPartition.code] * (PARTITIONS - 2)
    create_topic(client, "goes", PARTITIONS)
    client.send("Fetch", 12, wide_fetch("goes", max_wait_ms=LONG_MS))
    wait_until_it_waits(broker)
    other.ask("DeleteTopics", 5, DeleteTopicsRequest(topic_names=["goes"], timeout_ms=30_000))
    assert UnknownTopicOrPartition.code in {each.error_code for each in received(client)}


def test_more_than_may_wait_are_answered_at_once(client: RawClient, broker: RunningBroker) -> None:
    create_topic(client, "crowd", PARTITIONS)
    waiting = broker.server.broker.replicas.delayed
    before = waiting.wide_fetch_partitions
    waiting.wide_fetch_partitions += 1 << 30
    try:
        client.send("Fetch", 12, wide_fetch("crowd", max_wait_ms=LONG_MS))
        assert found(received(client)) == {}
    finally:
        waiting.wide_fetch_partitions -= 1 << 30
    assert waiting.wide_fetch_partitions == before


def wait_until_it_waits(broker: RunningBroker) -> None:
    wait_until(lambda: broker.server.broker.replicas.delayed.wide_fetch_partitions != 0, timeout_s=WAIT_S)
