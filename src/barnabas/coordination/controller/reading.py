"""Reads the cluster for a controller that takes over, and topics that others have created."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.coordination.controller.snapshot import Snapshot, StoredState, StoredTopic
from barnabas.coordination.metadata.membership import registered_brokers
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import (
    DELETE_TOPICS,
    TOPICS,
    TopicAssignment,
    decode_partition_state,
    decode_topic,
    partition_state_path,
    partitions_path,
    topic_path,
)
from barnabas.coordination.store.contract import Store, Watcher, child_path, children_of
from barnabas.model import BrokerId, TopicPartition


async def read_cluster(store: Store, on_brokers: Watcher, on_topics: Watcher) -> Snapshot:
    """Each watcher is called once, when brokers or topics have come or gone. Raises MalformedNode."""
    brokers = await registered_brokers(store, on_brokers)
    names, _ = await store.children(TOPICS, on_topics)
    return Snapshot(
        brokers=brokers,
        topics=await read_topics(store, names),
        marked=await children_of(store, DELETE_TOPICS),
        configured=await children_of(store, "/config/topics"),
    )


async def read_topics(store: Store, names: Iterable[str]) -> dict[str, StoredTopic]:
    """Omits topics that are deleted by now."""
    topics = {}
    for name in names:
        [found] = await store.get_all([topic_path(name)])
        if found is not None:
            topics[name] = await _read_topic(store, name, decode_topic(name, found[0]))
    return topics


async def _read_topic(store: Store, name: str, assignment: TopicAssignment) -> StoredTopic:
    replicas = _replicas(name, assignment)
    ats = [TopicPartition(name, index) for index in range(len(replicas))]
    states = {
        at.partition: StoredState(decode_partition_state(at, found[0]), found[1].version)
        for at, found in zip(ats, await store.get_all(list(map(partition_state_path, ats))), strict=True)
        if found is not None
    }
    if len(states) == len(replicas):
        return StoredTopic(assignment.topic_id, replicas, True, states.keys(), states)
    has_partitions_node = await store.exists(partitions_path(name)) is not None
    nodes = await children_of(store, partitions_path(name))
    return StoredTopic(assignment.topic_id, replicas, has_partitions_node, set(map(int, nodes)), states)


def _replicas(name: str, assignment: TopicAssignment) -> list[tuple[BrokerId, ...]]:
    partitions = assignment.partitions
    count = len(partitions)
    if not count or max(partitions) != count - 1 or min(partitions) < 0:
        raise MalformedNode(f"{topic_path(name)}: its partitions are not numbered from 0 on")
    replicas = [partitions[index].replicas for index in range(count)]
    if not all(replicas):
        raise MalformedNode(f"{topic_path(name)}: a partition has no replicas")
    return replicas


async def read_tree(store: Store, roots: Sequence[str]) -> list[str]:
    """The nodes that exist at and below these, children before their parents."""
    found: list[str] = []
    for root in roots:
        if await store.exists(root) is not None:
            await _add_tree(store, root, found)
    return found


async def _add_tree(store: Store, path: str, found: list[str]) -> None:
    for name in await children_of(store, path):
        await _add_tree(store, child_path(path, name), found)
    found.append(path)
