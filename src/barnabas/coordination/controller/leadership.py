"""Changes of leaders and replicas: elections, reassignments, brokers that come and go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from barnabas.coordination.controller.events import AlterReassignments, BrokersChanged, ElectLeaders, Send
from barnabas.coordination.controller.messages import (
    Changed,
    leader_and_isr,
    stop_removed_replicas,
    update_metadata,
    whole,
)
from barnabas.coordination.controller.state import Change, ControllerState, commit, tell_brokers
from barnabas.coordination.controller.takeover import with_live_leader
from barnabas.coordination.metadata.image import PartitionImage
from barnabas.coordination.metadata.nodes import set_state, topic_node
from barnabas.coordination.metadata.tree import topic_path
from barnabas.coordination.planning.partition_changes import elected, reassigned
from barnabas.coordination.store.contract import Operation, SetData
from barnabas.errors import KafkaError
from barnabas.model import TopicPartition
from barnabas.value import replace

log = logging.getLogger(__name__)

Results = dict[TopicPartition, KafkaError | None]


def elect_leaders(state: ControllerState, request: ElectLeaders) -> Change[Results]:
    return (
        yield from _change_partitions(
            state,
            dict.fromkeys(request.partitions),
            lambda at: elected(state.image, at, request.election),
        )
    )


def alter_reassignments(state: ControllerState, request: AlterReassignments) -> Change[Results]:
    def change(at: TopicPartition) -> PartitionImage:
        return reassigned(
            state.image,
            at,
            request.targets[at],
            allow_replication_factor_change=request.allow_replication_factor_change,
        )

    return (yield from _change_partitions(state, request.targets, change))


def change_brokers(state: ControllerState, event: BrokersChanged) -> Change[None]:
    """Partitions whose leader is gone get another one. A new broker gets the whole state."""
    before, now = state.image.brokers, event.brokers
    came = [broker for broker in now.values() if before.get(broker.id) != broker]
    went = [broker_id for broker_id, broker in before.items() if now.get(broker_id) != broker]
    if not came and not went:
        return
    log.info(
        "Brokers that came: %s; brokers that went: %s",
        [broker.id for broker in came],
        went,
    )
    state.image = replace(state.image, brokers=now)
    leaderless = [
        TopicPartition(topic.name, index)
        for topic in state.image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader not in now
    ]
    yield from _change_partitions(
        state,
        leaderless,
        lambda at: with_live_leader(state, state.image.topics[at.topic].partitions[at.partition]),
        tells_always=True,
    )
    topics = whole(state.image.topics.values())
    for broker in came:
        # Metadata comes first: a broker has to know a leader as alive before it can follow it.
        yield Send(broker.id, update_metadata(state.image, broker, topics))
        roles = leader_and_isr(state.image, broker, topics)
        if roles is not None:
            yield Send(broker.id, roles)


def _change_partitions(
    state: ControllerState,
    partitions: Iterable[TopicPartition],
    change: Callable[[TopicPartition], PartitionImage],
    *,
    tells_always: bool = False,
) -> Change[Results]:
    """Stores the result of `change` for each partition and informs the brokers; with `tells_always` even without a
    change.
    """
    results: Results = {}
    changed: dict[str, dict[int, PartitionImage]] = {}
    operations: list[Operation] = []
    for at in partitions:
        try:
            after = change(at)
        except KafkaError as error:
            results[at] = error
            continue
        results[at] = None
        before = state.image.topics[at.topic].partitions[at.partition]
        if after.partition_epoch != before.partition_epoch:
            operations.append(set_state(at, after, state.claim.controller_epoch))
        if after != before:
            changed.setdefault(at.topic, {})[at.partition] = after
    topics: list[Changed] = []
    for name, by_index in changed.items():
        topic = state.image.topics[name]
        now = tuple(by_index.get(index, each) for index, each in enumerate(topic.partitions))
        topics.append(Changed(replace(topic, partitions=now), list(by_index)))
        if any(by_index[index].replicas != topic.partitions[index].replicas for index in by_index):
            operations.append(SetData(topic_path(name), topic_node(topics[-1].topic)))
    yield from commit(state, operations)
    image_before = state.image
    if topics:
        state.image = image_before.with_topics(each.topic for each in topics)
    for broker in state.image.brokers.values():
        removed = stop_removed_replicas(state.image, broker, image_before, topics)
        if removed is not None:
            yield Send(broker.id, removed)
    if topics or tells_always:
        yield from tell_brokers(state, topics)
    return results
