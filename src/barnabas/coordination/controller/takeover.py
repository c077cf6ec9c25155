"""The start of a controller: it repairs the cluster, informs the brokers, and completes unfinished changes.

A crash can leave behind: partitions without a state (they are created), topics that are marked for deletion (their
deletion continues), leaders that are gone (another in-sync replica takes over, or none).
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from barnabas.coordination.controller.deletion import resume_deletions
from barnabas.coordination.controller.events import Send, TakeOver
from barnabas.coordination.controller.messages import update_metadata, whole
from barnabas.coordination.controller.snapshot import StoredState, StoredTopic
from barnabas.coordination.controller.state import Change, ControllerState, commit, tell_brokers
from barnabas.coordination.metadata.identity import random_id
from barnabas.coordination.metadata.image import NO_LEADER, PartitionImage, TopicImage
from barnabas.coordination.metadata.nodes import set_state, state_node, topic_node
from barnabas.coordination.metadata.tree import (
    delete_topic_path,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_path,
)
from barnabas.coordination.planning.partition_changes import led_by
from barnabas.coordination.planning.topic_creation import new_partition
from barnabas.coordination.store.contract import Create, Delete, Operation, SetData
from barnabas.model import BrokerId, TopicPartition
from barnabas.value import replace

log = logging.getLogger(__name__)


def take_over(state: ControllerState, request: TakeOver) -> Change[None]:
    snapshot = request.snapshot
    state.image = replace(state.image, brokers=snapshot.brokers)
    state.configured = set(snapshot.configured)
    repairs: list[Operation] = []
    topics: list[TopicImage] = []
    for name, stored in snapshot.topics.items():
        if name in snapshot.marked:
            state.deleting[name] = _topic_to_delete(state, name, stored)
        else:
            topics.append(plan_topic(state, name, stored, repairs, request.unclean))
    gone = sorted(set(snapshot.marked) - state.deleting.keys())
    repairs += [Delete(delete_topic_path(name)) for name in gone]
    yield from commit(state, repairs)
    state.image = state.image.with_topics(topics)
    # A broker has to know a leader as alive before it can follow it.
    for broker in state.image.brokers.values():
        yield Send(broker.id, update_metadata(state.image, broker))
    yield from tell_brokers(state, whole(topics))
    yield from resume_deletions(state)


def plan_topic(
    state: ControllerState,
    name: str,
    stored: StoredTopic,
    repairs: list[Operation],
    unclean: Collection[BrokerId] = (),
) -> TopicImage:
    """The topic with all its partitions; adds what the store lacks to `repairs`."""
    epoch = state.claim.controller_epoch
    if not stored.has_partitions_node:
        repairs.append(Create(partitions_path(name)))
    partitions = []
    for index, replicas in enumerate(stored.replicas):
        at = TopicPartition(name, index)
        found = stored.states.get(index)
        if found is not None:
            partition = _partition(found, replicas)
            if partition.leader not in state.image.brokers or partition.leader in unclean:
                partition = with_live_leader(state, partition)
                if partition.leader_epoch != found.state.leader_epoch:
                    repairs.append(set_state(at, partition, epoch))
        else:
            partition = new_partition(replicas)
            if partition.leader not in state.image.brokers:
                partition = replace(with_live_leader(state, partition), partition_epoch=0)
            if index not in stored.partition_nodes:
                repairs.append(Create(partition_path(at)))
            repairs.append(Create(partition_state_path(at), state_node(partition, epoch)))
        partitions.append(partition)
    topic_id = stored.topic_id
    topic = TopicImage(name=name, id=topic_id or random_id(state.rng), partitions=tuple(partitions))
    if topic_id is None:
        repairs.append(SetData(topic_path(name), topic_node(topic)))
    return topic


def with_live_leader(state: ControllerState, partition: PartitionImage) -> PartitionImage:
    """The partition in its next leader epoch, led by a replica that is alive and in sync, if there is one.

    A leader that is alive leads on in a new epoch: after a crash its log may have lost its end.
    """
    leader = partition.leader
    in_sync = [each for each in partition.replicas if each in partition.isr and each in state.image.brokers]
    if in_sync:
        return led_by(partition, leader if leader in in_sync else in_sync[0], partition.isr)
    return partition if leader == NO_LEADER else led_by(partition, NO_LEADER, partition.isr)


def _topic_to_delete(state: ControllerState, name: str, stored: StoredTopic) -> TopicImage:
    partitions = tuple(map(new_partition, stored.replicas))
    return TopicImage(name=name, id=stored.topic_id or random_id(state.rng), partitions=partitions)


def _partition(stored: StoredState, replicas: tuple[BrokerId, ...]) -> PartitionImage:
    return PartitionImage(
        leader=stored.state.leader,
        leader_epoch=stored.state.leader_epoch,
        replicas=replicas,
        isr=stored.state.isr,
        partition_epoch=stored.version,
    )
