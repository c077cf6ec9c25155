"""Requests that create, extend and delete many topics: done in pieces, and answered as if they were not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from barnabas.broker.handlers.topics.pieces import PIECE_SIZE, change_in_pieces, pieces
from barnabas.broker.waiting.turns import Turns
from barnabas.clock import SystemClock
from barnabas.errors import (
    InvalidPartitions,
    InvalidRequest,
    InvalidTopicException,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest
from tests.broker.config_requests import TOPIC
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, produce

COUNT = PIECE_SIZE + 100


def names_of(prefix: str) -> list[str]:
    return [f"{prefix}-{number}" for number in range(COUNT)]


def create(client: RawClient, names: Sequence[str], *, validate_only: bool = False) -> dict[str, int]:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    request = CreateTopicsRequest(topics=topics, timeout_ms=120_000, validate_only=validate_only)
    answers = client.ask("CreateTopics", 7, request).topics
    assert all(len(each.configs) > 20 for each in answers if each.error_code == 0)
    return {each.name: each.error_code for each in answers}


def partition_counts(client: RawClient) -> dict[str, int]:
    topics = client.ask("Metadata", 12, MetadataRequest(topics=None)).topics
    return {each.name: len(each.partitions) for each in topics}


@pytest.mark.slow
def test_many_topics_are_created_extended_and_deleted(client: RawClient) -> None:
    create_topic(client, "exists")
    names = names_of("many")
    asked = ["twice", *names[:300], "exists", "bad/name", *names[300:], "twice"]
    expected = {
        **dict.fromkeys(names, 0),
        "twice": InvalidRequest.code,
        "exists": TopicAlreadyExists.code,
        "bad/name": InvalidTopicException.code,
    }
    assert create(client, asked) == expected
    assert partition_counts(client).items() >= dict.fromkeys(names, 1).items()
    # Partitions can be used as soon as there is an answer.
    for name in (names[0], names[-1]):
        assert produce(client, name, batch(b"value")).error_code == 0

    topics = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names]
    wrong = CreatePartitionsTopic(name="exists", count=1, assignments=None)
    request = CreatePartitionsRequest(topics=[topics[0], wrong, *topics], timeout_ms=120_000)
    codes = {each.name: each.error_code for each in client.ask("CreatePartitions", 3, request).results}
    assert codes == {
        **dict.fromkeys(names, 0),
        names[0]: InvalidRequest.code,
        "exists": InvalidPartitions.code,
    }
    counts = partition_counts(client)
    assert [counts[name] for name in names] == [1, *[2] * (COUNT - 1)]

    states = [DeleteTopicState(name=name) for name in (*names, "missing", names[0])]
    answers = client.ask("DeleteTopics", 6, DeleteTopicsRequest(topics=states, timeout_ms=120_000)).responses
    codes = {each.name: each.error_code for each in answers}
    assert codes == {
        **dict.fromkeys(names, 0),
        names[0]: InvalidRequest.code,
        "missing": UnknownTopicOrPartition.code,
    }
    assert set(names) & partition_counts(client).keys() == {names[0]}


def test_many_topics_are_validated(client: RawClient) -> None:
    names = names_of("validated")
    before = partition_counts(client)
    assert create(client, names, validate_only=True) == dict.fromkeys(names, 0)
    assert partition_counts(client) == before


def test_settings_of_many_topics_are_described(client: RawClient) -> None:
    names = [f"described-{number}" for number in range(100)]
    create(client, names)
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
        for name in names
    ]
    results = client.ask("DescribeConfigs", 4, DescribeConfigsRequest(resources=resources)).results
    assert [(each.resource_name, each.error_code) for each in results] == [(name, 0) for name in names]
    assert {len(each.configs) for each in results} == {len(results[0].configs)}
    assert len(results[0].configs) > 20


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({}, []),
        ({"a": 3}, [["a"]]),
        ({"a": 50}, [["a"]]),
        ({"a": 4, "b": 4, "c": 4}, [["a", "b"], ["c"]]),
        ({"a": 1, "b": 50, "c": 1}, [["a"], ["b"], ["c"]]),
        # A client may say anything.
        ({"a": -(1 << 31), "b": 1}, [["a", "b"]]),
    ],
)
def test_pieces_have_a_size(sizes: dict[str, int], expected: list[list[str]]) -> None:
    names = list(sizes)
    found = pieces(names, lambda name: name, sizes.__getitem__, 10)
    assert [[names[index] for index in piece] for piece in found] == expected


def test_results_come_in_the_order_of_the_request() -> None:
    seen: list[list[str]] = []

    async def change(items: Sequence[str]) -> list[str]:
        seen.append(list(items))
        return [item.upper() for item in items]

    async def run() -> list[str]:
        turns = Turns(asyncio.get_running_loop(), SystemClock())
        items = ["a", "b", "c", "a", "d", "e"]
        return await change_in_pieces(turns, items, lambda item: item, lambda _: 1, change, size_max=4)

    assert asyncio.run(run()) == ["A", "B", "C", "A", "D", "E"]
    # Both that are named twice are in one piece.
    assert seen == [["a", "a", "b"], ["c", "d"], ["e"]]
