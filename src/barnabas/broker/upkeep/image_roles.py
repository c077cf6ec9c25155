"""Makes requests about roles from images of the metadata, as long as the controller does not send them itself."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.replication.replica_manager import EPOCH_DURING_DELETE
from barnabas.coordination.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.model import BrokerId
from barnabas.protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)


def roles_at_start(image: MetadataImage, broker_id: BrokerId) -> LeaderAndIsrRequest:
    """The roles of all partitions of the broker. Their logs are somewhere in its directories."""
    return _leader_and_isr(image, [_topic_state(topic, broker_id, None) for topic in image.topics.values()])


def new_roles(
    before: MetadataImage, after: MetadataImage, changed: Iterable[TopicImage], broker_id: BrokerId
) -> LeaderAndIsrRequest:
    """The roles that have changed. A partition that did not exist before is new: it has no log anywhere."""
    topics = []
    for topic in changed:
        state = _topic_state(topic, broker_id, _partitions_before(before, topic))
        if state.partition_states:
            topics.append(state)
    return _leader_and_isr(after, topics)


def ended_roles(
    before: MetadataImage,
    after: MetadataImage,
    changed: Iterable[TopicImage],
    gone: Iterable[TopicImage],
    broker_id: BrokerId,
) -> StopReplicaRequest:
    """Stops partitions that have left the broker, and deletes those of topics that are gone."""
    request = StopReplicaRequest(controller_id=after.controller_id, controller_epoch=after.controller_epoch)
    for topic in gone:
        indexes = range(len(topic.partitions))
        request.topic_states.append(_stopped(topic.name, indexes, EPOCH_DURING_DELETE, is_deleted=True))
    for topic in changed:
        for index, partition in enumerate(_partitions_before(before, topic)):
            now = topic.partitions[index]
            if broker_id in partition.replicas and broker_id not in now.replicas:
                request.topic_states.append(_stopped(topic.name, [index], now.leader_epoch, is_deleted=False))
    return request


def _partitions_before(before: MetadataImage, topic: TopicImage) -> tuple[PartitionImage, ...]:
    known = before.topics.get(topic.name)
    return known.partitions if known is not None and known.id == topic.id else ()


def _leader_and_isr(image: MetadataImage, topics: list[LeaderAndIsrTopicState]) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        controller_id=image.controller_id, controller_epoch=image.controller_epoch, topic_states=topics
    )


def _topic_state(
    topic: TopicImage, broker_id: BrokerId, before: tuple[PartitionImage, ...] | None
) -> LeaderAndIsrTopicState:
    state = LeaderAndIsrTopicState(topic_name=topic.name, topic_id=topic.id)
    known = before or ()
    for index, partition in enumerate(topic.partitions):
        is_known = index < len(known)
        if broker_id not in partition.replicas or (is_known and known[index] is partition):
            continue
        state.partition_states.append(
            LeaderAndIsrPartitionState(
                partition_index=index,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=list(partition.isr),
                partition_epoch=partition.partition_epoch,
                replicas=list(partition.replicas),
                is_new=before is not None and not is_known,
            )
        )
    return state


def _stopped(
    topic: str, indexes: Iterable[int], leader_epoch: int, *, is_deleted: bool
) -> StopReplicaTopicState:
    return StopReplicaTopicState(
        topic_name=topic,
        partition_states=[
            StopReplicaPartitionState(
                partition_index=index, leader_epoch=leader_epoch, delete_partition=is_deleted
            )
            for index in indexes
        ],
    )
