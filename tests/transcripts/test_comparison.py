"""The comparison of transcripts finds what matters, and ignores only what has no effect."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.transcripts.comparison import differences
from tests.transcripts.golden import LEVELS, read_golden
from tests.transcripts.scenarios import SCENARIOS

GOLDEN = read_golden("3.9")

Step = dict[str, Any]


def roles(step: Step, broker_id: str) -> int:
    """Where the last roles of a broker are among its requests."""
    requests = step["requests"][broker_id]
    return max(index for index, (api, _, _) in enumerate(requests) if api == "LeaderAndIsr")


def partition(request: list[Any]) -> dict[str, Any]:
    state: dict[str, Any] = request[2]["topicStates"][0]["partitionStates"][0]
    return state


def drop_roles(step: Step) -> None:
    requests = step["requests"]["2"]
    step["requests"]["2"] = [each for each in requests if each[0] != "LeaderAndIsr"]


def drop_metadata(step: Step) -> None:
    requests = step["requests"]["2"]
    step["requests"]["2"] = [each for each in requests if each[0] != "UpdateMetadata"]


def roles_before_metadata(step: Step) -> None:
    """A broker that does not know its leader alive does not follow it."""
    requests = step["requests"]["2"]
    requests.insert(0, requests.pop(roles(step, "2")))


def another_leader(step: Step) -> None:
    partition(step["requests"]["2"][roles(step, "2")])["leader"] = 9


def new_replicas(step: Step) -> None:
    for api, _, body in step["requests"]["2"]:
        for topic in body["topicStates"] if api == "LeaderAndIsr" else ():
            for state in topic["partitionStates"]:
                state["isNew"] = not state["isNew"]


def another_version(step: Step) -> None:
    step["requests"]["2"][roles(step, "2")][1] -= 1


def another_broker_epoch(step: Step) -> None:
    step["requests"]["2"][roles(step, "2")][2]["brokerEpoch"] = "unknown"


def drop_write(step: Step) -> None:
    step["writes"].pop()


def another_write(step: Step) -> None:
    step["writes"][-1][2]["isr"] = [9]


def drop_deletion(step: Step) -> None:
    step["requests"]["2"].pop()


def deletion_before_metadata(step: Step) -> None:
    step["requests"]["2"].reverse()


def mark_removed_first(step: Step) -> None:
    writes = step["writes"]
    writes.insert(0, writes.pop())


def another_reply(step: Step) -> None:
    step["replies"] = [{"t": 7}]


CASES: list[tuple[str, str, Callable[[Step], None]]] = [
    ("join", "broker 2 joins again", drop_roles),
    ("join", "broker 2 joins again", roles_before_metadata),
    ("join", "broker 2 joins again", another_leader),
    ("join", "broker 2 joins again", new_replicas),
    ("join", "broker 2 joins again", another_version),
    ("join", "broker 2 joins again", another_broker_epoch),
    ("crash", "broker 3 crashes", drop_roles),
    ("crash", "broker 3 crashes", drop_metadata),
    ("crash", "broker 3 crashes", drop_write),
    ("crash", "broker 3 crashes", another_write),
    ("creation", "create t", new_replicas),
    ("creation", "create t", another_reply),
    ("deletion", "delete t", drop_metadata),
    ("deletion", "delete t", drop_deletion),
    ("deletion", "delete t", deletion_before_metadata),
    ("deletion", "delete t", mark_removed_first),
    ("reassignment", "broker 3 is in sync", drop_roles),
    ("reassignment", "broker 3 is in sync", drop_write),
    ("takeover", "broker 2 is back, broker 1 is gone", drop_roles),
    ("takeover", "broker 2 is back, broker 1 is gone", another_write),
]


@pytest.mark.parametrize(("scenario", "name", "change"), CASES)
def test_differences_are_found(scenario: str, name: str, change: Callable[[Step], None]) -> None:
    ours = copy.deepcopy(GOLDEN[scenario])
    step = next(each for each in ours if each["step"] == name)
    change(step)
    assert differences(GOLDEN[scenario], ours)


@pytest.mark.parametrize("level", LEVELS)
def test_a_transcript_equals_itself(level: str) -> None:
    golden = read_golden(level)
    assert list(golden) == list(SCENARIOS)
    for name, transcript in golden.items():
        assert len(transcript) > 1, name
        assert not differences(transcript, copy.deepcopy(transcript))


def test_requests_may_be_divided() -> None:
    ours = copy.deepcopy(GOLDEN["crash"])
    for step in ours:
        for broker_id, requests in step["requests"].items():
            step["requests"][broker_id] = [each for request in requests for each in divided(request)]
    assert not differences(GOLDEN["crash"], ours)


def divided(request: list[Any]) -> list[list[Any]]:
    api, version, body = request
    parts = [
        {**body, "topicStates": [{**topic, "partitionStates": [state]}]}
        for topic in body["topicStates"]
        for state in topic["partitionStates"]
    ]
    return [[api, version, part] for part in parts or [body]]
