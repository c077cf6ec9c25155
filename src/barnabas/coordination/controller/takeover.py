"""The start of a controller: it repairs the cluster, informs the brokers, and completes unfinished changes.

A crash can leave behind: partitions without a state (they are created), topics that are marked for deletion (their
deletion continues), leaders that are gone (another in-sync replica takes over, or none), reassignments and elections
that have begun.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from barnabas.coordination.controller.deletion import (
    Deferred,
    begin_deletions,
    resume_deletions,
)
from barnabas.coordination.controller.events import Connect, Send, StartTimer, TakeOver
from barnabas.coordination.controller.leadership import elect_offline_partitions, with_leader
from barnabas.coordination.controller.messages import MetadataUpdate, whole
from barnabas.coordination.controller.snapshot import Snapshot, StoredTopic
from barnabas.coordination.controller.state import (
    Change,
    ControllerState,
    Deletion,
    change_states,
    commit,
    tell_brokers,
    with_stored,
)
from barnabas.coordination.metadata.identity import random_id
from barnabas.coordination.metadata.image import PartitionImage, TopicImage
from barnabas.coordination.metadata.nodes import state_node, topic_node
from barnabas.coordination.metadata.tree import (
    delete_topic_path,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_path,
)
from barnabas.coordination.planning.partition_changes import (
    initial_state,
    led_by,
    without_replicas,
)
from barnabas.coordination.planning.topic_creation import new_partition
from barnabas.coordination.store.contract import Create, Delete, Operation, SetData
from barnabas.model import BrokerId, TopicPartition
from barnabas.value import replace

log = logging.getLogger(__name__)

# As in Apache Kafka: brokers that start together with the controller get the time to join.
_FIRST_BALANCE_S = 5.0


def take_over(state: ControllerState, request: TakeOver) -> Change[Deferred]:
    snapshot = request.snapshot
    yield Connect(snapshot.brokers)
    state.image = replace(state.image, brokers=snapshot.brokers)
    state.configured = set(snapshot.configured)
    repairs: list[Operation] = [Delete(path) for path in snapshot.notices]
    topics = [plan_topic(state, name, stored, repairs) for name, stored in snapshot.topics.items()]
    marked = [name for name in snapshot.marked if name in snapshot.topics]
    if marked and not state.settings.current.delete_topic_enable:
        log.info("Topics %s are not deleted, since delete.topic.enable is false", marked)
        marked = []
    repairs += [Delete(delete_topic_path(name)) for name in sorted(set(snapshot.marked) - set(marked))]
    yield from commit(state, repairs)
    deleted = _split(state, topics, marked)
    # A broker has to know a leader as alive before it can follow it.
    nothing = MetadataUpdate(state.image)
    for broker in state.image.brokers.values():
        yield Send(broker.id, nothing.to(broker))
    yield from _repair_states(state, request.unclean)
    yield from tell_brokers(state, whole(state.image.topics.values()), deleted=deleted)
    # Partitions that have no leader yet may get an unclean one.
    if any(partition.leader not in state.image.brokers for _, partition in state.partitions()):
        yield from elect_offline_partitions(state)
    yield from _resume_reassignments(state, snapshot)
    yield from begin_deletions(state, [name for name in marked if name in state.image.topics])
    yield from resume_deletions(state)
    if snapshot.preferred is not None:
        from barnabas.coordination.controller.legacy import elect_preferred_of_node

        yield from elect_preferred_of_node(state, snapshot.preferred)
    if state.settings.current.auto_leader_rebalance_enable:
        yield StartTimer(_FIRST_BALANCE_S, _balance)
    return Deferred([each.name for each in deleted], None)


def _balance(state: ControllerState) -> Change[None]:
    from barnabas.coordination.controller.balance import balance_leaders

    return balance_leaders(state)


def _split(state: ControllerState, topics: list[TopicImage], marked: Collection[str]) -> list[TopicImage]:
    """Puts topics into the image, and marked ones that can be deleted among those. Returns the latter."""
    deleted = [
        topic
        for topic in topics
        if topic.name in marked and not any(each.is_reassigned for each in topic.partitions)
    ]
    for topic in deleted:
        state.deleting[topic.name] = Deletion(topic)
    state.image = state.image.with_topics(topic for topic in topics if topic.name not in state.deleting)
    return deleted


def _repair_states(state: ControllerState, unclean: Collection[BrokerId]) -> Change[None]:
    """Leaders and in-sync replicas that are gone are replaced, all at once."""
    brokers = state.image.brokers
    needy = [
        at
        for at, partition in state.partitions()
        if partition.has_state
        and (
            partition.leader in unclean
            or any(each not in brokers for each in (partition.leader, *partition.isr))
        )
    ]

    def decide(at: TopicPartition, partition: PartitionImage) -> PartitionImage:
        leader = partition.leader
        if leader in unclean and leader in brokers:
            # A leader that is alive leads on in a new epoch: after a crash its log may have lost its end.
            return led_by(partition, leader, partition.isr)
        after = with_leader(state, at, partition)
        if after is not partition:
            return after
        return without_replicas(partition, [each for each in partition.replicas if each not in brokers])

    yield from change_states(state, needy, decide)


def _resume_reassignments(state: ControllerState, snapshot: Snapshot) -> Change[None]:
    is_running = any(partition.is_reassigned for _, partition in state.partitions())
    if snapshot.reassignment is None and not is_running:
        return
    from barnabas.coordination.controller.legacy import reassign_as_node_says
    from barnabas.coordination.controller.reassignment import resume_reassignments

    begun: Collection[TopicPartition] = ()
    if snapshot.reassignment is not None:
        begun = yield from reassign_as_node_says(state, snapshot.reassignment)
    yield from resume_reassignments(state, lambda at, _: at not in begun)


def plan_topic(
    state: ControllerState, name: str, stored: StoredTopic, repairs: list[Operation]
) -> TopicImage:
    """The topic with all its partitions; adds what the store lacks to `repairs`."""
    epoch = state.claim.controller_epoch
    if not stored.has_partitions_node:
        repairs.append(Create(partitions_path(name)))
    partitions = []
    for index, replicas in enumerate(stored.replicas):
        at = TopicPartition(name, index)
        partition = replace(
            new_partition(replicas),
            adding=stored.adding.get(index, ()),
            removing=stored.removing.get(index, ()),
        )
        found = stored.states.get(index)
        if found is not None:
            partition = with_stored(partition, found.state, found.version)
        else:
            partition = initial_state(replace(partition, controller_epoch=epoch), state.online(at, partition))
            if index not in stored.partition_nodes:
                repairs.append(Create(partition_path(at)))
            if partition.has_state:
                repairs.append(Create(partition_state_path(at), state_node(partition, epoch)))
        partitions.append(partition)
    topic_id = stored.topic_id
    topic = TopicImage(name=name, id=topic_id or random_id(state.rng), partitions=tuple(partitions))
    if topic_id is None:
        repairs.append(SetData(topic_path(name), topic_node(topic)))
    return topic
