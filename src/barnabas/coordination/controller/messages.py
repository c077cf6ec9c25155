"""The requests with which the controller sends its decisions to brokers.

LeaderAndIsr gives partitions their roles, StopReplica ends them, UpdateMetadata has the metadata for clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.coordination.metadata.image import BrokerImage, MetadataImage, TopicImage
from barnabas.coordination.metadata.updates import LEADER_DURING_DELETE, SECURITY_PROTOCOL_CODES
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
from barnabas.protocol.messages.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

# The leader epoch in StopReplica of a topic that is deleted.
EPOCH_DURING_DELETE: Final = -2


class Changed(NamedTuple):
    """Partitions of a topic, as they are now."""

    topic: TopicImage
    indexes: Sequence[int]


def whole(topics: Iterable[TopicImage]) -> list[Changed]:
    return [Changed(topic, range(len(topic.partitions))) for topic in topics]


def leader_and_isr(
    image: MetadataImage, broker: BrokerImage, changed: Iterable[Changed], *, is_new: bool = False
) -> LeaderAndIsrRequest | None:
    """The roles of a broker in these partitions; None if it has no replica of them."""
    topics = []
    for topic, indexes in changed:
        states = [
            LeaderAndIsrPartitionState(
                partition_index=index,
                controller_epoch=image.controller_epoch,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=list(partition.isr),
                partition_epoch=partition.partition_epoch,
                replicas=list(partition.replicas),
                is_new=is_new,
            )
            for index, partition in ((each, topic.partitions[each]) for each in indexes)
            if broker.id in partition.replicas
        ]
        if states:
            topics.append(
                LeaderAndIsrTopicState(topic_name=topic.name, topic_id=topic.id, partition_states=states)
            )
    if not topics:
        return None
    return LeaderAndIsrRequest(
        controller_id=image.controller_id,
        controller_epoch=image.controller_epoch,
        broker_epoch=broker.epoch,
        topic_states=topics,
    )


def update_metadata(
    image: MetadataImage,
    broker: BrokerImage,
    changed: Iterable[Changed] = (),
    deleted: Iterable[TopicImage] = (),
) -> UpdateMetadataRequest:
    """The live brokers, and these partitions."""
    topics = [
        UpdateMetadataTopicState(
            topic_name=topic.name,
            topic_id=topic.id,
            partition_states=[
                UpdateMetadataPartitionState(
                    partition_index=index,
                    controller_epoch=image.controller_epoch,
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    isr=list(partition.isr),
                    zk_version=partition.partition_epoch,
                    replicas=list(partition.replicas),
                    offline_replicas=[each for each in partition.replicas if each not in image.brokers],
                )
                for index, partition in ((each, topic.partitions[each]) for each in indexes)
            ],
        )
        for topic, indexes in changed
    ]
    topics += [
        UpdateMetadataTopicState(
            topic_name=topic.name,
            topic_id=topic.id,
            partition_states=[
                UpdateMetadataPartitionState(
                    partition_index=index,
                    controller_epoch=image.controller_epoch,
                    leader=LEADER_DURING_DELETE,
                    leader_epoch=partition.leader_epoch,
                )
                for index, partition in enumerate(topic.partitions)
            ],
        )
        for topic in deleted
    ]
    return UpdateMetadataRequest(
        controller_id=image.controller_id,
        controller_epoch=image.controller_epoch,
        broker_epoch=broker.epoch,
        topic_states=topics,
        live_brokers=[_live_broker(each) for each in image.brokers.values()],
    )


def stop_removed_replicas(
    image: MetadataImage, broker: BrokerImage, before: MetadataImage, changed: Iterable[Changed]
) -> StopReplicaRequest | None:
    """Ends the roles of a broker in partitions that have left it; None if there are none."""
    states = []
    for topic, indexes in changed:
        partitions = [
            StopReplicaPartitionState(
                partition_index=index, leader_epoch=topic.partitions[index].leader_epoch
            )
            for index in indexes
            if broker.id in before.topics[topic.name].partitions[index].replicas
            and broker.id not in topic.partitions[index].replicas
        ]
        if partitions:
            states.append(StopReplicaTopicState(topic_name=topic.name, partition_states=partitions))
    return _stop_replica(image, broker, states)


def stop_deleted_replicas(
    image: MetadataImage, broker: BrokerImage, topics: Iterable[TopicImage]
) -> StopReplicaRequest | None:
    """Ends the replicas of a broker and deletes their logs; None if it has no replica of these topics."""
    states = []
    for topic in topics:
        partitions = [
            StopReplicaPartitionState(
                partition_index=index, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True
            )
            for index, partition in enumerate(topic.partitions)
            if broker.id in partition.replicas
        ]
        if partitions:
            states.append(StopReplicaTopicState(topic_name=topic.name, partition_states=partitions))
    return _stop_replica(image, broker, states)


def _stop_replica(
    image: MetadataImage, broker: BrokerImage, states: list[StopReplicaTopicState]
) -> StopReplicaRequest | None:
    if not states:
        return None
    return StopReplicaRequest(
        controller_id=image.controller_id,
        controller_epoch=image.controller_epoch,
        broker_epoch=broker.epoch,
        topic_states=states,
    )


def _live_broker(broker: BrokerImage) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.id,
        rack=broker.rack,
        endpoints=[
            UpdateMetadataEndpoint(
                host=each.host,
                port=each.port,
                listener=each.listener_name,
                security_protocol=SECURITY_PROTOCOL_CODES[each.security_protocol],
            )
            for each in broker.endpoints
        ],
    )
