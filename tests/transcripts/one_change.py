"""Several changes of a partition, as one change.

Kafka's controller sometimes takes several steps, each with a leader epoch of its own, where ours takes one:

- At the end of a reassignment it first moves the leader, with in-sync replicas that the assignment does not have any
  more, and then removes them one by one. With ours the in-sync replicas are always among the replicas.
- When it takes over, it sends the states that it has found, then removes replicas of dead brokers (which leaves
  partitions without a leader), and then elects leaders. Ours elects in the same change, so that leaders are there
  sooner.

Here the states in between are left out, and the epochs of the partitions that had any are numbered again, in both
transcripts.
"""

from __future__ import annotations

import copy
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from barnabas.coordination.metadata.tree import CONTROLLER
from tests.transcripts.golden import Transcript

_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/([0-9]+)/state")

Partition = tuple[str, int]
# By name: in requests, in replies, and in the tree.
_LEADER_EPOCHS = ("leaderEpoch", "leader_epoch")
_PARTITION_EPOCHS = ("partitionEpoch", "zkVersion")


def in_one_change(golden: Transcript, ours: Transcript) -> tuple[Transcript, Transcript]:
    """Both transcripts, without the states in between."""
    shorter = [[copy.deepcopy(dict(step)) for step in each] for each in (golden, ours)]
    changed: set[Partition] = set()
    for steps in shorter:
        for step in steps:
            changed |= _leave_out(step)
            if any(write[:2] == ["create", CONTROLLER] for write in step["writes"]):
                changed |= _keep_last(step)
    for steps in shorter:
        for at in changed:
            _renumber(steps, at)
    return shorter[0], shorter[1]


def _states(step: Mapping[str, Any]) -> Iterator[tuple[Partition, dict[str, Any]]]:
    """Of roles and metadata, and of requests that stop replicas."""
    for requests in step["requests"].values():
        for _, _, body in requests:
            for topic in body["topicStates"]:
                for state in topic["partitionStates"]:
                    yield (topic["topicName"], state["partitionIndex"]), state


def _is_between(state: Mapping[str, Any]) -> bool:
    return "isr" in state and not set(state["isr"]) <= set(state["replicas"])


def _leave_out(step: dict[str, Any]) -> set[Partition]:
    """States whose in-sync replicas are not among the replicas. Returns the partitions that had any."""
    epochs = {(at, state["leaderEpoch"]) for at, state in _states(step) if _is_between(state)}
    for requests in step["requests"].values():
        for _, _, body in requests:
            for topic in body["topicStates"]:
                states = topic["partitionStates"]
                topic["partitionStates"] = [each for each in states if not _is_between(each)]
    writes: list[Any] = []
    # What follows such a state is one change, whose last state counts.
    followed: dict[Partition, int] = {}
    for write in step["writes"]:
        at = _partition(write)
        if _key(write) in epochs:
            assert at is not None
            followed[at] = -1
        elif at in followed and write[0] == "set":
            if followed[at] < 0:
                followed[at] = len(writes)
                writes.append(write)
            else:
                writes[followed[at]] = write
        else:
            writes.append(write)
    step["writes"] = writes
    return {at for at, _ in epochs}


def _key(write: Sequence[Any]) -> tuple[Partition, int] | None:
    """The partition and the leader epoch, if the write has a state."""
    at = _partition(write)
    return None if at is None or len(write) < 3 else (at, write[2]["leader_epoch"])


def _partition(write: Sequence[Any]) -> Partition | None:
    found = _STATE.fullmatch(write[1])
    return None if found is None else (found[1], int(found[2]))


def _keep_last(step: dict[str, Any]) -> set[Partition]:
    """Only the last state of a partition, for each broker and in the tree. Returns the partitions that had others."""
    dropped: set[Partition] = set()
    for requests in step["requests"].values():
        seen: set[tuple[str, Partition]] = set()
        for api, _, body in reversed(requests):
            for topic in body["topicStates"] if api != "StopReplica" else ():
                kept = []
                for state in topic["partitionStates"]:
                    at = (topic["topicName"], state["partitionIndex"])
                    if (api, at) in seen:
                        dropped.add(at)
                    else:
                        kept.append(state)
                    seen.add((api, at))
                topic["partitionStates"] = kept
    writes: list[Any] = []
    written: set[Partition | None] = {None}
    for write in reversed(step["writes"]):
        at_write = _partition(write)
        if at_write is None or write[0] != "set" or at_write not in written:
            writes.insert(0, write)
        written.add(at_write)
    step["writes"] = writes
    return dropped


def _renumber(steps: Sequence[dict[str, Any]], at: Partition) -> None:
    for names in (_LEADER_EPOCHS, _PARTITION_EPOCHS):
        kept = sorted(
            {
                state[name]
                for step in steps
                for each, state in _states(step)
                for name in names
                if each == at and name in state and "isr" in state
            }
        )
        _replace(steps, at, names, kept)


def _replace(
    steps: Sequence[dict[str, Any]], at: Partition, names: Sequence[str], kept: Sequence[int]
) -> None:
    """An epoch becomes the number of those before it."""
    states = [state for step in steps for each, state in _states(step) if each == at]
    for step in steps:
        states += [write[2] for write in step["writes"] if _partition(write) == at and len(write) > 2]
        for reply in step["replies"]:
            for topic in reply.get("topics", ()):
                if topic["topicId"] == at[0]:
                    states += [each for each in topic["partitions"] if each["partitionIndex"] == at[1]]
    for state in states:
        for name in names:
            if state.get(name, -1) >= 0:
                state[name] = bisect_left(kept, state[name])
