from __future__ import annotations

from barnabas.client.admin.admin import Admin
from barnabas.model import TopicPartition
from barnabas.views.sizes import directory_sizes, topic_sizes


def test_the_size_of_a_topic_is_that_of_its_replicas(admin: Admin, topic: str) -> None:
    (directory,) = directory_sizes(admin)
    of_topic = [each for each in directory.replicas if each.partition.topic == topic]
    assert [each.partition for each in of_topic] == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    size_bytes = topic_sizes(admin)[topic]
    assert size_bytes == sum(each.on_disk.size_bytes for each in of_topic) > 0
    assert {each.path for each in of_topic} == {directory.described.path}


def test_directories_with_some_replicas(admin: Admin, topic: str) -> None:
    first = TopicPartition(topic, 0)
    (directory,) = directory_sizes(admin, partitions=[first])
    assert [each.partition for each in directory.replicas] == [first]
    assert directory.replica_count == 1
    # Hidden topics are counted, but not listed.
    (directory,) = directory_sizes(admin, partitions=[first], hidden_topics={topic})
    assert directory.replicas == ()
    assert directory.replica_count == 1
    assert directory.size_bytes > 0
