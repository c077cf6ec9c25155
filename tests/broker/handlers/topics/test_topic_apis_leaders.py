"""ElectLeaders, the reassignment APIs and DescribeTopicPartitions as one broker answers them, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas import errors
from barnabas.broker.handlers.topics.pieces import PIECE_SIZE
from barnabas.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.broker.running import RunningBroker


@pytest.mark.parametrize("version", range(3))
def test_every_version_of_elect_leaders(client: RawClient, version: int) -> None:
    name = f"elect-v{version}"
    create_topic(client, name, partitions=2)
    for election in (0, 1) if version > 0 else (0,):
        request = ElectLeadersRequest(
            election_type=election,
            topic_partitions=[
                TopicPartitions(topic=name, partitions=[1, 0, 2]),
                TopicPartitions(topic="no-such", partitions=[0]),
            ],
        )
        response = client.ask("ElectLeaders", version, request)
        assert response.error_code == 0
        unknown, not_needed = errors.UnknownTopicOrPartition.code, errors.ElectionNotNeeded.code
        results = {
            (topic.topic, each.partition_id): each.error_code
            for topic in response.replica_election_results
            for each in topic.partition_result
        }
        assert results == {
            (name, 1): not_needed,
            (name, 0): not_needed,
            (name, 2): unknown,
            ("no-such", 0): unknown,
        }


@pytest.mark.parametrize("version", range(3))
def test_an_election_for_all_partitions_names_those_it_concerned(client: RawClient, version: int) -> None:
    create_topic(client, f"all-v{version}")
    response = client.ask("ElectLeaders", version, ElectLeadersRequest(topic_partitions=None))
    assert (response.error_code, response.replica_election_results) == (0, [])


def test_an_election_of_an_unknown_kind_is_refused(client: RawClient) -> None:
    asked = [TopicPartitions(topic="any", partitions=[0])]
    response = client.ask("ElectLeaders", 2, ElectLeadersRequest(election_type=9, topic_partitions=asked))
    assert response.error_code == errors.InvalidRequest.code
    [result] = response.replica_election_results[0].partition_result
    everything = client.ask("ElectLeaders", 2, ElectLeadersRequest(election_type=9, topic_partitions=None))
    assert everything.error_code == errors.InvalidRequest.code
    assert everything.replica_election_results == []
    assert (result.error_code, result.error_message) == (
        errors.InvalidRequest.code,
        "Unknown election type 9",
    )


@pytest.mark.parametrize("version", range(2))
def test_every_version_of_alter_partition_reassignments(
    client: RawClient, broker: RunningBroker, version: int
) -> None:
    name = f"reassign-v{version}"
    create_topic(client, name, partitions=4)
    here = broker.server.broker.replicas.broker_id
    targets: dict[int, list[int] | None] = {0: [here], 1: [here, 99], 2: None, 3: [here, here], 4: [here]}
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=True,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=replicas)
                    for index, replicas in targets.items()
                ],
            ),
            ReassignableTopic(
                name="no-such", partitions=[ReassignablePartition(partition_index=0, replicas=[here])]
            ),
        ],
    )
    response = client.ask("AlterPartitionReassignments", version, request)
    assert (response.error_code, response.error_message) == (0, None)
    assert response.allow_replication_factor_change is True
    known, unknown = response.responses
    assert [(each.partition_index, each.error_code) for each in known.partitions] == [
        (0, 0),
        (1, errors.InvalidReplicaAssignment.code),
        (2, errors.NoReassignmentInProgress.code),
        (3, errors.InvalidReplicaAssignment.code),
        (4, errors.UnknownTopicOrPartition.code),
    ]
    assert known.partitions[0].error_message is None
    assert known.partitions[1].error_message == (
        "The manual partition assignment includes broker 99, but no such broker is registered."
    )
    assert [each.error_code for each in unknown.partitions] == [errors.UnknownTopicOrPartition.code]


def test_no_reassignment_is_ever_under_way(client: RawClient) -> None:
    create_topic(client, "calm")
    asked = [ListPartitionReassignmentsTopics(name="calm", partition_indexes=[0])]
    for topics in (None, asked):
        request = ListPartitionReassignmentsRequest(topics=topics)
        response = client.ask("ListPartitionReassignments", 0, request)
        assert (response.error_code, response.error_message, response.topics) == (0, None, [])


def test_partitions_are_described_page_by_page(client: RawClient) -> None:
    names = ["pages-a", "pages-b", "pages-c", "pages-unknown"]
    for name, partitions in zip(names, (3, 2, 1), strict=False):
        create_topic(client, name, partitions=partitions)
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=2
    )
    pages = []
    while True:
        response = client.ask("DescribeTopicPartitions", 0, request)
        pages.append(
            [
                (topic.name, topic.error_code, [each.partition_index for each in topic.partitions])
                for topic in response.topics
            ]
        )
        if response.next_cursor is None:
            break
        request.cursor = Cursor(
            topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
        )
    unknown: Any = ("pages-unknown", errors.UnknownTopicOrPartition.code, [])
    assert pages == [
        [("pages-a", 0, [0, 1])],
        [("pages-a", 0, [2]), ("pages-b", 0, [0])],
        [("pages-b", 0, [1]), ("pages-c", 0, [0])],
        [unknown],
    ]


@pytest.mark.parametrize(("topic", "partition"), [("elsewhere", 0), ("here", -1)])
def test_a_page_that_there_cannot_be(client: RawClient, topic: str, partition: int) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="here")], cursor=Cursor(topic_name=topic, partition_index=partition)
    )
    [answer] = client.ask("DescribeTopicPartitions", 0, request).topics
    assert (answer.name, answer.error_code) == ("here", errors.InvalidRequest.code)


def test_many_partitions_are_named(client: RawClient) -> None:
    """The controller decides about some at a time. The answer is one."""
    count = PIECE_SIZE + 20
    indexes = list(range(count + 1))
    create_topic(client, "many", count)
    unknown, not_needed = errors.UnknownTopicOrPartition.code, errors.ElectionNotNeeded.code
    elect = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="many", partitions=indexes)])
    [elected] = client.ask("ElectLeaders", 2, elect).replica_election_results
    assert [(each.partition_id, each.error_code) for each in elected.partition_result] == [
        *((index, not_needed) for index in range(count)),
        (count, unknown),
    ]
    targets = [ReassignablePartition(partition_index=index, replicas=[1_001]) for index in indexes]
    reassign = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="many", partitions=targets)])
    [reassigned] = client.ask("AlterPartitionReassignments", 0, reassign).responses
    assert [each.partition_index for each in reassigned.partitions] == indexes
    assert [each.error_code for each in reassigned.partitions] == [0] * count + [unknown]
