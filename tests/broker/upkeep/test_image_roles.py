"""Roles as they follow from images of the metadata."""

from __future__ import annotations

from barnabas.broker.upkeep.image_roles import ended_roles, new_roles, roles_at_start
from barnabas.coordination.metadata.changes import changed_topics
from barnabas.coordination.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.model import BrokerId, LeaderEpoch
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest

US, OTHER = BrokerId(0), BrokerId(1)
DELETED = -2


def partition(*replicas: BrokerId, epoch: int = 0) -> PartitionImage:
    return PartitionImage(
        leader=replicas[0],
        leader_epoch=LeaderEpoch(epoch),
        replicas=replicas,
        isr=replicas[:1],
        partition_epoch=epoch + 1,
    )


def topic(name: str, *partitions: PartitionImage, topic_id: bytes = bytes(16)) -> TopicImage:
    return TopicImage(name=name, id=topic_id, partitions=partitions)


def image(*topics: TopicImage) -> MetadataImage:
    empty = MetadataImage(cluster_id="cluster", controller_id=US, controller_epoch=3)
    return empty.with_topics(topics)


def given(request: LeaderAndIsrRequest) -> list[tuple[str, int, int, int, bool]]:
    """Topic, partition, leader, leader epoch, and whether it is new."""
    return [
        (each.topic_name, state.partition_index, state.leader, state.leader_epoch, state.is_new)
        for each in request.topic_states
        for state in each.partition_states
    ]


def ended(request: StopReplicaRequest) -> list[tuple[str, int, int, bool]]:
    """Topic, partition, leader epoch, and whether it is deleted."""
    return [
        (each.topic_name, state.partition_index, state.leader_epoch, state.delete_partition)
        for each in request.topic_states
        for state in each.partition_states
    ]


def between(before: MetadataImage, after: MetadataImage) -> tuple[StopReplicaRequest, LeaderAndIsrRequest]:
    changed, gone = changed_topics(before, after)
    return ended_roles(before, after, changed, gone, US), new_roles(before, after, changed, US)


def test_a_start_gives_all_roles_of_the_broker() -> None:
    request = roles_at_start(
        image(topic("a", partition(US, epoch=4), partition(OTHER)), topic("b", partition(OTHER, US))), US
    )
    assert (request.controller_id, request.controller_epoch) == (US, 3)
    assert given(request) == [("a", 0, US, 4, False), ("b", 0, OTHER, 0, False)]
    [state] = request.topic_states[1].partition_states
    assert (state.replicas, state.isr, state.partition_epoch) == ([OTHER, US], [OTHER], 1)


def test_only_what_has_changed_gets_a_role() -> None:
    stays, rises = partition(US), partition(US)
    before = image(topic("a", stays, rises))
    risen = partition(US, epoch=1)
    after = before.with_topics([topic("a", stays, risen, partition(US)), topic("b", partition(US))])
    stopped, roles = between(before, after)
    assert ended(stopped) == []
    assert given(roles) == [("a", 1, US, 1, False), ("a", 2, US, 0, True), ("b", 0, US, 0, True)]


def test_a_topic_that_is_gone_is_deleted() -> None:
    before = image(topic("a", partition(US), partition(US)))
    stopped, roles = between(before, before.without_topics(["a"]))
    assert ended(stopped) == [("a", 0, DELETED, True), ("a", 1, DELETED, True)]
    assert given(roles) == []


def test_another_topic_of_the_name_is_new() -> None:
    before = image(topic("a", partition(US, epoch=5)))
    stopped, roles = between(before, image(topic("a", partition(US), topic_id=b"\1" * 16)))
    assert ended(stopped) == [("a", 0, DELETED, True)]
    assert given(roles) == [("a", 0, US, 0, True)]
    assert roles.topic_states[0].topic_id == b"\1" * 16


def test_a_partition_that_leaves_the_broker_stops_and_keeps_its_records() -> None:
    before = image(topic("a", partition(US, OTHER)))
    stopped, roles = between(before, image(topic("a", partition(OTHER, epoch=1))))
    assert ended(stopped) == [("a", 0, 1, False)]
    assert given(roles) == []
