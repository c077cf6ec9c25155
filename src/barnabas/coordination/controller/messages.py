"""The requests with which the controller sends its decisions to brokers.

LeaderAndIsr gives partitions their roles, StopReplica ends them, UpdateMetadata has the metadata for clients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from barnabas.coordination.metadata.image import (
    BrokerImage,
    MetadataImage,
    TopicImage,
)
from barnabas.coordination.metadata.updates import LEADER_DURING_DELETE, SECURITY_PROTOCOL_CODES
from barnabas.model import BrokerId
from barnabas.protocol.messages.leader_and_isr_request import (
    LeaderAndIsrLiveLeader,
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

# Whether a replica of a partition cannot be used: its broker is gone or shuts down, or its log directory failed.
IsOffline: TypeAlias = Callable[[str, int, BrokerId], bool]


class Changed(NamedTuple):
    """Partitions of a topic, as they are now."""

    topic: TopicImage
    indexes: Sequence[int]


def whole(topics: Iterable[TopicImage]) -> list[Changed]:
    return [Changed(topic, range(len(topic.partitions))) for topic in topics]


def leader_and_isr(
    image: MetadataImage,
    broker: BrokerImage,
    changed: Iterable[Changed],
    *,
    is_new: bool | None = False,
    listener: str = "",
    skips: IsOffline | None = None,
) -> LeaderAndIsrRequest | None:
    """The roles of a broker in these partitions; None if it has no replica of them.

    Replicas are new if `is_new` says so; None means those that a reassignment adds. `listener` is the one at which
    brokers find each other. Replicas that `skips` names get no role.
    """
    topics = []
    leaders: set[BrokerId] = set()
    for topic, indexes in changed:
        states = []
        for index in indexes:
            partition = topic.partitions[index]
            if broker.id not in partition.replicas or not partition.has_state:
                continue
            if skips is not None and skips(topic.name, index, broker.id):
                continue
            leaders.add(partition.leader)
            states.append(
                LeaderAndIsrPartitionState(
                    partition_index=index,
                    controller_epoch=partition.controller_epoch,
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    isr=list(partition.isr),
                    partition_epoch=partition.partition_epoch,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding),
                    removing_replicas=list(partition.removing),
                    is_new=broker.id in partition.adding if is_new is None else is_new,
                    leader_recovery_state=partition.leader_recovery_state,
                )
            )
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
        live_leaders=_live_leaders(image, leaders, listener),
    )


def _live_leaders(
    image: MetadataImage, leaders: Collection[BrokerId], listener: str
) -> list[LeaderAndIsrLiveLeader]:
    found = []
    for leader in sorted(leaders):
        broker = image.brokers.get(leader)
        endpoint = None if broker is None else broker.endpoint(listener)
        if endpoint is not None:
            found.append(
                LeaderAndIsrLiveLeader(broker_id=leader, host_name=endpoint.host, port=endpoint.port)
            )
    return found


def update_metadata(
    image: MetadataImage,
    broker: BrokerImage,
    changed: Iterable[Changed] = (),
    deleted: Iterable[TopicImage] = (),
) -> UpdateMetadataRequest:
    """The live brokers, and these partitions."""
    return MetadataUpdate(image, changed, deleted).to(broker)


class MetadataUpdate:
    """The same news for several brokers. Partitions that never had a leader are no news."""

    def __init__(
        self,
        image: MetadataImage,
        changed: Iterable[Changed] = (),
        deleted: Iterable[TopicImage] = (),
        is_offline: IsOffline | None = None,
    ) -> None:
        self._image = image
        self._is_offline = is_offline or (lambda topic, index, replica: replica not in image.brokers)
        topics = [self._topic(*each) for each in changed]
        topics += [self._deleted(*each) for each in whole(deleted)]
        self._topics = [each for each in topics if each.partition_states]
        self._brokers = [_live_broker(each) for each in image.brokers.values()]

    def to(self, broker: BrokerImage) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            controller_id=self._image.controller_id,
            controller_epoch=self._image.controller_epoch,
            broker_epoch=broker.epoch,
            topic_states=self._topics,
            live_brokers=self._brokers,
        )

    def _topic(self, topic: TopicImage, indexes: Sequence[int]) -> UpdateMetadataTopicState:
        name, is_offline = topic.name, self._is_offline
        return UpdateMetadataTopicState(
            topic_name=name,
            topic_id=topic.id,
            partition_states=[
                UpdateMetadataPartitionState(
                    partition_index=index,
                    controller_epoch=partition.controller_epoch,
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    isr=list(partition.isr),
                    zk_version=partition.partition_epoch,
                    replicas=list(partition.replicas),
                    offline_replicas=[each for each in partition.replicas if is_offline(name, index, each)],
                )
                for index, partition in ((each, topic.partitions[each]) for each in indexes)
                if partition.has_state
            ],
        )

    def _deleted(self, topic: TopicImage, indexes: Sequence[int]) -> UpdateMetadataTopicState:
        """A leader that means deletion, in the first epochs, as Apache Kafka has it."""
        state = self._topic(topic, indexes)
        for each in state.partition_states:
            each.leader, each.leader_epoch, each.zk_version = LEADER_DURING_DELETE, 0, 0
        return state


def stop_replicas(
    image: MetadataImage,
    broker: BrokerImage,
    stops: Mapping[str, Iterable[tuple[int, int]]],
    *,
    delete: bool = False,
) -> StopReplicaRequest:
    """Ends replicas of a broker: by topic, their partitions and leader epochs. Deletes their logs if asked to."""
    return StopReplicaRequest(
        controller_id=image.controller_id,
        controller_epoch=image.controller_epoch,
        broker_epoch=broker.epoch,
        topic_states=[
            StopReplicaTopicState(
                topic_name=name,
                partition_states=[
                    StopReplicaPartitionState(
                        partition_index=index, leader_epoch=leader_epoch, delete_partition=delete
                    )
                    for index, leader_epoch in partitions
                ],
            )
            for name, partitions in stops.items()
        ],
    )


def stop_deleted_replicas(
    image: MetadataImage, broker: BrokerImage, topics: Iterable[TopicImage]
) -> StopReplicaRequest | None:
    """Ends the replicas of a broker and deletes their logs; None if it has no replica of these topics."""
    stops = {}
    for topic in topics:
        partitions = [
            (index, EPOCH_DURING_DELETE)
            for index, partition in enumerate(topic.partitions)
            if broker.id in partition.replicas
        ]
        if partitions:
            stops[topic.name] = partitions
    return stop_replicas(image, broker, stops, delete=True) if stops else None


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
