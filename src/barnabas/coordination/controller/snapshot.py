"""The state of the cluster in the store when a controller takes over, unparsed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from barnabas.coordination.metadata.image import BrokerImage, Uuid
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import PartitionState
from barnabas.coordination.store.contract import Stat
from barnabas.model import BrokerId


class StoredState(NamedTuple):
    state: PartitionState
    version: int


class StoredTopic(NamedTuple):
    """A topic may be half written: each of its nodes may be missing."""

    # Releases before 2.8 gave topics no id.
    topic_id: Uuid | None
    # By partition.
    replicas: Sequence[tuple[BrokerId, ...]]
    has_partitions_node: bool
    # Numbers of the partitions that have a node.
    partition_nodes: Collection[int]
    states: Mapping[int, StoredState]
    # Replicas that a reassignment adds and removes, by partition.
    adding: Mapping[int, tuple[BrokerId, ...]] = MappingProxyType({})
    removing: Mapping[int, tuple[BrokerId, ...]] = MappingProxyType({})
    # Numbers of the partitions whose state cannot be read. They have no leader until somebody mends the node.
    unreadable: Mapping[int, MalformedNode] = MappingProxyType({})


class Snapshot(NamedTuple):
    brokers: Mapping[BrokerId, BrokerImage]
    topics: Mapping[str, StoredTopic]
    # Topics that are marked for deletion.
    marked: Collection[str]
    # Topics that have a node for their settings.
    configured: Collection[str]
    # Nodes of notices. Everything is read anyway, so that they say nothing new.
    notices: Sequence[str] = ()
    # The data of nodes with which older tools ask for reassignments and preferred leaders.
    reassignment: bytes | None = None
    preferred: bytes | None = None
    # The node of the finalized features.
    feature: tuple[bytes, Stat] | None = None
    # Topics whose node cannot be read. The controller goes on without them.
    unreadable: Collection[str] = ()
