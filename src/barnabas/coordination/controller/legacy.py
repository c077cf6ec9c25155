"""What older tools ask for by nodes of the store: reassignments and preferred leaders."""

from __future__ import annotations

import logging
from collections.abc import Collection

from barnabas.coordination.controller.events import ElectLeaders
from barnabas.coordination.controller.leadership import elect_leaders
from barnabas.coordination.controller.reassignment import forget_in_node, loses_all, reassign
from barnabas.coordination.controller.state import Change, ControllerState, commit
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import (
    PREFERRED_REPLICA_ELECTION,
    decode_preferred_election,
    decode_reassignment,
)
from barnabas.coordination.planning.partition_changes import Assignment, ElectionType, assignment_of
from barnabas.coordination.store.contract import Delete
from barnabas.errors import ElectionNotNeeded
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)


def reassign_as_node_says(state: ControllerState, data: bytes) -> Change[Collection[TopicPartition]]:
    """Begins or continues the reassignments of the node. Returns their partitions."""
    wanted: dict[TopicPartition, Assignment] = {}
    refused: list[TopicPartition] = []
    try:
        asked = decode_reassignment(data)
    except MalformedNode as error:
        log.error("A reassignment by node is ignored: %s", error)
        asked = {}
    for at, target in asked.items():
        partition = state.partition(at)
        if partition is None or not target or len(set(target)) < len(target):
            refused.append(at)
            continue
        assignment = assignment_of(partition).reassigned_to(target)
        if loses_all(partition, assignment):
            refused.append(at)
        else:
            wanted[at] = assignment
    if refused or not asked:
        log.warning("Reassignments by node are not possible: %s", [str(at) for at in refused])
        yield from forget_in_node(state, lambda at, _: at in refused)
    yield from reassign(state, wanted)
    return wanted.keys()


def elect_preferred_of_node(state: ControllerState, data: bytes) -> Change[None]:
    """Elects the preferred leaders that the node asks for, and removes it."""
    try:
        partitions = decode_preferred_election(data)
    except MalformedNode as error:
        log.error("An election by node is ignored, and the node removed: %s", error)
        partitions = []
    results = yield from elect_leaders(state, ElectLeaders(partitions, ElectionType.PREFERRED))
    for at, refusal in results.items():
        if refusal is not None and not isinstance(refusal, ElectionNotNeeded):
            log.warning("The preferred leader of %s cannot be elected: %s", at, refusal)
    yield from commit(state, [Delete(PREFERRED_REPLICA_ELECTION)], leaves_full=True)
