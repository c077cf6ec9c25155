"""Reads the cluster for a controller that takes over, and what has changed in the store since then.

Reads are made together where the store allows it, so that a large cluster costs few round trips.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.coordination.controller.deletion import take_in_marks
from barnabas.coordination.controller.events import MakeChange, TopicsRead
from barnabas.coordination.controller.snapshot import Snapshot, StoredState, StoredTopic
from barnabas.coordination.metadata.membership import registered_brokers
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.topic_names import is_legal_topic_name
from barnabas.coordination.metadata.tree import (
    DELETE_TOPICS,
    FEATURE,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    TOPICS,
    TopicAssignment,
    decode_partition_state,
    decode_topic,
    partition_state_path,
    partitions_path,
    topic_path,
)
from barnabas.coordination.store.contract import NoNode, Store, Watcher, child_path, children_of
from barnabas.model import BrokerId, TopicPartition

log = logging.getLogger(__name__)

NODES_AT_ONCE: Final = 256
_TOPIC: Final = topic_path("")


async def read_cluster(store: Store, watcher: Watcher, *, watches_topics: bool) -> Snapshot:
    """The watcher is called once for each list or node that has changed. Raises StoreError.

    `watches_topics` says whether others than the controller may change the nodes of a topic. If not, one that cannot be
    read is damaged, and raises MalformedNode.
    """
    brokers = await registered_brokers(store, watcher)
    names, _ = await store.children(TOPICS, watcher)
    notices = [
        child_path(parent, name)
        for parent in (LOG_DIR_EVENTS, ISR_CHANGES)
        for name in await _children(store, parent, watcher)
    ]
    [feature] = await store.get_all([FEATURE])
    read = await read_topics(store, names, watcher if watches_topics else None)
    if not watches_topics:
        damaged = [*read.unreadable.values()]
        for topic in read.topics.values():
            damaged += topic.unreadable.values()
        if damaged:
            raise damaged[0]
    return Snapshot(
        brokers=brokers,
        topics=read.topics,
        marked=await _children(store, DELETE_TOPICS, watcher),
        configured=await children_of(store, "/config/topics"),
        notices=notices,
        reassignment=await _data(store, REASSIGN_PARTITIONS, watcher),
        preferred=await _data(store, PREFERRED_REPLICA_ELECTION, watcher),
        feature=feature,
        unreadable=read.unreadable,
    )


async def read_change(store: Store, path: str, watcher: Watcher) -> MakeChange | None:
    """The change that follows from a node that has changed; None if it does not matter."""
    match path:
        case _ if path == DELETE_TOPICS:
            marked = await _children(store, path, watcher)
            return None if not marked else lambda state: take_in_marks(state, marked)
        case _ if path in (REASSIGN_PARTITIONS, PREFERRED_REPLICA_ELECTION):
            data = await _data(store, path, watcher)
            if data is None:
                return None
            from barnabas.coordination.controller import legacy

            if path == REASSIGN_PARTITIONS:
                return lambda state: legacy.reassign_as_node_says(state, data)
            return lambda state: legacy.elect_preferred_of_node(state, data)
        case _ if path in (LOG_DIR_EVENTS, ISR_CHANGES):
            paths = [child_path(path, name) for name in await _children(store, path, watcher)]
            if not paths:
                return None
            from barnabas.coordination.controller import notices

            found = zip(paths, await store.get_all(paths), strict=True)
            nodes = [(each, node[0]) for each, node in found if node is not None]
            return lambda state: notices.take_in(state, nodes)
        case _ if path.startswith(_TOPIC):
            name = path.removeprefix(_TOPIC)
            return await read_partition_counts(store, [name], watcher)
    return None


async def read_partition_counts(store: Store, names: Sequence[str], watcher: Watcher) -> MakeChange | None:
    """The change that follows if these topics have got more partitions than the controller knows; watches them."""
    counts = {}
    nodes = await store.get_all([topic_path(name) for name in names], watcher)
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            continue
        try:
            counts[name] = len(_checked_replicas(name, decode_topic(name, node[0])))
        except MalformedNode as error:
            log.error("A change of a topic is ignored: %s", error)
    if not counts:
        return None
    from barnabas.coordination.controller import growth

    return lambda state: growth.take_in_partitions(state, counts)


async def _children(store: Store, path: str, watcher: Watcher) -> list[str]:
    try:
        names, _ = await store.children(path, watcher)
    except NoNode:
        return []
    return names


async def _data(store: Store, path: str, watcher: Watcher) -> bytes | None:
    if await store.exists(path, watcher) is None:
        return None
    try:
        data, _ = await store.get(path)
    except NoNode:
        return None
    return data


async def read_topics(store: Store, names: Iterable[str], watcher: Watcher | None = None) -> TopicsRead:
    """Omits topics that are deleted by now. A node that cannot be read costs no other topic anything."""
    wanted = list(names)
    nodes = await store.get_all([topic_path(name) for name in wanted], watcher)
    assignments: dict[str, TopicAssignment] = {}
    replicas: dict[str, list[tuple[BrokerId, ...]]] = {}
    unreadable: dict[str, MalformedNode] = {}
    for name, node in zip(wanted, nodes, strict=True):
        if node is None:
            continue
        try:
            assignment = decode_topic(name, node[0])
            replicas[name] = _checked_replicas(name, assignment)
        except MalformedNode as error:
            log.error(
                "Topic %s is not served: %s. Mend the node, or remove it with all below it", name, error
            )
            unreadable[name] = error
        else:
            assignments[name] = assignment
    ats = [TopicPartition(name, index) for name, each in replicas.items() for index in range(len(each))]
    states: dict[str, dict[int, StoredState]] = {name: {} for name in replicas}
    malformed: dict[str, dict[int, MalformedNode]] = {}
    found = await store.get_all([partition_state_path(at) for at in ats])
    for at, node in zip(ats, found, strict=True):
        if node is None:
            continue
        try:
            state = StoredState(decode_partition_state(at, node[0]), node[1].version)
        except MalformedNode as error:
            log.error("Partition %s has no leader: %s. Mend the node", at, error)
            malformed.setdefault(at.topic, {})[at.partition] = error
        else:
            states[at.topic][at.partition] = state
    topics = {
        name: await _read_topic(store, name, assignment, replicas[name], states[name])
        for name, assignment in assignments.items()
    }
    for name, errors in malformed.items():
        topics[name] = topics[name]._replace(unreadable=errors)
    return TopicsRead(topics, unreadable)


async def _read_topic(
    store: Store,
    name: str,
    assignment: TopicAssignment,
    replicas: Sequence[tuple[BrokerId, ...]],
    states: dict[int, StoredState],
) -> StoredTopic:
    adding = {index: each.adding for index, each in assignment.partitions.items() if each.adding}
    removing = {index: each.removing for index, each in assignment.partitions.items() if each.removing}
    has_node, nodes = True, set(states)
    if len(states) < len(replicas):
        has_node = await store.exists(partitions_path(name)) is not None
        children = set(await children_of(store, partitions_path(name)))
        nodes = {index for index in range(len(replicas)) if str(index) in children}
    return StoredTopic(assignment.topic_id, replicas, has_node, nodes, states, adding, removing)


def _checked_replicas(name: str, assignment: TopicAssignment) -> list[tuple[BrokerId, ...]]:
    if not is_legal_topic_name(name):
        raise MalformedNode(f"{topic_path(name)}: no topic can have this name")
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
    if len(found) % NODES_AT_ONCE == 0:
        # A store in this process answers at once: others get their turn.
        await asyncio.sleep(0)
