"""Compares two transcripts of a scenario.

They are equal if, in each step, the replies are equal, each broker learns the same in the same order, and the same
nodes are written in the same order. These do not count, since they have no effect (docs/COMPATIBILITY.md):

- how many partitions one request has: each partition has a history of its own at each broker, together with the list
  of live brokers. The histories are compared;
- a role in a leader epoch that the broker has already, and metadata that it receives again in the same step;
- the order in which several topics or partitions are created, changed or removed, one after the other, and when the
  empty node of a partition is made;
- states of a topic that is being deleted, in the tree, and for a broker that comes back meanwhile; and a replica of it
  that is stopped again after a deletion that failed;
- how many changes it takes to end a reassignment, or to take over (`one_change.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from barnabas.coordination.controller.messages import EPOCH_DURING_DELETE
from barnabas.coordination.metadata.updates import LEADER_DURING_DELETE
from tests.transcripts.golden import Transcript, shown_step
from tests.transcripts.one_change import in_one_change

# Stands for the list of live brokers, which every partition's history has.
EVERYWHERE = ("", -1)

Partition = tuple[str, int]


class Knowledge:
    """What a broker knows since it has registered: the live brokers, and the leader epochs of its replicas."""

    def __init__(self, broker_epoch: Any) -> None:
        self.broker_epoch = broker_epoch
        self.live = ""
        self.leader_epochs: dict[tuple[str, int], int] = {}

    def is_old(self, topic: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
        """Whether a role is of an epoch that the broker has."""
        key = (topic["topicId"], state["partitionIndex"])
        known = self.leader_epochs.get(key, -1)
        self.leader_epochs[key] = max(known, state["leaderEpoch"])
        return known >= int(state["leaderEpoch"])


class Side:
    """One of the two transcripts."""

    def __init__(self) -> None:
        self._brokers: dict[str, Knowledge] = {}

    def histories(
        self,
        broker_id: str,
        requests: Sequence[Sequence[Any]],
        deleting: Collection[str],
        without_states: Collection[str],
    ) -> dict[Partition, list[str]]:
        """What a broker learns of each partition, in order, with the changes of the live brokers."""
        histories: dict[Partition, list[str]] = {EVERYWHERE: []}
        for api, version, body in requests:
            broker = self._brokers.get(broker_id)
            if broker is None or broker.broker_epoch != body["brokerEpoch"]:
                broker = self._brokers[broker_id] = Knowledge(body["brokerEpoch"])
            if "liveBrokers" in body and broker.live != (now := json.dumps(body["liveBrokers"])):
                broker.live = now
                for history in histories.values():
                    history.append(f"live {now}")
            for topic, state, fact in _facts(api, version, body):
                if api == "LeaderAndIsr" and broker.is_old(topic, state):
                    continue
                gone = without_states if api == "LeaderAndIsr" else deleting
                if api != "StopReplica" and topic["topicName"] in gone:
                    continue
                at = (topic["topicName"], state["partitionIndex"])
                history = histories.setdefault(at, list(histories[EVERYWHERE]))
                if api != "StopReplica" or not _is_stopped(history, state):
                    _add(history, fact)
        return histories


def differences(golden: Transcript, ours: Transcript) -> list[str]:
    """For people. Empty if there are none."""
    found = []
    golden, ours = in_one_change(golden, ours)
    names = [[step["step"] for step in each] for each in (golden, ours)]
    if names[0] != names[1]:
        return [f"other steps: {names}"]
    sides = Side(), Side()
    deleting: set[str] = set()
    for theirs, our in zip(golden, ours, strict=True):
        problems = _problems(theirs, our, sides, deleting)
        removed = {write[1].rpartition("/")[2] for write in theirs["writes"] if write[0] == "delete"}
        deleting = (deleting | _stopped(theirs)) - removed
        if problems:
            found += [
                f"== {theirs['step']}",
                *problems,
                "-- Kafka:",
                *shown_step(theirs),
                "-- ours:",
                *shown_step(our),
            ]
    return found


def _stopped(step: Mapping[str, Any]) -> set[str]:
    """Topics that are to be deleted: their replicas are stopped, or clients do not see them any more."""
    return {
        topic["topicName"]
        for requests in step["requests"].values()
        for api, _, body in requests
        for topic in body["topicStates"]
        for each in topic["partitionStates"]
        if (api == "StopReplica" and each["leaderEpoch"] == EPOCH_DURING_DELETE)
        or (api == "UpdateMetadata" and each["leader"] == LEADER_DURING_DELETE)
    }


def _problems(
    theirs: Mapping[str, Any], our: Mapping[str, Any], sides: tuple[Side, Side], deleting: Collection[str]
) -> list[str]:
    problems = []
    if theirs["replies"] != our["replies"]:
        problems.append(f"replies: {theirs['replies']} or {our['replies']}")
    without_states = {*deleting, *_stopped(theirs)}
    writes = [_sorted_writes(each["writes"], without_states) for each in (theirs, our)]
    if writes[0] != writes[1]:
        problems.append("other writes")
    if theirs["requests"].keys() != our["requests"].keys():
        return [*problems, "other brokers"]
    for broker_id, requests in theirs["requests"].items():
        theirs_now = sides[0].histories(broker_id, requests, deleting, without_states)
        ours_now = sides[1].histories(broker_id, our["requests"][broker_id], deleting, without_states)
        for at in sorted({*theirs_now, *ours_now}):
            known, found = (each.get(at, each[EVERYWHERE]) for each in (theirs_now, ours_now))
            if known != found:
                problems.append(f"broker {broker_id}, {at}:")
                problems += [f"    Kafka  {_brief(each)}" for each in known]
                problems += [f"    ours   {_brief(each)}" for each in found]
    return problems


def _sorted_writes(writes: Sequence[Sequence[Any]], without_states: Collection[str]) -> list[list[str]]:
    """Writes of one kind that follow each other, sorted by topic and partition. The rest of their order stays."""
    counting = [each for each in writes if _counts(each, without_states)]
    return [
        [kind, *(json.dumps(each, sort_keys=True) for each in sorted(run, key=_place))]
        for kind, run in groupby(counting, key=lambda write: str(write[0]))
    ]


def _counts(write: Sequence[Any], without_states: Collection[str]) -> bool:
    partition = _PARTITION.fullmatch(write[1])
    if partition is None:
        return True
    return write[0] == "delete" or (partition[3] is not None and partition[1] not in without_states)


_PARTITION = re.compile(r"/brokers/topics/([^/]+)/partitions/([0-9]+)(/state)?")
_TOPIC = re.compile(r"(?:/brokers/topics|/config/topics|/admin/delete_topics)/([^/]+)(?:/partitions)?")


def _place(write: Sequence[Any]) -> tuple[str, str]:
    """Its topic and its partition. Nodes of partitions come before those of their topic if they are removed."""
    partition = _PARTITION.fullmatch(write[1])
    if partition:
        return partition[1], f"partition {partition[2]}"
    topic = _TOPIC.fullmatch(write[1])
    return (topic[1] if topic else "", "topic" if write[0] == "delete" else "")


def _facts(api: str, version: int, body: Mapping[str, Any]) -> Iterator[tuple[Any, Any, str]]:
    """The topics and partitions of a request, and what it says about each."""
    lists = ("topicStates", "liveBrokers", "liveLeaders")
    head = {key: each for key, each in body.items() if key not in lists}
    leaders = {each["brokerId"]: each for each in body.get("liveLeaders", ())}
    for topic in body["topicStates"]:
        of_topic = {key: each for key, each in topic.items() if key != "partitionStates"}
        for state in topic["partitionStates"]:
            leader = leaders.get(state.get("leader")) if api == "LeaderAndIsr" else None
            content = json.dumps([head, of_topic, state, leader])
            yield topic, state, f"{api} {version} {content}"


def _is_stopped(history: Sequence[str], state: Mapping[str, Any]) -> bool:
    """Whether a replica of a topic that is being deleted is to be stopped, and has been stopped before."""
    is_deletion = state["leaderEpoch"] == EPOCH_DURING_DELETE and not state["deletePartition"]
    return is_deletion and any(each.startswith("StopReplica") for each in history)


def _brief(fact: str) -> str:
    kind, _, content = fact.partition(" ")
    return f"live {[each['id'] for each in json.loads(content)]}" if kind == "live" else fact


def _add(history: list[str], fact: str) -> None:
    """Unless it is the last of its kind already."""
    kind = fact.split(" ", 1)[0]
    if next((each for each in reversed(history) if each.startswith(f"{kind} ")), None) != fact:
        history.append(fact)
