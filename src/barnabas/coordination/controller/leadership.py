"""Changes of leaders: elections that clients ask for, and replicas that go offline or come back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from barnabas.coordination.controller.deletion import resume_deletions
from barnabas.coordination.controller.events import BrokersChanged, Connect, ElectLeaders, Send
from barnabas.coordination.controller.messages import MetadataUpdate, leader_and_isr, stop_replicas, whole
from barnabas.coordination.controller.state import (
    Change,
    ControllerState,
    Results,
    change_states,
    changed_topics,
    read_nodes,
    tell_brokers,
)
from barnabas.coordination.metadata.image import NO_LEADER, BrokerImage, PartitionImage
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import config_path, decode_config
from barnabas.coordination.planning.partition_changes import (
    elected,
    initial_state,
    offline_election,
    without_replicas,
)
from barnabas.errors import InvalidTopicException, KafkaError
from barnabas.model import BrokerId, TopicPartition
from barnabas.value import replace

log = logging.getLogger(__name__)


def elect_leaders(state: ControllerState, request: ElectLeaders) -> Change[Results]:
    def decide(at: TopicPartition, partition: PartitionImage) -> PartitionImage:
        online = state.online(at, partition)
        return elected(state.image, at, request.election, online, recovers=state.recovers_leaders)

    results: Results = {}
    known = []
    for at in dict.fromkeys(request.partitions):
        if state.partition(at) is not None:
            known.append(at)
            continue
        try:
            elected(state.image, at, request.election)
        except KafkaError as error:
            results[at] = error
        if at.topic in state.deleting:
            results[at] = InvalidTopicException("The topic is being deleted")
    results |= yield from _change_and_tell(state, known, decide)
    return results


def elect_offline_partitions(state: ControllerState, topic: str | None = None) -> Change[None]:
    """Leaders for partitions that have none: a replica may have come back, or may be elected unclean now."""
    offline = [
        at
        for at, partition in state.partitions()
        if topic in (None, at.topic) and not _has_leader(state, at, partition)
    ]
    unclean = yield from _unclean_topics(state, offline)

    def decide(at: TopicPartition, partition: PartitionImage) -> PartitionImage:
        return with_leader(state, at, partition, unclean=at.topic in unclean)

    yield from _change_and_tell(state, offline, decide)


def with_leader(
    state: ControllerState, at: TopicPartition, partition: PartitionImage, *, unclean: bool = False
) -> PartitionImage:
    """The partition with a leader that is online, as far as there is one to elect."""
    if _has_leader(state, at, partition):
        return partition
    online = state.online(at, partition)
    if not partition.has_state:
        return initial_state(partition, online)
    recovers = unclean and state.recovers_leaders
    return offline_election(partition, online, unclean=unclean, recovers=recovers) or partition


def change_brokers(state: ControllerState, event: BrokersChanged) -> Change[None]:
    """Partitions whose leader is gone get another one. A new broker gets the whole state.

    A broker that has restarted is treated as one that went and one that came.
    """
    before, now = state.image.brokers, event.brokers
    if state.features.levels or state.are_features_open:
        from barnabas.coordination.controller.features import compatible_brokers, settle_features

        yield from settle_features(state, now, is_first_topic=False)
        now = compatible_brokers(state, now)
    came = [broker for broker in now.values() if _epoch(before, broker.id) != broker.epoch]
    went = [broker_id for broker_id in before if _epoch(now, broker_id) != _epoch(before, broker_id)]
    if before == now:
        return
    log.info("Brokers that came: %s; brokers that went: %s", [broker.id for broker in came], went)
    yield Connect(now)
    for broker_id in {*went, *(broker.id for broker in came)}:
        state.shutting_down.discard(broker_id)
        state.offline_replicas.pop(broker_id, None)
    if went:
        restarted = {broker.id for broker in came if broker.id in before}
        present = {each: broker for each, broker in now.items() if each not in restarted}
        state.image = replace(state.image, brokers=present)
        yield from take_offline(state, lambda at, replica: replica in went, waits_for=restarted)
    state.image = replace(state.image, brokers=now)
    if came:
        yield from _welcome(state, came)
    elif not went:
        # Only addresses have changed.
        yield from tell_brokers(state)


def _epoch(brokers: Mapping[BrokerId, BrokerImage], broker_id: BrokerId) -> int:
    found = brokers.get(broker_id)
    return -1 if found is None else found.epoch


def take_offline(
    state: ControllerState,
    is_gone: Callable[[TopicPartition, BrokerId], bool],
    *,
    waits_for: Collection[BrokerId] = (),
) -> Change[None]:
    """Replicas that have just gone offline lose their roles, and their places among the in-sync replicas.

    No unclean leader is elected where a broker in `waits_for` is in sync: it comes back in a moment.
    """
    affected = [
        at
        for at, partition in state.partitions()
        if any(is_gone(at, replica) for replica in partition.replicas)
    ]
    unclean = yield from _unclean_topics(state, affected)

    def elect(at: TopicPartition, partition: PartitionImage) -> PartitionImage:
        may_be_unclean = at.topic in unclean and not any(each in waits_for for each in partition.isr)
        return with_leader(state, at, partition, unclean=may_be_unclean)

    # As in Apache Kafka, leaders come first: clients wait for them.
    leaderless = [
        at
        for at in affected
        if (partition := state.partition(at)) is not None and not _has_leader(state, at, partition)
    ]
    yield from _change_and_tell(state, leaderless, elect)
    yield from _remove_replicas(state, affected, is_gone)


def _remove_replicas(
    state: ControllerState,
    partitions: Collection[TopicPartition],
    is_gone: Callable[[TopicPartition, BrokerId], bool],
) -> Change[None]:
    """Takes replicas that are gone out of the in-sync ones. A broker that is alive stops those that it still has."""
    stops: dict[BrokerId, dict[str, list[tuple[int, int]]]] = {}
    for at in partitions:
        partition = state.partition(at)
        for replica in () if partition is None else partition.replicas:
            if partition is not None and is_gone(at, replica) and replica in state.image.brokers:
                of_broker = stops.setdefault(replica, {})
                of_broker.setdefault(at.topic, []).append((at.partition, partition.leader_epoch))

    def remove(at: TopicPartition, partition: PartitionImage) -> PartitionImage:
        return without_replicas(
            partition, [replica for replica in partition.replicas if is_gone(at, replica)]
        )

    yield from change_states(state, partitions, remove)
    yield from tell_brokers(
        state,
        changed_topics(state, partitions),
        skips=lambda topic, index, replica: is_gone(TopicPartition(topic, index), replica),
    )
    for broker_id, of_broker in stops.items():
        broker = state.image.brokers[broker_id]
        yield Send(broker_id, stop_replicas(state.image, broker, of_broker))


def _welcome(state: ControllerState, came: list[BrokerImage]) -> Change[None]:
    """Brokers that came get their roles, and leaders where nobody else could lead."""
    ids = {broker.id for broker in came}
    topics = whole(state.image.topics.values())
    nothing = MetadataUpdate(state.image)
    for broker in state.image.brokers.values():
        if broker.id not in ids:
            yield Send(broker.id, nothing.to(broker))
    # Metadata comes first: a broker has to know a leader as alive before it can follow it.
    everything = MetadataUpdate(state.image, topics, is_offline=state.is_offline)
    listener = state.settings.current.inter_broker_endpoint.listener_name
    for broker in came:
        yield Send(broker.id, everything.to(broker))
        roles = leader_and_isr(state.image, broker, topics, listener=listener)
        if roles is not None:
            yield Send(broker.id, roles)
    # The others learn which replicas are not offline any more.
    back = [
        at for at, partition in state.partitions() if any(replica in ids for replica in partition.replicas)
    ]
    if back:
        yield from tell_brokers(state, metadata=changed_topics(state, back))
    yield from elect_offline_partitions(state)
    if any(partition.is_reassigned for _, partition in state.partitions()):
        from barnabas.coordination.controller.reassignment import resume_reassignments

        yield from resume_reassignments(
            state,
            lambda _, partition: (
                any(each in ids for each in partition.replicas)
                and any(each in ids for each in partition.replicas if each not in partition.removing)
            ),
        )
    yield from resume_deletions(state, ids)


def _change_and_tell(
    state: ControllerState,
    partitions: Collection[TopicPartition],
    decide: Callable[[TopicPartition, PartitionImage], PartitionImage],
) -> Change[Results]:
    """Roles of those that changed to replicas that are online, and metadata to all brokers."""
    before = {at: state.partition(at) for at in partitions}
    results = yield from change_states(state, partitions, decide)
    changed = [at for at in partitions if state.partition(at) != before[at]]
    for at in changed:
        now, was = state.partition(at), before[at]
        if now is not None and was is not None and _is_unclean(was, now):
            state.stats.unclean_elections += 1
    created = {at for at in changed if (was := before[at]) is not None and not was.has_state}
    if created:
        yield from tell_brokers(state, changed_topics(state, created), is_new=True)
    elections = [at for at in changed if at not in created]
    if elections:
        yield from tell_brokers(state, changed_topics(state, elections), skips=state.is_offline)
    return results


def _is_unclean(before: PartitionImage, after: PartitionImage) -> bool:
    return before.has_state and after.leader not in (*before.isr, NO_LEADER)


def _has_leader(state: ControllerState, at: TopicPartition, partition: PartitionImage) -> bool:
    """A leader that shuts down leads until it has gone."""
    leader = partition.leader
    return leader in state.shutting_down or not state.is_offline(at.topic, at.partition, leader)


def _unclean_topics(state: ControllerState, partitions: Iterable[TopicPartition]) -> Change[set[str]]:
    """Topics among these that allow unclean leaders, of which a partition has no in-sync replica online.

    Their settings are read at this moment, as any broker may have changed them.
    """
    needy = set()
    for at in partitions:
        partition = state.partition(at)
        if partition is None or not partition.has_state:
            continue
        online = state.online(at, partition)
        if online and not any(each in partition.isr for each in online):
            needy.add(at.topic)
    if not needy:
        return set()
    names = sorted(needy)
    paths = [config_path("topics", name) for name in names]
    found = yield from read_nodes(state, paths)
    allowed = set()
    for name, path, node in zip(names, paths, found.nodes, strict=True):
        try:
            properties = {} if node is None else decode_config(path, node[0])
            if state.settings.current.topic_config(properties).unclean_leader_election_enable:
                allowed.add(name)
        except (KafkaError, MalformedNode) as error:
            log.error("No unclean leader for topic %s, since its settings are not valid: %s", name, error)
    return allowed
