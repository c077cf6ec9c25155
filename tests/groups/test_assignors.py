"""Server-side assignors: everything is assigned, once, to somebody who wants it, evenly, and stays where it can."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.groups.assignors import Assignor, GroupAssignment, GroupSpec, MemberSpec
from barnabas.groups.assignors.range import assign_range
from barnabas.groups.assignors.uniform import assign_uniform
from tests.sampling import cases

TOPICS = [bytes([number]) * 16 for number in range(4)]


def spec_of(
    subscriptions: dict[str, frozenset[bytes]],
    counts: dict[bytes, int],
    before: GroupAssignment | None = None,
) -> GroupSpec:
    return GroupSpec(
        members={
            member_id: MemberSpec(topic_ids=topic_ids, target=(before or {}).get(member_id, {}))
            for member_id, topic_ids in subscriptions.items()
        },
        partition_counts=counts,
    )


subscriptions = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(12)]),
    st.frozensets(st.sampled_from(TOPICS), max_size=4),
    min_size=1,
    max_size=12,
)
counts = st.fixed_dictionaries({topic_id: st.integers(1, 12) for topic_id in TOPICS})


def check_complete(spec: GroupSpec, assignment: GroupAssignment) -> None:
    owners: Counter[tuple[bytes, int]] = Counter()
    assert assignment.keys() <= spec.members.keys()
    for member_id, topics in assignment.items():
        assert topics.keys() <= spec.members[member_id].topic_ids
        for topic_id, partitions in topics.items():
            assert partitions
            owners.update((topic_id, partition) for partition in partitions)
    wanted = {
        (topic_id, partition)
        for member in spec.members.values()
        for topic_id in member.topic_ids
        for partition in range(spec.partition_counts[topic_id])
    }
    assert set(owners) == wanted
    assert all(count == 1 for count in owners.values())


def sizes(assignment: GroupAssignment) -> list[int]:
    return [sum(map(len, topics.values())) for topics in assignment.values()]


def moved(before: GroupAssignment, after: GroupAssignment) -> int:
    """Partitions that a member of both times has lost."""
    return sum(
        len(partitions - after[member_id].get(topic_id, frozenset()))
        for member_id, topics in before.items()
        if member_id in after
        for topic_id, partitions in topics.items()
    )


@pytest.mark.parametrize("assign", [assign_range, assign_uniform])
@settings(derandomize=True, deadline=None, max_examples=cases(50, fast=15))
@given(first=subscriptions, second=subscriptions, before_counts=counts, after_counts=counts)
def test_everything_has_one_owner(
    assign: Assignor,
    first: dict[str, frozenset[bytes]],
    second: dict[str, frozenset[bytes]],
    before_counts: dict[bytes, int],
    after_counts: dict[bytes, int],
) -> None:
    before = spec_of(first, before_counts)
    assignment = assign(before)
    check_complete(before, assignment)
    after = spec_of(second, after_counts, assignment)
    check_complete(after, assign(after))


@settings(derandomize=True, deadline=None, max_examples=cases(50, fast=15))
@given(
    topic_ids=st.frozensets(st.sampled_from(TOPICS), min_size=1),
    counts=counts,
    before=st.integers(1, 12),
    after=st.integers(1, 12),
)
def test_uniform_is_even_and_moves_no_more_than_it_must(
    topic_ids: frozenset[bytes], counts: dict[bytes, int], before: int, after: int
) -> None:
    first = assign_uniform(spec_of({f"m{number}": topic_ids for number in range(before)}, counts))
    assert max(sizes(first)) - min(sizes(first)) <= 1
    second = assign_uniform(spec_of({f"m{number}": topic_ids for number in range(after)}, counts, first))
    assert max(sizes(second)) - min(sizes(second)) <= 1
    if after <= before:
        assert moved(first, second) == 0
    else:
        # Only what the new ones get has moved.
        gained = sum(sizes({each: second[each] for each in second if each not in first}))
        assert moved(first, second) == gained


@settings(derandomize=True, deadline=None, max_examples=cases(60, fast=15))
@given(first=subscriptions, counts=counts)
def test_uniform_is_as_even_as_subscriptions_allow(
    first: dict[str, frozenset[bytes]], counts: dict[bytes, int]
) -> None:
    spec = spec_of(first, counts)
    assignment = assign_uniform(spec)
    owned = {member_id: sum(map(len, topics.values())) for member_id, topics in assignment.items()}
    for member_id, topics in assignment.items():
        for topic_id in topics:
            for other, member in spec.members.items():
                if topic_id in member.topic_ids:
                    # No single partition could be given to another with profit.
                    assert owned[member_id] - owned.get(other, 0) <= 1
    # What is even stays as it is.
    again = assign_uniform(spec_of(first, counts, assignment))
    assert moved(assignment, again) == 0


def test_range_gives_the_same_partitions_of_topics_that_are_alike() -> None:
    spec = spec_of(
        {"b": frozenset(TOPICS[:2]), "a": frozenset(TOPICS[:2]), "c": frozenset(TOPICS[:2])},
        {TOPICS[0]: 7, TOPICS[1]: 7},
    )
    assert assign_range(spec) == {
        "a": {topic_id: frozenset({0, 1, 2}) for topic_id in TOPICS[:2]},
        "b": {topic_id: frozenset({3, 4}) for topic_id in TOPICS[:2]},
        "c": {topic_id: frozenset({5, 6}) for topic_id in TOPICS[:2]},
    }


def test_more_members_than_partitions() -> None:
    spec = spec_of({f"m{number}": frozenset(TOPICS[:1]) for number in range(5)}, {TOPICS[0]: 2})
    for assign in (assign_range, assign_uniform):
        assert sorted(sizes(assign(spec))) == [0, 0, 0, 1, 1]


def test_nobody_wants_anything() -> None:
    spec = spec_of({"a": frozenset(), "b": frozenset()}, {})
    for assign in (assign_range, assign_uniform):
        assert sum(sizes(assign(spec))) == 0
