"""Metadata against a running broker: topics by name and by id, and topics that are created because they are used."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from barnabas import errors
from barnabas.coordination.controller.messages import MetadataUpdate, whole
from barnabas.protocol.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, produce
from tests.broker.running import INTERNAL_PARTITIONS, RunningBroker
from tests.waiting import wait_until


def ask(client: RawClient, version: int, *topics: MetadataRequestTopic) -> MetadataResponse:
    found: MetadataResponse = client.ask("Metadata", version, MetadataRequest(topics=list(topics)))
    return found


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(client: RawClient, version: int) -> None:
    name = f"by-id-{version}"
    topic_id = create_topic(client, name).topic_id
    found = ask(
        client,
        version,
        MetadataRequestTopic(name=None, topic_id=topic_id),
        MetadataRequestTopic(name=None, topic_id=b"x" * 16),
    )
    assert {(topic.name, topic.topic_id, topic.error_code) for topic in found.topics} == {
        (name, topic_id, 0),
        (None, b"x" * 16, errors.UnknownTopicId.code),
    }


@pytest.mark.parametrize("version", [10, 11])
def test_versions_that_have_ids_and_do_not_answer_them(client: RawClient, version: int) -> None:
    name = f"by-name-{version}"
    topic_id = create_topic(client, name).topic_id
    for asked in (
        MetadataRequestTopic(name=None, topic_id=topic_id),
        MetadataRequestTopic(name=None),
        MetadataRequestTopic(name=name, topic_id=topic_id),
    ):
        found = ask(client, version, asked, MetadataRequestTopic(name="beside"))
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in found.topics] == [
            (asked.name or "", asked.topic_id, errors.InvalidRequest.code),
            ("beside", bytes(16), errors.InvalidRequest.code),
        ]
        assert (found.brokers, found.cluster_id, found.controller_id) == ([], None, -1)
    [topic] = ask(client, version, MetadataRequestTopic(name=name)).topics
    assert (topic.error_code, topic.topic_id) == (0, topic_id)


def ask_one(client: RawClient, name: str, version: int = 12, **options: Any) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], **options)
    [topic] = client.ask("Metadata", version, request).topics
    assert isinstance(topic, MetadataResponseTopic)
    return topic


@pytest.mark.parametrize("version", range(14))
def test_a_missing_topic_is_created_in_the_background(client: RawClient, version: int) -> None:
    """As in Apache Kafka: the first answer comes at once, without partitions, and the client asks again."""
    name = f"used-{version}"
    missing = ask_one(client, name, version)
    assert (missing.error_code, missing.partitions) == (errors.UnknownTopicOrPartition.code, [])
    assert missing.topic_id == bytes(16)
    wait_until(lambda: ask_one(client, name, version).error_code == 0)
    assert len(ask_one(client, name, version).partitions) == 1
    # A topic that is named can be used.
    assert produce(client, name, batch(b"value")).error_code == 0


def test_a_topic_that_many_ask_for_is_created_once(broker: RunningBroker) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="wanted")])
    with ExitStack() as stack:
        clients = [stack.enter_context(broker.client()) for _ in range(20)]
        for each in clients:
            each.send("Metadata", 12, request)
        for each in clients:
            each.receive_frame()
        wait_until(lambda: ask_one(clients[0], "wanted").error_code == 0)
        assert len({ask_one(each, "wanted").topic_id for each in clients}) == 1


def test_topics_that_are_not_created(client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    create_topic(client, "taken.name")
    unknown = errors.UnknownTopicOrPartition.code
    for _ in range(3):
        assert ask_one(client, "bad name").error_code == errors.InvalidTopicException.code
        assert ask_one(client, "not-wanted", allow_auto_topic_creation=False).error_code == unknown
        assert ask_one(client, "taken_name").error_code == unknown
    wait_until(lambda: "taken_name" in caplog.text)
    ask_one(client, "there-by-now")
    wait_until(lambda: ask_one(client, "there-by-now").error_code == 0)
    names = {topic.name for topic in client.ask("Metadata", 12, MetadataRequest(topics=None)).topics}
    assert "there-by-now" in names
    assert not {"bad name", "not-wanted", "taken_name"} & names
    [line] = [message for message in caplog.messages if "taken_name" in message]
    assert line == (
        "Topic taken_name cannot be created automatically: Topic 'taken_name' collides with existing topic: taken.name"
    )


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_an_internal_topic_is_created_with_its_own_settings(client: RawClient, name: str) -> None:
    missing = ask_one(client, name)
    assert (missing.error_code, missing.is_internal) == (errors.UnknownTopicOrPartition.code, True)
    wait_until(lambda: ask_one(client, name).error_code == 0)
    topic = ask_one(client, name)
    assert (topic.is_internal, len(topic.partitions)) == (True, INTERNAL_PARTITIONS)


def test_replicas_in_failed_log_directories_are_offline(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        create_topic(client, "topic", partitions=2)
        running = broker.server.broker
        image = running.image
        [own] = image.brokers.values()
        update = MetadataUpdate(
            image, whole(image.topics.values()), is_offline=lambda topic, index, replica: index == 1
        )

        async def learn() -> None:
            running.control.update_metadata(update.to(own))

        broker.call(learn)
        partitions = ask_one(client, "topic").partitions
        assert [each.offline_replicas for each in partitions] == [[], [own.id]]
        asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="topic")])
        [described] = client.ask("DescribeTopicPartitions", 0, asked).topics
        assert [each.offline_replicas for each in described.partitions] == [[], [own.id]]
