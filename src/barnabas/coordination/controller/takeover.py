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
    changed_topics,
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
    brokers = snapshot.brokers
    if state.settings.current.uses_zookeeper:
        from barnabas.coordination.controller.features import begin_features, compatible_brokers

        yield from begin_features(state, snapshot)
        brokers = compatible_brokers(state, brokers)
    yield Connect(brokers)
    state.image = replace(state.image, brokers=brokers)
    state.configured = set(snapshot.configured)
    state.unreadable = set(snapshot.unreadable)
    repairs: list[Operation] = [Delete(path) for path in snapshot.notices]
    topics = [plan_topic(state, name, stored, repairs) for name, stored in snapshot.topics.items()]
    marked = [name for name in snapshot.marked if name in snapshot.topics]
    if marked and not state.settings.current.delete_topic_enable:
        log.info("Topics %s are not deleted, since delete.topic.enable is false", marked)
        marked = []
    repairs += [Delete(delete_topic_path(name)) for name in sorted(set(snapshot.marked) - set(marked))]
    yield from commit(state, repairs, leaves_full=True)
    deleted = _split(state, topics, marked)
    # A broker has to know a leader as alive before it can follow it.
    nothing = MetadataUpdate(state.image)
    for broker in state.image.brokers.values():
        yield Send(broker.id, nothing.to(broker))
    yield from _repair_states(state, request.unclean)
    yield from _tell_states(state, snapshot, deleted)
    # Partitions that have no leader yet may get an unclean one.
    if any(partition.leader not in state.image.brokers for _, partition in state.partitions()):
        yield from elect_offline_partitions(state)
    yield from _resume_reassignments(state, snapshot)
    yield from resume_deletions(state)
    if snapshot.preferred is not None:
        from barnabas.coordination.controller.legacy import elect_preferred_of_node

        yield from elect_preferred_of_node(state, snapshot.preferred)
    if state.settings.current.auto_leader_rebalance_enable:
        yield StartTimer(_FIRST_BALANCE_S, _balance)
    return Deferred([each.name for each in deleted], None)


def _tell_states(state: ControllerState, snapshot: Snapshot, deleted: list[TopicImage]) -> Change[None]:
    """All states. Partitions that have got their first one from this controller are new: nobody has a log of them."""
    if not state.image.topics and not deleted:
        return
    incomplete = [
        name for name, stored in snapshot.topics.items() if len(stored.states) < len(stored.replicas)
    ]
    if not incomplete:
        yield from tell_brokers(state, whole(state.image.topics.values()), deleted=deleted)
        return
    known: list[TopicPartition] = []
    created: list[TopicPartition] = []
    for at, _ in state.partitions():
        (known if at.partition in snapshot.topics[at.topic].states else created).append(at)
    yield from tell_brokers(state, changed_topics(state, known), deleted=deleted)
    yield from tell_brokers(state, changed_topics(state, created), is_new=True)


def _balance(state: ControllerState) -> Change[None]:
    from barnabas.coordination.controller.balance import balance_leaders

    return balance_leaders(state)


def _split(state: ControllerState, topics: list[TopicImage], marked: Collection[str]) -> list[TopicImage]:
    """Puts topics into the image, and marked ones among those that are deleted. Returns the latter.

    Apache Kafka waits for the end of a reassignment first. It may wait for ever: brokers do not know the id of a topic
    that is hidden, so that its followers cannot fetch.
    """
    deleted = [topic for topic in topics if topic.name in marked]
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
    partitions = [
        replace(
            new_partition(replicas),
            adding=stored.adding.get(index, ()),
            removing=stored.removing.get(index, ()),
        )
        for index, replicas in enumerate(stored.replicas)
    ]
    topic_id = stored.topic_id or random_id(state.rng)
    topic = TopicImage(name=name, id=topic_id, partitions=tuple(partitions))
    if stored.topic_id is None:
        repairs.append(SetData(topic_path(name), topic_node(topic)))
    if not stored.has_partitions_node:
        repairs.append(Create(partitions_path(name)))
    for index, partition in enumerate(partitions):
        at = TopicPartition(name, index)
        found = stored.states.get(index)
        if found is not None:
            partitions[index] = with_stored(partition, found.state, found.version)
        if found is not None or index in stored.unreadable:
            continue
        partition = initial_state(replace(partition, controller_epoch=epoch), state.online(at, partition))
        partitions[index] = partition
        if index not in stored.partition_nodes:
            repairs.append(Create(partition_path(at)))
        if partition.has_state:
            repairs.append(Create(partition_state_path(at), state_node(partition, epoch)))
    return replace(topic, partitions=tuple(partitions))
