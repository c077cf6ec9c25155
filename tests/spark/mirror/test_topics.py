"""Topics of a mirror: as wide as at the source, whatever was there before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import BROKER_DEFAULT, ConfigResource, NewTopic, ResourceType
from barnabas.model import TopicPartition
from barnabas.spark.mirror.topics import MirroredTopics
from barnabas.testing import Broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        yield admin


def mirrored(admin: Admin) -> MirroredTopics:
    return MirroredTopics(
        admin, admin, target_topic=lambda topic: f"copy.{topic}", replication_factor=BROKER_DEFAULT
    )


def partitions(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def count_of(admin: Admin, topic: str) -> int:
    return len(admin.describe_topics(topic)[topic].partitions)


def test_a_topic_is_made_as_it_is_at_the_source_and_grows_with_it(admin: Admin, topic: str) -> None:
    configs = {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
    admin.create_topics([NewTopic(name=topic, partitions=3, configs=configs)])
    topics = mirrored(admin)
    topics.make(partitions(topic, 1))
    assert (count_of(admin, f"copy.{topic}"), topics.partition_count) == (3, 3)
    resource = ConfigResource(ResourceType.TOPIC, f"copy.{topic}")
    found = admin.describe_configs(resource)[resource]
    assert found["retention.ms"].value == "-1"
    # Records keep the times that they have at the source.
    assert found["message.timestamp.type"].value == "CreateTime"
    admin.create_partitions({topic: 5})
    topics.make(partitions(topic, 3))
    assert count_of(admin, f"copy.{topic}") == 3
    topics.make(partitions(topic, 4))
    assert (count_of(admin, f"copy.{topic}"), topics.partition_count) == (5, 5)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 3), (4, 4)])
def test_a_topic_that_is_there_gets_the_partitions_that_it_lacks(
    admin: Admin, topic: str, before: int, after: int
) -> None:
    admin.create_topics({topic: 3, f"copy.{topic}": before})
    mirrored(admin).make(partitions(topic, 3))
    assert count_of(admin, f"copy.{topic}") == after


@pytest.mark.slow
def test_a_topic_that_was_deleted_at_the_source_has_the_partitions_of_the_batch(
    admin: Admin, topic: str
) -> None:
    mirrored(admin).make(partitions(topic, 2))
    assert count_of(admin, f"copy.{topic}") == 2
