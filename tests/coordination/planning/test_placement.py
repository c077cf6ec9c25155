"""Where the replicas of new partitions are placed."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordination.metadata.image import (
    BrokerImage,
)
from barnabas.coordination.planning.placement import place_replicas
from barnabas.errors import (
    InvalidReplicationFactor,
)
from barnabas.model import BrokerId
from tests.sampling import cases


class Draws(Random):
    """A random source whose every draw is known."""

    def __init__(self, *draws: int) -> None:
        super().__init__(0)
        self._draws = list(draws)

    def randrange(self, *bounds: int) -> int:  # type: ignore[override]
        return self._draws.pop(0)


def brokers(*racks: str | None) -> list[BrokerImage]:
    return [BrokerImage(id=BrokerId(index), epoch=0, rack=rack) for index, rack in enumerate(racks)]


def test_replicas_go_round_and_shift() -> None:
    """Kafka's own example: ten partitions on five brokers."""
    placed = place_replicas(brokers(*[None] * 5), 10, 3, rng=Draws(0, 0))
    assert placed == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def test_replicas_spread_over_racks() -> None:
    """Brokers 0 to 5 in racks 1, 3, 3, 2, 2, 1, as in Kafka's tests of the same rule."""
    placed = place_replicas(brokers("r1", "r3", "r3", "r2", "r2", "r1"), 7, 3, rng=Draws(0, 0))
    assert placed == [
        (0, 3, 1),
        (3, 1, 5),
        (1, 5, 4),
        (5, 4, 2),
        (4, 2, 0),
        (2, 0, 3),
        (0, 4, 2),
    ]


def test_later_partitions_go_on_with_the_round() -> None:
    all_at_once = place_replicas(brokers(None, None, None), 6, 2, rng=Draws(1, 1))
    later = place_replicas(brokers(None, None, None), 2, 2, rng=Draws(1, 1), first_partition=1)
    assert later == all_at_once[1:3]


def test_more_replicas_than_brokers_are_refused() -> None:
    for count in (0, 2):
        with pytest.raises(
            InvalidReplicationFactor, match=f"factor of 3 cannot be reached because only {count} "
        ):
            place_replicas(brokers(*[None] * count), 1, 3, rng=Random(0))


@settings(derandomize=True, deadline=None, max_examples=cases(100, fast=25))
@given(
    racks=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=9),
    has_racks=st.booleans(),
    partitions=st.integers(1, 40),
    data=st.data(),
)
def test_placement_is_fair(racks: list[str], has_racks: bool, partitions: int, data: st.DataObject) -> None:
    cluster = brokers(*(racks if has_racks else [None] * len(racks)))
    replication_factor = data.draw(st.integers(1, len(cluster)))
    placed = place_replicas(
        cluster, partitions, replication_factor, rng=Random(data.draw(st.integers(0, 99)))
    )
    assert len(placed) == partitions
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker.id] for broker in cluster) <= 1
    for replicas in placed:
        assert len(set(replicas)) == replication_factor
        if has_racks:
            used = {racks[broker] for broker in replicas}
            assert len(used) == min(replication_factor, len(set(racks)))
