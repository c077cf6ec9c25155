"""How partitions are divided: Kafka's own examples, properties over random groups, and the formats on the wire."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.groups.assignors import make_assignors
from barnabas.client.groups.assignors.base import Assignments, Assignor, Member, PartitionRacks
from barnabas.client.groups.assignors.range import RangeAssignor
from barnabas.client.groups.assignors.roundrobin import RoundRobinAssignor
from barnabas.client.groups.assignors.sticky import (
    CooperativeStickyAssignor,
    StickyAssignor,
    decode_user_data,
    encode_user_data,
)
from barnabas.client.groups.messages import (
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)
from barnabas.errors import InconsistentGroupProtocol, InvalidConfig
from barnabas.model import TopicPartition
from tests.sampling import cases

ALL = (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)


def member(name: str, *topics: str, **more: object) -> Member:
    return Member(member_id=name, topics=frozenset(topics), **more)  # type: ignore[arg-type]


def shown(assignments: Assignments) -> dict[str, str]:
    return {name: " ".join(map(str, partitions)) for name, partitions in assignments.items()}


def test_range_gives_runs_topic_by_topic() -> None:
    members = [member("b", "s", "t"), member("a", "s", "t")]
    assert shown(RangeAssignor().assign({"s": 3, "t": 3}, members)) == {
        "a": "s-0 s-1 t-0 t-1",
        "b": "s-2 t-2",
    }


def test_range_leaves_who_has_not_subscribed() -> None:
    members = [member("a", "s"), member("b", "s", "t"), member("c", "u")]
    assert shown(RangeAssignor().assign({"s": 1, "t": 2}, members)) == {"a": "s-0", "b": "t-0 t-1", "c": ""}


def racks_of(topic: str, *racks: str) -> dict[TopicPartition, frozenset[str]]:
    """A text per partition: `ab` is a replica in rack a and one in rack b."""
    return {TopicPartition(topic, number): frozenset(each) for number, each in enumerate(racks)}


def test_range_prefers_the_rack_of_a_member() -> None:
    members = [member("1", "t", rack_id="a"), member("2", "t", rack_id="b"), member("3", "t", rack_id="c")]
    racks = racks_of("t", "c", "b", "a")
    assert shown(RangeAssignor().assign({"t": 3}, members, racks)) == {"1": "t-2", "2": "t-1", "3": "t-0"}
    # Nobody gets more than a share: the rest goes to the others.
    assert shown(RangeAssignor().assign({"t": 3}, members, racks_of("t", "a", "a", "a"))) == {
        "1": "t-0",
        "2": "t-1",
        "3": "t-2",
    }
    # A replica in every rack, or in none of the members': as without racks.
    for same in (racks_of("t", "abc", "abc", "abc"), racks_of("t", "x", "y", "z"), {}):
        assert shown(RangeAssignor().assign({"t": 3}, members, same)) == {"1": "t-0", "2": "t-1", "3": "t-2"}


def test_range_keeps_topics_together_with_racks() -> None:
    members = [member("1", "s", "t", rack_id="a"), member("2", "s", "t", rack_id="b")]
    racks = racks_of("s", "b", "ab") | racks_of("t", "b", "a")
    assert shown(RangeAssignor().assign({"s": 2, "t": 2}, members, racks)) == {"1": "s-1 t-1", "2": "s-0 t-0"}
    # Number 0 is near to nobody in both topics, so both go the way of runs.
    racks = racks_of("s", "b", "a") | racks_of("t", "a", "a")
    assert shown(RangeAssignor().assign({"s": 2, "t": 2}, members, racks)) == {"1": "s-1 t-1", "2": "s-0 t-0"}


@pytest.mark.parametrize("seed", range(15))
def test_range_with_racks_has_the_same_shares_and_never_fewer_in_their_rack(seed: int) -> None:
    chooser = random.Random(seed)
    names = [f"m{number}" for number in range(chooser.randint(1, 6))]
    members = [member(name, "t", rack_id=chooser.choice("abc")) for name in names]
    counts = {"t": chooser.randint(1, 20)}
    racks = racks_of("t", *("".join(chooser.sample("abc", 2)) for _ in range(counts["t"])))
    plain, matched = RangeAssignor().assign(counts, members), RangeAssignor().assign(counts, members, racks)
    check_complete(counts, members, matched)
    assert sorted(map(len, plain.values())) == sorted(map(len, matched.values()))
    assert near_count(members, matched, racks) >= near_count(members, plain, racks)


def near_count(members: Sequence[Member], assignments: Assignments, racks: PartitionRacks) -> int:
    rack = {each.member_id: each.rack_id for each in members}
    return sum(rack[name] in racks[each] for name, partitions in assignments.items() for each in partitions)


@pytest.mark.parametrize("kind", [StickyAssignor, CooperativeStickyAssignor])
def test_sticky_prefers_the_rack_of_a_member(kind: type[Assignor]) -> None:
    members = [member("1", "t", rack_id="a"), member("2", "t", rack_id="b"), member("3", "t", rack_id="c")]
    racks = racks_of("t", "c", "b", "a")
    assert shown(kind().assign({"t": 3}, members, racks)) == {"1": "t-2", "2": "t-1", "3": "t-0"}
    for same in (racks_of("t", "abc", "abc", "abc"), racks_of("t", "x", "y", "z"), {}):
        assert shown(kind().assign({"t": 3}, members, same)) == {"1": "t-0", "2": "t-1", "3": "t-2"}
    # Nobody gets more than a share.
    assert sorted(map(len, kind().assign({"t": 3}, members, racks_of("t", "a", "a", "a")).values())) == [
        1,
        1,
        1,
    ]


def test_sticky_gives_up_a_partition_that_is_far() -> None:
    """Each has what is near to the next: all of it is exchanged. What is near stays."""
    owned = {"1": ["t-1", "t-3"], "2": ["t-2", "t-4"], "3": ["t-0", "t-5"]}
    members = [
        member(
            name,
            "t",
            rack_id="abc"[number],
            user_data=encode_user_data([TopicPartition("t", int(each[2:])) for each in owned[name]], 1),
        )
        for number, name in enumerate(owned)
    ]
    racks = racks_of("t", "a", "b", "c", "a", "b", "c")
    assert shown(StickyAssignor().assign({"t": 6}, members, racks)) == {
        "1": "t-0 t-3",
        "2": "t-1 t-4",
        "3": "t-2 t-5",
    }


@pytest.mark.parametrize("seed", range(25))
def test_sticky_with_racks_stays_balanced_and_settles(seed: int) -> None:
    counts, plain_members = random_group(seed)
    chooser = random.Random(seed)
    members = [replace(each, rack_id=chooser.choice(["a", "b", "c"])) for each in plain_members]
    racks: dict[TopicPartition, frozenset[str]] = {}
    for topic, count in counts.items():
        racks |= racks_of(
            topic, *("".join(chooser.sample("abc", chooser.randint(1, 2))) for _ in range(count))
        )
    plain = StickyAssignor().assign(counts, members)
    matched = StickyAssignor().assign(counts, members, racks)
    check_complete(counts, members, matched)
    check_balanced(members, matched)
    if len({each.topics for each in members}) == 1:
        assert sorted(map(len, plain.values())) == sorted(map(len, matched.values()))
    assert near_count(members, matched, racks) >= near_count(members, plain, racks)
    # Nothing changes: nothing moves.
    again = [replace(each, user_data=encode_user_data(matched[each.member_id], 1)) for each in members]
    assert StickyAssignor().assign(counts, again, racks) == matched
    # The same for members that give up partitions in a round before others get them.
    owned: Assignments = {}
    for generation in range(1, 8):
        assignments = CooperativeStickyAssignor().assign(counts, rejoin(members, owned, generation), racks)
        if assignments == owned:
            break
        owned = assignments
    else:
        pytest.fail("the group does not settle")
    check_complete(counts, members, owned)
    check_balanced(members, owned)


def test_the_rack_of_a_member_is_on_the_wire() -> None:
    data = encode_subscription(["t"], RangeAssignor(), [], -1, "rack-a")
    assert decode_member("m", None, data).rack_id == "rack-a"
    assert decode_member("m", None, encode_subscription(["t"], RangeAssignor(), [], -1, "")).rack_id is None


def test_static_members_are_served_first_and_by_their_instance() -> None:
    members = [
        member("a", "t"),
        member("z", "t", group_instance_id="1"),
        member("b", "t", group_instance_id="2"),
    ]
    assert shown(RangeAssignor().assign({"t": 3}, members)) == {"z": "t-0", "b": "t-1", "a": "t-2"}


def test_roundrobin_deals_all_partitions_in_turn() -> None:
    members = [member("a", "s", "t"), member("b", "s", "t")]
    assert shown(RoundRobinAssignor().assign({"s": 3, "t": 3}, members)) == {
        "a": "s-0 s-2 t-1",
        "b": "s-1 t-0 t-2",
    }
    # The example of Kafka's documentation: subscriptions that differ.
    members = [member("C0", "t0"), member("C1", "t0", "t1"), member("C2", "t0", "t1", "t2")]
    assert shown(RoundRobinAssignor().assign({"t0": 1, "t1": 2, "t2": 3}, members)) == {
        "C0": "t0-0",
        "C1": "t1-0",
        "C2": "t1-1 t2-0 t2-1 t2-2",
    }


@pytest.mark.parametrize("kind", ALL)
def test_no_members_topics_or_partitions(kind: type[Assignor]) -> None:
    assert kind().assign({"t": 3}, []) == {}
    assert kind().assign({}, [member("a", "t")]) == {"a": []}
    assert kind().assign({"t": 2}, [member("a")]) == {"a": []}


def random_group(seed: int) -> tuple[dict[str, int], list[Member]]:
    chooser = random.Random(seed)
    counts = {f"t{number}": chooser.randrange(1, 9) for number in range(chooser.randrange(1, 6))}
    is_equal = chooser.random() < 0.5
    members = []
    for number in range(chooser.randrange(1, 8)):
        topics = (
            list(counts) if is_equal else chooser.sample(list(counts), chooser.randrange(0, len(counts) + 1))
        )
        members.append(member(f"m{number}", *topics))
    return counts, members


def check_complete(counts: Mapping[str, int], members: Sequence[Member], assignments: Assignments) -> None:
    """Every partition that somebody wants has one member, and it is one that wants it."""
    topics = {each.member_id: each.topics for each in members}
    assert assignments.keys() == topics.keys()
    assigned = Counter(itertools.chain.from_iterable(assignments.values()))
    wanted = {
        TopicPartition(topic, number)
        for topic in set[str]().union(*topics.values())
        for number in range(counts.get(topic, 0))
    }
    assert assigned == Counter(wanted)
    for name, partitions in assignments.items():
        assert {partition.topic for partition in partitions} <= topics[name]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("seed", range(15))
def test_every_partition_has_one_member(kind: type[Assignor], seed: int) -> None:
    counts, members = random_group(seed)
    check_complete(counts, members, kind().assign(counts, members))


def check_balanced(members: Sequence[Member], assignments: Assignments) -> None:
    """Nobody could take a partition from somebody who has at least two more."""
    for giver, taker in itertools.permutations(members, 2):
        given, taken = assignments[giver.member_id], assignments[taker.member_id]
        if len(given) > len(taken) + 1:
            assert not any(partition.topic in taker.topics for partition in given), (giver, taker)


@pytest.mark.parametrize("seed", range(25))
def test_sticky_is_balanced_and_keeps_what_it_can(seed: int) -> None:
    counts, members = random_group(seed)
    assignor = StickyAssignor()
    first = assignor.assign(counts, members)
    check_balanced(members, first)

    def after(kept: Sequence[Member], assignments: Assignments, generation: int) -> list[Member]:
        return [
            Member(
                member_id=each.member_id,
                topics=each.topics,
                user_data=encode_user_data(assignments.get(each.member_id, []), generation),
            )
            for each in kept
        ]

    # Nothing changes: nothing moves.
    assert assignor.assign(counts, after(members, first, 1)) == first
    # One goes: nobody who stays and wants the same loses anything, where all want the same.
    left = members[1:]
    second = assignor.assign(counts, after(left, first, 1))
    check_complete(counts, left, second)
    check_balanced(left, second)
    if len({each.topics for each in members}) == 1:
        for each in left:
            assert set(first[each.member_id]) <= set(second[each.member_id])
    # It comes back: what moves, moves to it.
    third = assignor.assign(counts, [*after(left, second, 2), members[0]])
    check_complete(counts, members, third)
    check_balanced(members, third)
    if len({each.topics for each in members}) == 1:
        for each in left:
            assert set(third[each.member_id]) <= set(second[each.member_id])


def test_the_latest_generation_keeps_a_partition_that_two_claim() -> None:
    owned = [TopicPartition("t", 0), TopicPartition("t", 1)]
    old = member("old", "t", user_data=encode_user_data(owned, 3))
    new = member("new", "t", user_data=encode_user_data(owned, 4))
    idle = member("idle", "t")
    assignments = StickyAssignor().assign({"t": 2}, [old, new, idle])
    assert len(assignments["new"]) == 1
    same = StickyAssignor().assign(
        {"t": 2}, [old, member("other", "t", user_data=encode_user_data(owned, 3))]
    )
    assert sorted(map(len, same.values())) == [1, 1]


def test_user_data_of_sticky_is_that_of_java_and_aiokafka() -> None:
    partitions = [TopicPartition("topic", 0), TopicPartition("topic", 2), TopicPartition("other", 1)]
    encoded = encode_user_data(partitions, 7)
    theirs = StickyAssignorUserDataV1([("topic", [0, 2]), ("other", [1])], 7)
    assert encoded == theirs.encode()
    assert decode_user_data(encoded) == (partitions, 7)
    # The oldest form has no generation; what nobody can read counts as nothing.
    assert decode_user_data(encoded[:-4]) == (partitions, -1)
    assert decode_user_data(b"\x00\x00\x00\x05rubbish") == ([], -1)
    assert decode_user_data(None) == ([], -1)
    # Counts and lengths that lie end at once.
    assert decode_user_data(b"\x7f\xff\xff\xff" + b"\xff\xfe" + bytes(4)) == ([], -1)
    assert decode_user_data(b"\x00\x00\x00\x02" + b"\xff\xfe" + bytes(4)) == ([], -1)


@settings(derandomize=True, deadline=None, max_examples=cases(60, fast=15))
@given(st.binary(max_size=40))
def test_user_data_of_any_bytes_is_read_or_ignored(data: bytes) -> None:
    partitions, generation = decode_user_data(data)
    assert isinstance(generation, int)
    assert all(isinstance(each, TopicPartition) for each in partitions)


def test_sticky_remembers_its_last_assignment() -> None:
    assignor = StickyAssignor()
    assert assignor.user_data() is None
    assignor.on_assignment([TopicPartition("t", 1)], 5)
    assert decode_user_data(assignor.user_data()) == ([TopicPartition("t", 1)], 5)


def rejoin(members: Sequence[Member], owned: Assignments, generation: int) -> list[Member]:
    return [
        replace(
            each,
            owned=tuple(owned.get(each.member_id, ())),
            generation=generation if each.member_id in owned else -1,
        )
        for each in members
    ]


@pytest.mark.parametrize("seed", range(25))
def test_cooperative_takes_nothing_from_who_has_not_given_it_up(seed: int) -> None:
    counts, members = random_group(seed)
    assignor = CooperativeStickyAssignor()
    owned: Assignments = {}
    chooser = random.Random(seed)
    for generation in range(1, 12):
        present = (
            members if generation > 8 else chooser.sample(members, chooser.randrange(1, len(members) + 1))
        )
        owned = {each.member_id: owned[each.member_id] for each in present if each.member_id in owned}
        assignments = assignor.assign(counts, rejoin(present, owned, generation))
        owner = {partition: name for name, partitions in owned.items() for partition in partitions}
        for name, partitions in assignments.items():
            assert all(owner.get(partition, name) == name for partition in partitions)
        owned = assignments
    # Two rounds with the same members are enough to settle.
    check_complete(counts, members, owned)
    check_balanced(members, owned)


def test_cooperative_reads_the_generation_of_old_subscriptions_from_the_user_data() -> None:
    owned = (TopicPartition("t", 0), TopicPartition("t", 1))
    old = member("old", "t", owned=owned, user_data=(3).to_bytes(4, "big"))
    new = member("new", "t", owned=owned, user_data=(4).to_bytes(4, "big"))
    # As librdkafka writes it: not the generation alone, so nothing is known of it.
    odd = member("odd", "t", user_data=encode_user_data(owned, 9))
    assignments = CooperativeStickyAssignor().assign({"t": 2}, [old, new, odd])
    assert assignments["new"] == [TopicPartition("t", 0)]
    # The other one has two owners who have to give it up first.
    assert assignments["old"] == assignments["odd"] == []


def test_a_subscription_goes_over_the_wire_and_back() -> None:
    assignor = CooperativeStickyAssignor()
    assignor.on_assignment([], 6)
    owned = [TopicPartition("t", 1), TopicPartition("s", 0), TopicPartition("t", 0)]
    data = encode_subscription(["t", "s"], assignor, owned, 6, "rack")
    found = decode_member("m", "i", data)
    assert (found.member_id, found.group_instance_id) == ("m", "i")
    assert found.topics == {"s", "t"}
    assert (sorted(found.owned), found.generation) == (sorted(owned), 6)
    assert found.user_data == b"\x00\x00\x00\x06"
    # A later version adds to the end.
    assert decode_member("m", "i", b"\x00\x09" + data[2:] + b"more") == found
    # Version 0 ends with the user data.
    oldest = b"\x00\x00" + b"\x00\x00\x00\x01\x00\x01t" + b"\xff\xff\xff\xff"
    assert decode_member("m", None, oldest) == member("m", "t")


def test_an_assignment_goes_over_the_wire_and_back() -> None:
    partitions = [TopicPartition("s", 0), TopicPartition("t", 0), TopicPartition("t", 1)]
    assert decode_assignment(encode_assignment(partitions)) == partitions
    assert decode_assignment(b"") == []


@pytest.mark.parametrize("data", [b"\x00", b"\xff\xff", b"\x00\x01\x00\x00\x00\x05", b"\x00\x03"])
def test_bytes_of_other_members_that_are_no_subscription(data: bytes) -> None:
    with pytest.raises(InconsistentGroupProtocol, match="member 'm'"):
        decode_member("m", None, data)


def test_assignors_are_named_as_in_kafka_or_in_java() -> None:
    names = ("range", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor")
    assert [assignor.name for assignor in make_assignors(names)] == ["range", "cooperative-sticky"]
    for wrong in (("best",), (), ("range", "RangeAssignor")):
        with pytest.raises(InvalidConfig, match=r"partition\.assignment\.strategy"):
            make_assignors(wrong)
