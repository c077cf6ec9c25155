"""Plans of reassignment: complete, even, with few moves, and in Kafka's format."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest

from barnabas.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from barnabas.model import TopicPartition
from barnabas.views.assignment import changes_of, parse_plan, plan_assignment, plan_text


def spread(counts: Counter[int], brokers: int) -> int:
    """The difference between the broker with the most and the one with the fewest."""
    found = [*counts.values(), *([0] * (brokers - len(counts)))]
    return max(found) - min(found)


def partitions(*replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("t", index): each for index, each in enumerate(replicas)}


@pytest.mark.parametrize("seed", range(60))
def test_a_plan_is_complete_and_even_and_moves_little(seed: int) -> None:
    rng = Random(seed)
    brokers = list(range(1, rng.randint(2, 8)))
    factor = rng.randint(1, len(brokers))
    everybody = [*brokers, 20, 21, 22, 23, 24, 25, 26, 27]
    current = partitions(*(tuple(rng.sample(everybody, factor)) for _ in range(rng.randint(1, 40))))
    planned = plan_assignment(current, dict.fromkeys(brokers))
    assert planned.keys() == current.keys()
    for replicas in planned.values():
        assert len(replicas) == factor == len(set(replicas))
        assert set(replicas) <= set(brokers)
    loads = Counter(broker for replicas in planned.values() for broker in replicas)
    assert spread(loads, len(brokers)) <= 1
    # What is even stays as it is.
    assert plan_assignment(planned, dict.fromkeys(brokers)) == planned
    gone = sum(broker not in brokers for replicas in current.values() for broker in replicas)
    fair = -(-factor * len(current) // len(brokers))
    before = Counter(broker for replicas in current.values() for broker in replicas if broker in brokers)
    surplus = sum(max(count - fair + 1, 0) for count in before.values())
    moved = sum(len(set(planned[key]) - set(replicas)) for key, replicas in current.items())
    assert moved <= gone + surplus + len(brokers)


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    current = partitions((1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1))
    planned = plan_assignment(current, dict.fromkeys((1, 2, 3)))
    assert Counter(broker for each in planned.values() for broker in each) == {1: 4, 2: 4, 3: 4}
    moved = [set(planned[key]) - set(current[key]) for key in current]
    assert sorted(moved, key=len) == [set(), set(), {3}, {3}, {3}, {3}]
    assert Counter(each[0] for each in planned.values()) == {1: 2, 2: 2, 3: 2}


def test_leaders_are_spread_by_the_order_of_replicas() -> None:
    current = partitions((1, 2, 3), (1, 3, 2), (1, 2, 3))
    planned = plan_assignment(current, dict.fromkeys((1, 2, 3)))
    assert sorted(each[0] for each in planned.values()) == [1, 2, 3]
    assert all(set(planned[key]) == set(current[key]) for key in current)


def test_replicas_of_a_partition_are_in_different_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    current = partitions(*[(1,)] * 8)
    planned = plan_assignment(current, racks, 2)
    for replicas in planned.values():
        assert {racks[broker] for broker in replicas} == {"a", "b"}
    assert plan_assignment(planned, racks) == planned


def test_a_replication_factor_changes_no_more_than_it_must() -> None:
    current = partitions((1, 2), (2, 3), (3, 1))
    more = plan_assignment(current, dict.fromkeys((1, 2, 3)), 3)
    assert all(set(each) == {1, 2, 3} for each in more.values())
    fewer = plan_assignment(current, dict.fromkeys((1, 2, 3)), 1)
    assert [fewer[key][0] in current[key] for key in current] == [True] * 3
    assert Counter(each[0] for each in fewer.values()) == {1: 1, 2: 1, 3: 1}


def test_more_replicas_than_brokers() -> None:
    with pytest.raises(InvalidReplicationFactor, match="2 replicas of a partition need 2 brokers, and 1 are"):
        plan_assignment(partitions((1, 2)), {1: None})
    with pytest.raises(InvalidReplicationFactor):
        plan_assignment(partitions((1,)), {1: None}, 0)


def test_a_plan_is_in_kafkas_format() -> None:
    planned = partitions((1, 2), (2, 1))
    text = plan_text(planned)
    assert json.loads(text) == {
        "version": 1,
        "partitions": [
            {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]},
            {"topic": "t", "partition": 1, "replicas": [2, 1], "log_dirs": ["any", "any"]},
        ],
    }
    assert parse_plan(text) == planned
    assert parse_plan('{"partitions":[{"topic":"t","partition":0,"replicas":[3]}]}') == partitions((3,))
    assert changes_of(partitions((1, 2), (1, 2)), planned) == {TopicPartition("t", 1): (2, 1)}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        ("[]", '"version": 1'),
        ('{"version":2,"partitions":[]}', '"version": 1'),
        ('{"version":1}', 'no list "partitions"'),
        ('{"version":1,"partitions":[]}', 'no list "partitions"'),
        ('{"version":1,"partitions":[3]}', "3 is no partition"),
        ('{"version":1,"partitions":[{"topic":"t"}]}', "no topic and partition"),
        (
            '{"version":1,"partitions":[{"topic":"t","partition":true,"replicas":[1]}]}',
            "no topic and partition",
        ),
        (
            '{"version":1,"partitions":[{"topic":"t","partition":-1,"replicas":[1]}]}',
            "no topic and partition",
        ),
        ('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[]}]}', "t-0 has no list"),
        ('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":["1"]}]}', "t-0 has no list"),
        (
            '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,1]}]}',
            "t-0 has a broker twice",
        ),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["/a"]}]}',
            "barnabas log-dirs move",
        ),
        (
            json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}),
            "has t-0 twice",
        ),
    ],
)
def test_a_file_that_is_no_plan(text: str, told: str) -> None:
    with pytest.raises(InvalidReplicaAssignment) as caught:
        parse_plan(text)
    assert told in str(caught.value)
