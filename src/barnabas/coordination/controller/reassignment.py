"""Reassignments: replicas of partitions move to other brokers (KIP-455).

A reassignment is in the node of its topic, so that any controller can continue it: the replicas are the target's and
the old ones together, with those that are added and those that will be removed. It has two phases.

    begun      leader epoch + 1, all replicas get their roles; the added ones are new and catch up
    complete   all of the target is in sync: a leader of the target, the removed ones out of the in-sync replicas and
               their logs deleted, and last the topic's node with the target alone

To cancel one is a reassignment back; another target replaces one that is under way. Many partitions take each step
together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from barnabas.coordination.controller.events import AlterReassignments, Send
from barnabas.coordination.controller.messages import leader_and_isr, stop_replicas
from barnabas.coordination.controller.state import (
    Change,
    ControllerState,
    Results,
    change_states,
    changed_topics,
    commit,
    read_nodes,
    tell_brokers,
)
from barnabas.coordination.metadata.image import NO_LEADER, PartitionImage
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.nodes import topic_node
from barnabas.coordination.metadata.tree import (
    REASSIGN_PARTITIONS,
    decode_reassignment,
    encode_reassignment,
    topic_path,
)
from barnabas.coordination.planning.partition_changes import (
    Assignment,
    assignment_of,
    led_by,
    reassigned,
    reassignment_election,
    with_assignment,
    without_replicas,
)
from barnabas.coordination.store.contract import Delete, Operation, SetData
from barnabas.errors import InvalidReplicaAssignment, KafkaError, UnknownTopicOrPartition
from barnabas.model import BrokerId, TopicPartition
from barnabas.value import replace

log = logging.getLogger(__name__)

Assignments = dict[TopicPartition, Assignment]


def alter_reassignments(state: ControllerState, request: AlterReassignments) -> Change[Results]:
    results: Results = {}
    wanted: Assignments = {}
    for at, target in request.targets.items():
        try:
            if at.topic in state.deleting:
                raise UnknownTopicOrPartition("The partition does not exist.")
            assignment = reassigned(
                state.image,
                at,
                target,
                allow_replication_factor_change=request.allow_replication_factor_change,
            )
            partition = state.partition(at)
            if partition is not None and loses_all(partition, assignment):
                raise InvalidReplicaAssignment("No replica that is in sync would be left.")
            results[at] = None
            # Nothing is to be done for a partition that is where it is to be.
            if partition is not None and (assignment_of(partition) != assignment or partition.is_reassigned):
                wanted[at] = assignment
        except KafkaError as error:
            results[at] = error
    if wanted:
        # The last word counts, whether it came by request or by node.
        yield from forget_in_node(state, lambda at, _: at in wanted)
        yield from reassign(state, wanted)
    return results


def loses_all(partition: PartitionImage, assignment: Assignment) -> bool:
    """Whether an assignment takes away all replicas that are in sync, as a cancellation can do."""
    return partition.has_state and not any(each in assignment.replicas for each in partition.isr)


def list_reassignments(
    state: ControllerState, partitions: Iterable[TopicPartition] | None
) -> Change[dict[TopicPartition, PartitionImage]]:
    """Those that are under way, among these partitions or all."""
    if partitions is None:
        return {at: partition for at, partition in state.partitions() if partition.is_reassigned}
    found = {}
    for at in partitions:
        partition = state.partition(at)
        if partition is not None and partition.is_reassigned:
            found[at] = partition
    return found
    yield  # A change is a generator even if it needs nothing.


def resume_reassignments(
    state: ControllerState, which: Callable[[TopicPartition, PartitionImage], bool]
) -> Change[None]:
    running = {
        at: assignment_of(partition)
        for at, partition in state.partitions()
        if partition.is_reassigned and which(at, partition)
    }
    yield from reassign(state, running)


def complete_reassignments(state: ControllerState, partitions: Iterable[TopicPartition]) -> Change[None]:
    """Finishes those among these partitions whose target has caught up."""
    complete = {}
    for at in partitions:
        partition = state.partition(at)
        if partition is not None and partition.is_reassigned and _is_complete(partition):
            complete[at] = assignment_of(partition)
    yield from reassign(state, complete)


def reassign(state: ControllerState, wanted: Mapping[TopicPartition, Assignment]) -> Change[None]:
    if not wanted:
        return
    yield from _take_up(state, wanted)
    complete: list[TopicPartition] = []
    begun: list[TopicPartition] = []
    for at in wanted:
        partition = state.partition(at)
        if partition is not None:
            (complete if _is_complete(partition) else begun).append(at)
    if begun:
        yield from _begin(state, begun)
    if complete:
        yield from _complete(state, complete)


def _is_complete(partition: PartitionImage) -> bool:
    """One that was cancelled is complete at once: its leader may have been a replica that was to be added."""
    return not partition.is_reassigned or all(
        each in partition.isr for each in assignment_of(partition).target
    )


def _take_up(state: ControllerState, wanted: Mapping[TopicPartition, Assignment]) -> Change[None]:
    """Stores the new assignments, and ends replicas that an earlier reassignment has added in vain."""
    before = {at: partition for at in wanted if (partition := state.partition(at)) is not None}
    changed = {
        at: with_assignment(partition, wanted[at])
        for at, partition in before.items()
        if assignment_of(partition) != wanted[at]
    }
    if changed:
        yield from _store_assignments(state, changed)
    state.put(changed)
    unneeded = {
        at: [each for each in before[at].replicas if each not in after.replicas]
        for at, after in changed.items()
    }
    yield from _remove_replicas(state, {at: each for at, each in unneeded.items() if each})


def _store_assignments(
    state: ControllerState, changed: Mapping[TopicPartition, PartitionImage]
) -> Change[None]:
    """Writes the nodes of topics. A part of it may be stored before a failure, which is a reassignment too."""
    operations: list[Operation] = []
    for name in dict.fromkeys(at.topic for at in changed):
        topic = state.image.topics[name]
        partitions = tuple(
            changed.get(TopicPartition(name, index), partition)
            for index, partition in enumerate(topic.partitions)
        )
        operations.append(SetData(topic_path(name), topic_node(replace(topic, partitions=partitions))))
    yield from commit(state, operations)


def _begin(state: ControllerState, partitions: Collection[TopicPartition]) -> Change[None]:
    def decide(at: TopicPartition, partition: PartitionImage) -> PartitionImage:
        # Brokers take over another list of replicas in a new leader epoch only.
        return led_by(partition, partition.leader, partition.isr) if partition.has_state else partition

    yield from change_states(state, partitions, decide)
    image, listener = state.image, state.settings.current.inter_broker_endpoint.listener_name
    changed = changed_topics(state, partitions)
    for broker in image.brokers.values():
        # A new replica may take any log directory; for an old one a failed directory is a failure.
        roles = leader_and_isr(image, broker, changed, is_new=None, listener=listener)
        if roles is not None:
            yield Send(broker.id, roles)
    yield from tell_brokers(state, metadata=changed)
    log.info("Reassignment of %d partitions has begun: %s", len(partitions), _named(partitions))


def _complete(state: ControllerState, partitions: Collection[TopicPartition]) -> Change[None]:
    before = {at: partition for at in partitions if (partition := state.partition(at)) is not None}
    removed = {at: list(partition.removing) for at, partition in before.items()}
    state.put(
        {
            at: with_assignment(partition, Assignment(assignment_of(partition).target))
            for at, partition in before.items()
        }
    )

    def decide(at: TopicPartition, partition: PartitionImage) -> PartitionImage:
        if not partition.has_state:
            return partition
        isr = tuple(each for each in partition.isr if each in partition.replicas) or partition.isr
        online = state.online(at, partition)
        if partition.leader in online:
            return led_by(partition, partition.leader, isr)
        after = reassignment_election(partition, partition.replicas, online)
        if after is not None:
            return replace(after, isr=isr)
        return led_by(
            partition, partition.leader if partition.leader in partition.replicas else NO_LEADER, isr
        )

    yield from change_states(state, before, decide)
    yield from tell_brokers(state, changed_topics(state, before))
    yield from _stop(state, removed)
    # The node still has the old replicas: a controller that follows can do these steps again.
    after = {at: partition for at in before if (partition := state.partition(at)) is not None}
    yield from _store_assignments(state, after)
    yield from forget_in_node(state, lambda at, replicas: at in after and replicas == after[at].replicas)
    yield from tell_brokers(state, metadata=changed_topics(state, before))
    log.info("Reassignment of %d partitions is complete: %s", len(before), _named(before))


def _remove_replicas(
    state: ControllerState, removed: Mapping[TopicPartition, Collection[BrokerId]]
) -> Change[None]:
    """Takes replicas, which are in no assignment any more, out of the in-sync ones, and deletes their logs."""
    if not removed:
        return

    def decide(at: TopicPartition, partition: PartitionImage) -> PartitionImage:
        return without_replicas(partition, removed[at])

    yield from change_states(state, removed, decide)
    yield from tell_brokers(state, changed_topics(state, removed))
    yield from _stop(state, removed)


def _stop(state: ControllerState, removed: Mapping[TopicPartition, Collection[BrokerId]]) -> Change[None]:
    """Stops replicas, then deletes them. A broker that is gone has a stray log when it comes back, as in Kafka."""
    for broker in state.image.brokers.values():
        stops: dict[str, list[tuple[int, int]]] = {}
        for at, replicas in removed.items():
            partition = state.partition(at)
            if broker.id in replicas and partition is not None:
                stops.setdefault(at.topic, []).append((at.partition, partition.leader_epoch))
        if stops:
            yield Send(broker.id, stop_replicas(state.image, broker, stops))
            yield Send(broker.id, stop_replicas(state.image, broker, stops, delete=True))


def forget_in_node(
    state: ControllerState, is_over: Callable[[TopicPartition, tuple[BrokerId, ...]], bool]
) -> Change[None]:
    """Takes reassignments out of the node of older tools, and removes it with the last of them."""
    found = yield from read_nodes(state, [REASSIGN_PARTITIONS])
    node = found.nodes[0]
    if node is None:
        return
    try:
        asked = decode_reassignment(node[0])
    except MalformedNode as error:
        log.error("%s is removed: %s", REASSIGN_PARTITIONS, error)
        asked = {}
    left = {at: replicas for at, replicas in asked.items() if not is_over(at, replicas)}
    if left == asked and asked:
        return
    if left:
        yield from commit(state, [SetData(REASSIGN_PARTITIONS, encode_reassignment(left))])
    else:
        yield from commit(state, [Delete(REASSIGN_PARTITIONS)], leaves_full=True)


def _named(partitions: Collection[TopicPartition]) -> str:
    first = ", ".join(str(at) for at in list(partitions)[:10])
    return first + (", …" if len(partitions) > 10 else "")
