"""Moves the metadata of a single node from its embedded store to an empty ZooKeeper, where other brokers can join.

An embedded store has the tree that Kafka has in ZooKeeper, so the nodes are copied as they are. The order lets a
migration that was interrupted at any step be repeated:

1. The target gets a mark: no broker joins a cluster that is not complete.
2. The log directories get a mark: no broker opens their embedded store any more.
3. The nodes are copied, parents first, and read again.
4. The cluster id and the features of a single node are written and the mark goes, in one change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.coordination.metadata.acl_nodes import CHANGE_PREFIXES
from barnabas.coordination.metadata.features import LATEST
from barnabas.coordination.metadata.tree import (
    BROKER_IDS,
    BROKER_SEQUENCE_ID,
    CLUSTER_ID,
    CONFIG_CHANGES,
    CONTROLLER,
    FEATURE,
    ISR_CHANGES,
    KNOWN_BROKERS,
    LOG_DIR_EVENTS,
    MIGRATION,
    TOPICS,
    FeatureNode,
    decode_cluster_id,
    encode_cluster_id,
    encode_features,
)
from barnabas.coordination.store.contract import (
    Create,
    Delete,
    NoNode,
    Operation,
    SetData,
    Store,
    StoreError,
    child_path,
    children_of,
    ensure_path,
    parent_of,
)

# So many nodes, and so many bytes, are written by one change: ZooKeeper takes messages of up to 1 MiB.
NODES_AT_ONCE: Final = 500
BYTES_AT_ONCE: Final = 512 * 1024
# A node may have this many bytes around its data in a message, besides its path.
_OVERHEAD_BYTES: Final = 128

# Nodes of a broker that runs, and notices of changes that it has seen long ago.
_NOT_COPIED: Final = frozenset({CONTROLLER, CLUSTER_ID, KNOWN_BROKERS, parent_of(KNOWN_BROKERS)})
_CHILDREN_NOT_COPIED: Final = frozenset(
    {BROKER_IDS, CONFIG_CHANGES, ISR_CHANGES, LOG_DIR_EVENTS, *map(parent_of, CHANGE_PREFIXES.values())}
)

OnCopied = Callable[[int], None]


class MigrationRefused(StoreError):
    """The target cannot take the metadata; the message says what to do."""


class Migrated(NamedTuple):
    cluster_id: str
    topics: int
    nodes: int


class Contents(NamedTuple):
    """What an embedded store has to move."""

    cluster_id: str
    # By path, parents first.
    nodes: Mapping[str, bytes]
    # The number of generated broker ids: the version of a node, which a copy does not keep by itself.
    generated_ids: int


async def read_contents(source: Store) -> Contents:
    """Raises MigrationRefused if no broker has used the store yet."""
    try:
        data, _ = await source.get(CLUSTER_ID)
    except NoNode:
        raise MigrationRefused("no broker has used this store yet: there is nothing to move") from None
    paths: list[str] = []
    await _add_paths(source, "/", paths)
    nodes = {}
    for path, found in zip(paths, await source.get_all(paths), strict=True):
        assert found is not None, f"{path} has gone, although nobody else has the store"
        nodes[path] = found[0]
    sequence = await source.exists(BROKER_SEQUENCE_ID)
    return Contents(decode_cluster_id(data), nodes, 0 if sequence is None else sequence.version)


async def migrate(
    contents: Contents, target: Store, mark_directories: Callable[[], None], on_copied: OnCopied
) -> Migrated:
    """Raises MigrationRefused if the target has another cluster, or something of one."""
    is_complete = await _begin(contents.cluster_id, target)
    mark_directories()
    if not is_complete:
        await _copy(contents.nodes, target, on_copied)
        await _raise_version(target, BROKER_SEQUENCE_ID, contents.generated_ids)
        await _check(contents.nodes, target)
        await _complete(contents.cluster_id, target)
    topics = sum(parent_of(path) == TOPICS for path in contents.nodes)
    return Migrated(contents.cluster_id, topics, len(contents.nodes))


async def _add_paths(store: Store, path: str, found: list[str]) -> None:
    if path in _NOT_COPIED:
        return
    if path != "/":
        found.append(path)
    if path not in _CHILDREN_NOT_COPIED:
        for name in await children_of(store, path):
            await _add_paths(store, child_path(path, name), found)


async def _begin(cluster_id: str, target: Store) -> bool:
    """Marks the target. Returns whether an earlier migration of the same cluster has been completed already."""
    stored, mark = await target.get_all([CLUSTER_ID, MIGRATION])
    if stored is not None:
        theirs = decode_cluster_id(stored[0])
        if theirs == cluster_id:
            return True
        raise MigrationRefused(
            f"ZooKeeper has cluster {theirs} there, and this is cluster {cluster_id}: choose a chroot that is empty"
        )
    if mark is None:
        if await target.exists("/brokers") is not None or await target.exists("/config") is not None:
            raise MigrationRefused(
                "ZooKeeper has nodes of a cluster there, but no cluster id: choose a chroot that is empty"
            )
        await ensure_path(target, parent_of(MIGRATION))
        await target.create(MIGRATION, cluster_id.encode())
    elif mark[0] != cluster_id.encode():
        raise MigrationRefused(
            f"the migration of cluster {mark[0].decode(errors='replace')} has begun there: choose a chroot that is"
            " empty"
        )
    return False


async def _copy(nodes: Mapping[str, bytes], target: Store, on_copied: OnCopied) -> None:
    for paths in _batches(nodes):
        found = await target.get_all(paths)
        operations: list[Operation] = [
            Create(path, nodes[path]) if there is None else SetData(path, nodes[path])
            for path, there in zip(paths, found, strict=True)
            # An earlier attempt may have written it.
            if there is None or there[0] != nodes[path]
        ]
        if operations:
            await target.multi(operations)
        on_copied(len(paths))


def _batches(nodes: Mapping[str, bytes]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path, data in nodes.items():
        cost = len(path) + len(data) + _OVERHEAD_BYTES
        if batch and (len(batch) == NODES_AT_ONCE or size + cost > BYTES_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += cost
    if batch:
        yield batch


async def _raise_version(target: Store, path: str, version: int) -> None:
    """Every write of a node raises its version by one."""
    found = await target.exists(path)
    missing = version if found is None else version - found.version
    operations: Sequence[Operation] = [SetData(path, b"")] * missing
    for start in range(0, missing, NODES_AT_ONCE):
        await target.multi(operations[start : start + NODES_AT_ONCE])


async def _check(nodes: Mapping[str, bytes], target: Store) -> None:
    wrong = _different(nodes, await target.get_all(list(nodes)))
    first = next(wrong, None)
    if first is not None:
        raise MigrationRefused(f"another program has changed {first} during the migration: begin again")


def _different(nodes: Mapping[str, bytes], found: Iterable[tuple[bytes, object] | None]) -> Iterator[str]:
    for (path, data), there in zip(nodes.items(), found, strict=True):
        if there is None or there[0] != data:
            yield path


async def _complete(cluster_id: str, target: Store) -> None:
    await ensure_path(target, parent_of(CLUSTER_ID))
    operations: list[Operation] = [Create(CLUSTER_ID, encode_cluster_id(cluster_id)), Delete(MIGRATION)]
    if await target.exists(FEATURE) is None:
        # A single node has no node of them, and the levels that it has used stay in use.
        operations.append(Create(FEATURE, encode_features(FeatureNode(enabled=True, features=LATEST.levels))))
    await target.multi(operations)
