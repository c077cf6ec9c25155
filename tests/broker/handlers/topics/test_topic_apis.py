"""CreateTopics, DeleteTopics and CreatePartitions against a running broker, in every version."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from barnabas import errors
from barnabas.broker.upkeep.control_requests import LocalLinks
from barnabas.clock import ManualClock
from barnabas.coordination.metadata.image import QuotaEntity
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.stop_replica_response import StopReplicaResponse
from barnabas.protocol.requests import decode_response
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, fetch, produce, values
from tests.broker.running import RunningBroker

NO_ID = bytes(16)
FIRST_VERSION_WITH_CONFIGS = 5
FIRST_VERSION_WITH_ID = 7


def metadata(client: RawClient, topic: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    [found] = client.ask("Metadata", 12, request).topics
    return found


def create(
    client: RawClient, version: int, *topics: CreatableTopic, validate_only: bool = False
) -> list[Any]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=30_000, validate_only=validate_only)
    answers: list[Any] = client.ask("CreateTopics", version, request).topics
    return answers


def delete(client: RawClient, version: int, *names: str) -> list[Any]:
    if version >= 6:
        topics = [DeleteTopicState(name=name) for name in names]
        request = DeleteTopicsRequest(topics=topics, timeout_ms=30_000)
    else:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=30_000)
    answers: list[Any] = client.ask("DeleteTopics", version, request).responses
    return answers


@pytest.mark.parametrize("version", range(8))
def test_every_version_of_create_topics(client: RawClient, version: int) -> None:
    name = f"create-v{version}"
    configs = [CreatableTopicConfig(name="retention.ms", value="12345")]
    topic = CreatableTopic(name=name, num_partitions=3, replication_factor=1, configs=configs)
    [answer] = create(client, version, topic)
    assert (answer.name, answer.error_code) == (name, 0)
    found = metadata(client, name)
    assert [partition.leader_id for partition in found.partitions] == [found.partitions[0].leader_id] * 3
    if version >= FIRST_VERSION_WITH_CONFIGS:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
        assert answer.error_message is None
        settings = {config.name: config for config in answer.configs}
        assert list(settings) == sorted(settings)
        assert settings["retention.ms"].value == "12345"
        assert settings["retention.ms"].config_source == 1
        assert settings["cleanup.policy"].value == "delete"
        assert settings["cleanup.policy"].config_source == 5
    assert answer.topic_id == (found.topic_id if version >= FIRST_VERSION_WITH_ID else NO_ID)
    # The topic can be used at once.
    assert produce(client, name, batch(b"a"), partition=2).error_code == 0


@pytest.mark.parametrize("version", range(8))
def test_each_topic_has_its_own_error(client: RawClient, version: int) -> None:
    good = f"good-v{version}"
    create_topic(client, f"there-v{version}")
    answers = create(
        client,
        version,
        CreatableTopic(name=good, num_partitions=1, replication_factor=1),
        CreatableTopic(name=f"there-v{version}", num_partitions=1, replication_factor=1),
        CreatableTopic(name="bad name", num_partitions=1, replication_factor=1),
        CreatableTopic(name="none", num_partitions=0, replication_factor=1),
        CreatableTopic(name="two", num_partitions=1, replication_factor=2),
        CreatableTopic(
            name="nobody",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[77])],
        ),
        CreatableTopic(
            name="odd",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value="long")],
        ),
    )
    assert [answer.error_code for answer in answers] == [
        0,
        errors.TopicAlreadyExists.code,
        errors.InvalidTopicException.code,
        errors.InvalidPartitions.code,
        errors.InvalidReplicationFactor.code,
        errors.InvalidReplicaAssignment.code,
        errors.InvalidConfig.code,
    ]
    if version >= 1:
        assert answers[1].error_message == f"Topic 'there-v{version}' already exists."
    assert metadata(client, good).error_code == 0
    assert metadata(client, "odd").error_code == errors.UnknownTopicOrPartition.code


def test_counts_and_assignments_that_are_left_to_the_broker(client: RawClient) -> None:
    [plain] = create(client, 7, CreatableTopic(name="by-default", num_partitions=-1, replication_factor=-1))
    assert (plain.error_code, plain.num_partitions, plain.replication_factor) == (0, 1, 1)
    here = metadata(client, "by-default").partitions[0].leader_id
    assignments = [CreatableReplicaAssignment(partition_index=each, broker_ids=[here]) for each in (1, 0)]
    [assigned] = create(
        client,
        7,
        CreatableTopic(name="assigned", num_partitions=-1, replication_factor=-1, assignments=assignments),
    )
    assert (assigned.error_code, assigned.num_partitions) == (0, 2)


def test_a_name_that_is_there_twice_is_answered_once(client: RawClient) -> None:
    one, two = (CreatableTopic(name="twins", num_partitions=each, replication_factor=1) for each in (1, 2))
    [answer] = create(client, 7, one, two)
    assert (answer.name, answer.error_code, answer.error_message) == (
        "twins",
        errors.InvalidRequest.code,
        "Duplicate topic name.",
    )
    assert metadata(client, "twins").error_code == errors.UnknownTopicOrPartition.code


def test_a_topic_that_is_only_checked_is_not_there(client: RawClient) -> None:
    topic = CreatableTopic(name="checked", num_partitions=2, replication_factor=1)
    [answer] = create(client, 7, topic, validate_only=True)
    assert (answer.error_code, answer.num_partitions) == (0, 2)
    assert metadata(client, "checked").error_code == errors.UnknownTopicOrPartition.code


@pytest.mark.parametrize("version", range(7))
def test_every_version_of_delete_topics(client: RawClient, broker: RunningBroker, version: int) -> None:
    name = f"delete-v{version}"
    topic_id = create_topic(client, name, partitions=2).topic_id
    produce(client, name, batch(b"old"))
    first, second = sorted(delete(client, version, name, "no-such"), key=lambda answer: str(answer.name))
    assert (first.name, first.error_code) == (name, 0)
    assert (second.name, second.error_code) == ("no-such", errors.UnknownTopicOrPartition.code)
    if version >= 6:
        assert (first.topic_id, second.topic_id) == (topic_id, NO_ID)
    assert metadata(client, name).error_code == errors.UnknownTopicOrPartition.code
    # Directories that are renamed go later; none has the topic's name any more.
    assert not Path(broker.directory, f"{name}-0").exists()
    assert not Path(broker.directory, f"{name}-1").exists()
    assert create_topic(client, name).topic_id != topic_id
    assert values(fetch(client, name, 0).records) == []


def test_topics_are_deleted_by_id(client: RawClient) -> None:
    by_id = create_topic(client, "by-id").topic_id
    twice = create_topic(client, "twice").topic_id
    both = create_topic(client, "both").topic_id
    missing = bytes(15) + b"\x07"
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name=None, topic_id=by_id),
            DeleteTopicState(name=None, topic_id=missing),
            DeleteTopicState(name=None, topic_id=twice),
            DeleteTopicState(name=None, topic_id=twice),
            DeleteTopicState(name=None, topic_id=both),
            DeleteTopicState(name="both"),
            DeleteTopicState(name="named", topic_id=by_id),
            DeleteTopicState(name="again"),
            DeleteTopicState(name="again"),
            DeleteTopicState(name=None),
        ],
        timeout_ms=30_000,
    )
    answers = {
        (answer.name, answer.topic_id): (answer.error_code, answer.error_message)
        for answer in client.ask("DeleteTopics", 6, request).responses
    }
    invalid = errors.InvalidRequest.code
    assert answers == {
        ("by-id", by_id): (0, None),
        (None, missing): (errors.UnknownTopicId.code, "This server does not host this topic ID."),
        (None, twice): (invalid, "Duplicate topic id."),
        ("both", both): (invalid, "The provided topic name maps to an ID that was already supplied."),
        ("named", by_id): (invalid, "You may not specify both topic name and topic id."),
        ("again", NO_ID): (invalid, "Duplicate topic name."),
        (None, NO_ID): (invalid, "Neither topic name nor id were specified."),
    }
    assert metadata(client, "by-id").error_code == errors.UnknownTopicOrPartition.code
    assert metadata(client, "twice").error_code == 0
    assert metadata(client, "both").error_code == 0


def test_topics_stay_where_deletion_is_disabled(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, {"delete.topic.enable": "false"}) as broker, broker.client() as client:
        topic_id = create_topic(client, "kept").topic_id
        for version in range(7):
            expected = errors.InvalidRequest if version < 3 else errors.TopicDeletionDisabled
            [answer] = delete(client, version, "kept")
            assert (answer.name, answer.error_code) == ("kept", expected.code)
        [by_id] = client.ask(
            "DeleteTopics", 6, DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)])
        ).responses
        assert (by_id.name, by_id.topic_id) == (None, topic_id)
        assert metadata(client, "kept").error_code == 0


@pytest.mark.parametrize("version", range(4))
def test_every_version_of_create_partitions(client: RawClient, version: int) -> None:
    name, other = f"more-v{version}", f"assigned-v{version}"
    create_topic(client, name, partitions=2)
    create_topic(client, other)
    here = metadata(client, name).partitions[0].leader_id
    produce(client, name, batch(b"a"), partition=1)
    topics = [
        CreatePartitionsTopic(name=name, count=4, assignments=None),
        CreatePartitionsTopic(
            name=other, count=2, assignments=[CreatePartitionsAssignment(broker_ids=[here])]
        ),
        CreatePartitionsTopic(name="no-such", count=2, assignments=None),
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=30_000)
    answers = client.ask("CreatePartitions", version, request).results
    assert [(answer.name, answer.error_code) for answer in answers] == [
        (name, 0),
        (other, 0),
        ("no-such", errors.UnknownTopicOrPartition.code),
    ]
    assert [partition.partition_index for partition in metadata(client, name).partitions] == [0, 1, 2, 3]
    assert produce(client, name, batch(b"b"), partition=3).error_code == 0
    assert values(fetch(client, name, 0, partition=1).records) == [b"a"]
    again = client.ask("CreatePartitions", version, request).results
    assert [answer.error_code for answer in again[:2]] == [errors.InvalidPartitions.code] * 2
    assert again[0].error_message == "Topic already has 4 partition(s)."


def test_partitions_that_are_only_checked_are_not_added(client: RawClient) -> None:
    create_topic(client, "few")
    topics = [
        CreatePartitionsTopic(name="few", count=3, assignments=None),
        CreatePartitionsTopic(name="few2", count=3, assignments=None),
        CreatePartitionsTopic(name="few2", count=4, assignments=None),
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=30_000, validate_only=True)
    answers = client.ask("CreatePartitions", 3, request).results
    assert [(answer.name, answer.error_code) for answer in answers] == [
        ("few", 0),
        ("few2", errors.InvalidRequest.code),
    ]
    assert len(metadata(client, "few").partitions) == 1


def test_who_waits_too_long_is_told_and_the_change_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningBroker(tmp_path) as broker, broker.client() as client, broker.client() as other:
        create_topic(client, "slow")
        controller = broker.server.broker.controller
        links = controller._links
        assert isinstance(links, LocalLinks)
        stop_replica = links._requests.stop_replica
        begun, may_go_on = threading.Event(), asyncio.Event()

        async def stop_slowly(request: StopReplicaRequest) -> StopReplicaResponse:
            begun.set()
            await may_go_on.wait()
            return await stop_replica(request)

        monkeypatch.setattr(links._requests, "stop_replica", stop_slowly)
        states = [DeleteTopicState(name="slow")]
        client.send("DeleteTopics", 6, DeleteTopicsRequest(topics=states, timeout_ms=60_000))
        assert begun.wait(60)
        topics = [CreatableTopic(name="late", num_partitions=1, replication_factor=1)]
        [late] = other.ask("CreateTopics", 7, CreateTopicsRequest(topics=topics, timeout_ms=20)).topics
        assert late.error_code == errors.RequestTimedOut.code
        broker.loop.call_soon_threadsafe(may_go_on.set)
        # Changes are made in order: when this one is refused, the one before is done.
        [again] = other.ask("CreateTopics", 7, CreateTopicsRequest(topics=topics, timeout_ms=60_000)).topics
        assert again.error_code == errors.TopicAlreadyExists.code
        [deleted] = decode_response(api_for_name("DeleteTopics"), 6, client.receive_frame()).body.responses
        assert (deleted.name, deleted.error_code) == ("slow", 0)


def test_who_changes_too_much_is_refused_or_slowed_down(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as running:
        broker = running.server.broker
        # The time stands still, so that nothing of the rate is forgotten meanwhile.
        broker.clock = ManualClock()
        quota: QuotaEntity = (None, "<default>", None)
        limits = {"controller_mutation_rate": 0.1}
        running.call(lambda: broker.writer.alter_quotas({quota: lambda current: limits}))
        with running.client("first") as client:
            # A partition in ten seconds is allowed, and eleven seconds' worth at once. Ten are made all the same, since
            # there was no debt before, and are paid for over the next 89 seconds.
            create_topic(client, "first", partitions=10)

        def refused(api: str, version: int, request: Message) -> tuple[int, int]:
            # A client that is told to wait is not read from: each has a connection of its own.
            with running.client("first") as client:
                response = client.ask(api, version, request)
            answers = getattr(
                response, {"CreateTopics": "topics", "DeleteTopics": "responses"}.get(api, "results")
            )
            [answer] = answers
            return answer.error_code, response.throttle_time_ms

        topic = CreatableTopic(name="second", num_partitions=1, replication_factor=1)
        create_one = CreateTopicsRequest(topics=[topic])
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="first", count=11, assignments=None)]
        )
        drop = DeleteTopicsRequest(topic_names=["first"])
        exceeded = errors.ThrottlingQuotaExceeded.code
        assert refused("CreateTopics", 7, create_one) == (exceeded, 89_000)
        assert refused("CreatePartitions", 3, grow) == (exceeded, 89_000)
        assert refused("DeleteTopics", 5, drop) == (exceeded, 89_000)
        with running.client("other") as other:
            assert metadata(other, "second").error_code == errors.UnknownTopicOrPartition.code
            # Each client id has a rate of its own.
            create_topic(other, "others")
        assert refused("CreateTopics", 5, create_one) == (0, 99_000)
        assert refused("CreatePartitions", 2, grow) == (0, 109_000)
        assert refused("DeleteTopics", 4, drop) == (0, 219_000)


def test_topics_are_there_after_a_restart(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path)
    with broker, broker.client() as client:
        kept = create_topic(client, "kept", partitions=3)
        create_topic(client, "gone")
        produce(client, "kept", batch(b"a"), partition=2)
        delete(client, 6, "gone")
    with broker, broker.client() as client:
        found = metadata(client, "kept")
        assert (found.topic_id, len(found.partitions)) == (kept.topic_id, 3)
        assert values(fetch(client, "kept", 0, partition=2).records) == [b"a"]
        assert metadata(client, "gone").error_code == errors.UnknownTopicOrPartition.code
