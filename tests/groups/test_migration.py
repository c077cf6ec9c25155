"""Classic groups become consumer groups and consumer groups classic ones, with members of both protocols in between."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.errors import (
    NONE,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    NotEnoughReplicas,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)
from barnabas.groups.caller import Caller
from barnabas.groups.consumer_protocol import build_assignment, parse_assignment
from barnabas.groups.settings import GroupSettings
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.groups.requests import (
    assigned,
    beat,
    commit,
    commit_code,
    fetch,
    heartbeat,
    join_new,
    leave,
    state,
    sync,
    synced,
)
from tests.groups.shell import GROUP, Shell, subscription
from tests.groups.topics import image_of, topic_id

TOPIC = topic_id("topic")
ALL = [0, 1, 2, 3]


def new_shell(**settings: Any) -> Shell:
    settings = {"consumer_assignment_interval_ms": 0, "group_initial_rebalance_delay_ms": 0, **settings}
    return Shell(GroupSettings(**settings), image=image_of({"topic": 4}))


def owning(*partitions: int) -> dict[str, bytes]:
    """A member that gives up only what it must, and says what it owns."""
    message = ConsumerProtocolSubscription(
        topics=["topic"],
        user_data=None,
        owned_partitions=[TopicPartition(topic="topic", partitions=list(partitions))] if partitions else [],
    )
    return {"cooperative": b"\x00\x01" + encode(message, 1)}


def classic_group(shell: Shell, *shares: list[int], **options: Any) -> list[str]:
    """A stable group of members with these partitions; their ids, the leader's first."""
    new = [join_new(shell, protocols=owning(), **options) for _ in shares]
    shell.advance_ms(0)
    # All have come before the first rebalance ends.
    generation_id = shell.joined(new[0][1]).generation_id
    member_ids = [member_id for member_id, _ in new]
    assignments = {
        member_id: build_assignment({"topic": share}, 1)
        for member_id, share in zip(member_ids, shares, strict=True)
    }
    for member_id in member_ids:
        caller = sync(shell, member_id, generation_id, assignments)
        assert synced(shell, caller).error_code == NONE
        assignments = {}
    return member_ids


def types(shell: Shell) -> dict[str, str]:
    return {group.group_id: group.group_type for group in shell.coordinator.list_groups()}


def owned(shell: Shell, caller: Caller) -> list[int]:
    answer = synced(shell, caller)
    assert answer.error_code == NONE
    return parse_assignment(answer.assignment).get("topic", [])


def rejoin(shell: Shell, member_id: str, *partitions: int) -> tuple[int, list[int]]:
    """Joins and syncs with what the member owns; its generation, and what it owns then."""
    joined = shell.joined(shell.join(member_id, protocols=owning(*partitions)))
    assert joined.error_code == NONE
    assert (joined.protocol_name, joined.leader, joined.members) == ("cooperative", "", [])
    return joined.generation_id, owned(shell, sync(shell, member_id, joined.generation_id))


def test_a_group_is_taken_over_member_by_member() -> None:
    shell = new_shell()
    first, second = classic_group(shell, [0, 1], [2, 3])
    assert commit_code(shell, commit(shell, 5, member_id=first, generation_id=1)) == NONE
    joined = beat(shell, "new")
    # Everything is taken, and the others are told to come again.
    assert (joined.error_code, joined.member_epoch, assigned(joined)) == (NONE, 2, {})
    assert types(shell) == {GROUP: "consumer"}
    group = shell.coordinator.describe_consumer_group(GROUP)
    assert {member.member_id: member.member_type for member in group.members} == {
        first: 0,
        second: 0,
        "new": 1,
    }
    assert heartbeat(shell, first, 1) == RebalanceInProgress.code
    assert sync_code(shell, first, 1) == RebalanceInProgress.code
    # One is to give up a partition: it learns what it keeps, and comes again without the rest.
    shares = {first: [0, 1], second: [2, 3]}
    for member_id, held in shares.items():
        generation_id, kept = rejoin(shell, member_id, *held)
        while kept != held:
            assert heartbeat(shell, member_id, generation_id) == RebalanceInProgress.code
            held = kept
            generation_id, kept = rejoin(shell, member_id, *held)
        shares[member_id] = kept
        assert (generation_id, heartbeat(shell, member_id, generation_id)) == (2, NONE)
    given = assigned(beat(shell, "new", 2))
    assert given is not None
    assert sorted([*shares[first], *shares[second], *given[TOPIC]]) == ALL
    assert shell.coordinator.describe_consumer_group(GROUP).group_state == "Stable"
    assert fetch(shell)[:2] == (NONE, 5)
    assert commit_code(shell, commit(shell, 6, member_id=first, generation_id=2)) == NONE
    assert commit_code(shell, commit(shell, 6, member_id=first, generation_id=3)) == IllegalGeneration.code
    # The same is true for another coordinator.
    shell = shell.reloaded()
    assert heartbeat(shell, first, 2) == NONE
    # When the last one leaves that speaks the new protocol, the group is as it was.
    assert beat(shell, "new", -1).error_code == NONE
    assert types(shell) == {GROUP: "classic"}
    assert state(shell) == "PreparingRebalance"
    assert heartbeat(shell, first, 3) == IllegalGeneration.code
    assert heartbeat(shell, first, 2) == RebalanceInProgress.code
    callers = [shell.join(member_id, protocols=owning(*shares[member_id])) for member_id in shares]
    generation_id = shell.joined(callers[0]).generation_id
    assert generation_id == 3
    leader = next(each for each in map(shell.joined, callers) if each.members)
    assert sorted(each.member_id for each in leader.members) == sorted((first, second))
    caller = sync(
        shell,
        leader.member_id,
        generation_id,
        {leader.member_id: build_assignment({"topic": ALL}, 1)},
    )
    assert owned(shell, caller) == ALL
    assert fetch(shell)[:2] == (NONE, 6)
    assert types(shell.reloaded()) == {GROUP: "classic"}


def sync_code(shell: Shell, member_id: str, generation_id: int) -> int:
    return synced(shell, sync(shell, member_id, generation_id)).error_code


def test_who_waits_is_told_to_come_again() -> None:
    shell = new_shell()
    first, second = classic_group(shell, [0, 1], [2, 3])
    waiting = shell.join(first, protocols=owning(0, 1))
    assert waiting not in shell.replies
    beat(shell, "new")
    assert shell.joined(waiting).error_code == RebalanceInProgress.code
    # What the one who waited had said it owned is still its own.
    assert rejoin(shell, first, 0, 1)[1] != []
    assert heartbeat(shell, second, 1) == RebalanceInProgress.code


def test_an_empty_group_changes_its_type() -> None:
    shell = new_shell()
    assert commit_code(shell, commit(shell, 3)) == NONE
    assert beat(shell, "a").error_code == NONE
    assert types(shell) == {GROUP: "consumer"}
    assert fetch(shell)[:2] == (NONE, 3)
    beat(shell, "a", -1)
    member_id, caller = join_new(shell)
    shell.advance_ms(0)
    assert shell.joined(caller).error_code == NONE
    assert types(shell) == {GROUP: "classic"}
    assert fetch(shell)[:2] == (NONE, 3)
    assert types(shell.reloaded()) == {GROUP: "classic"}
    assert member_id


def test_an_empty_group_keeps_its_type_if_it_cannot_be_written() -> None:
    shell = new_shell()
    beat(shell, "a")
    beat(shell, "a", -1)
    shell.append_error = NotEnoughReplicas()
    shell.join()
    assert types(shell) == {GROUP: "consumer"}


@pytest.mark.parametrize("fails", ["join", "leave"])
def test_a_migration_that_cannot_be_written_has_not_happened(fails: str) -> None:
    shell = new_shell()
    [first] = classic_group(shell, ALL)
    if fails == "leave":
        beat(shell, "new")
    shell.append_error = NotEnoughReplicas()
    code = beat(shell, "new", 0 if fails == "join" else -1).error_code
    assert code == CoordinatorNotAvailable.code
    assert types(shell) == {GROUP: "classic" if fails == "join" else "consumer"}
    shell.append_error = None
    if fails == "join":
        assert heartbeat(shell, first, 1) == NONE
    else:
        assert beat(shell, "new", 2).error_code == NONE
        shell.advance_ms(60_000)
        assert shell.coordinator.describe_consumer_group(GROUP).group_state == "Empty"


def test_a_static_member_keeps_its_session_if_a_migration_cannot_be_written() -> None:
    shell = new_shell()
    first = shell.join(instance_id="i", protocols=owning())
    shell.advance_ms(0)
    member_id = shell.joined(first).member_id
    sync(shell, member_id, 1, {member_id: b""}, instance_id="i")
    shell.append_error = NotEnoughReplicas()
    assert beat(shell, "new", instance_id="i").error_code == CoordinatorNotAvailable.code
    shell.append_error = None
    assert state(shell) == "Stable"
    shell.advance_ms(10_000)
    assert state(shell) == "Empty"


def test_timers_of_a_group_that_was_taken_over_do_not_reach_the_next_of_its_name() -> None:
    shell = new_shell()
    [first] = classic_group(shell, ALL)
    # The others are waited for, for a minute.
    shell.join(first, protocols=owning(), rebalance_timeout_ms=60_000)
    beat(shell, "new")
    leave(shell, (first, None))
    beat(shell, "new", -1)
    shell.advance_ms(50_000)
    member_id = shell.joined(shell.join(protocols=owning(), session_timeout_ms=60_000)).member_id
    shell.advance_ms(30_000)
    assert (types(shell), state(shell)) == ({GROUP: "classic"}, "Empty")
    shell.join(member_id, protocols=owning())
    assert state(shell) == "PreparingRebalance"


@pytest.mark.parametrize(
    ("settings", "protocols"),
    [
        ({"can_upgrade": False}, None),
        ({"consumer_max_size": 0}, None),
        ({}, {"connect": b""}),
        ({}, {"range": b"\x00"}),
    ],
)
def test_groups_that_stay_classic(settings: dict[str, Any], protocols: dict[str, bytes] | None) -> None:
    shell = new_shell(**settings)
    is_connect = protocols is not None and "connect" in protocols
    options: dict[str, Any] = {"protocol_type": "connect" if is_connect else "consumer"}
    join_new(shell, protocols=protocols, **options)
    assert beat(shell, "new").error_code == GroupIdNotFound.code
    assert types(shell) == {GROUP: "classic"}


def test_a_group_that_stays_a_consumer_group() -> None:
    shell = new_shell(can_downgrade=False)
    [first] = classic_group(shell, ALL)
    beat(shell, "new")
    beat(shell, "new", -1)
    assert types(shell) == {GROUP: "consumer"}
    assert rejoin(shell, first, *ALL) == (3, ALL)


def test_a_classic_member_comes_and_goes() -> None:
    shell = new_shell()
    beat(shell, "a")
    caller = shell.join()
    required = shell.joined(caller)
    assert required.error_code == MemberIdRequired.code
    generation_id, nothing = rejoin(shell, required.member_id)
    assert (generation_id, nothing) == (3, [])
    kept = assigned(beat(shell, "a", 2))
    beat(shell, "a", 2, owned=kept)
    assert heartbeat(shell, required.member_id, 3) == RebalanceInProgress.code
    assert len(rejoin(shell, required.member_id)[1]) == 2
    assert [each.error_code for each in leave(shell, (required.member_id, None)).members] == [NONE]
    assert assigned(beat(shell, "a", 3)) == {TOPIC: ALL}
    assert leave(shell, (required.member_id, None), version=2).error_code == UnknownMemberId.code


def test_a_classic_member_that_does_not_come_back_is_removed() -> None:
    shell = new_shell(consumer_session_timeout_ms=10**9)
    beat(shell, "a")
    first = shell.joined(shell.join()).member_id
    for _ in range(2):
        # It is told to sync, and to join again when the group changes.
        shell.join(first, protocols=owning(), session_timeout_ms=1_800_000, rebalance_timeout_ms=5_000)
        sync(shell, first, shell.coordinator.describe_consumer_group(GROUP).group_epoch)
    beat(shell, "b")
    assert heartbeat(shell, first, 3) == RebalanceInProgress.code
    shell.advance_ms(4_000)
    assert heartbeat(shell, first, 3) == RebalanceInProgress.code
    shell.advance_ms(1_000)
    assert heartbeat(shell, first, 3) == UnknownMemberId.code
    # One that joins and never syncs goes as well.
    shell.join(first, protocols=owning(), session_timeout_ms=1_800_000, rebalance_timeout_ms=5_000)
    shell.advance_ms(5_000)
    assert heartbeat(shell, first, 5) == UnknownMemberId.code


def test_a_static_member_changes_its_protocol_and_back() -> None:
    shell = new_shell()
    owner = beat(shell, "a", instance_id="i")
    assert assigned(owner) == {TOPIC: ALL}
    joined = shell.joined(shell.join(instance_id="i", protocols=owning()))
    assert joined.error_code == NONE
    # It was the last one of the new protocol.
    assert types(shell) == {GROUP: "classic"}
    caller = sync(shell, joined.member_id, joined.generation_id, instance_id="i")
    assert synced(shell, caller).error_code == RebalanceInProgress.code
    again = shell.joined(shell.join(joined.member_id, instance_id="i", protocols=owning(*ALL)))
    assert (again.leader, again.generation_id) == (joined.member_id, 3)
    assignment = {joined.member_id: build_assignment({"topic": ALL}, 1)}
    assert owned(shell, sync(shell, joined.member_id, 3, assignment, instance_id="i")) == ALL
    assert beat(shell, "a", 2, instance_id="i").error_code == GroupIdNotFound.code
    back = beat(shell, "b", instance_id="i")
    assert (back.error_code, assigned(back)) == (NONE, {TOPIC: ALL})
    assert heartbeat(shell, joined.member_id, 3, instance_id="i") == FencedInstanceId.code


def test_a_static_member_among_others_changes_its_protocol() -> None:
    shell = new_shell()
    beat(shell, "a", instance_id="i")
    beat(shell, "b")
    joined = shell.joined(shell.join(instance_id="i", protocols=owning()))
    assert joined.error_code == NONE
    assert types(shell) == {GROUP: "consumer"}
    group = shell.coordinator.describe_consumer_group(GROUP)
    assert {(member.instance_id, member.member_type) for member in group.members} == {("i", 0), (None, 1)}
    assert leave(shell, ("", "i")).members[0].member_id == joined.member_id
    assert len(shell.coordinator.describe_consumer_group(GROUP).members) == 1


def test_a_static_member_is_not_replaced_by_one_that_makes_no_sense() -> None:
    shell = new_shell()
    beat(shell, "a", instance_id="i")
    beat(shell, "b")
    refused = shell.joined(shell.join(instance_id="i", protocols={"x": b"\x00"}))
    assert refused.error_code == UnknownServerError.code
    # It is still there, and goes when it is not heard of.
    shell.advance_ms(shell.settings.consumer_session_timeout_ms)
    assert shell.coordinator.describe_consumer_group(GROUP).members == []


def test_bad_requests_of_classic_members() -> None:
    shell = new_shell(consumer_max_size=2)
    beat(shell, "a")
    assert shell.joined(shell.join(protocol_type="connect")).error_code == InconsistentGroupProtocol.code
    member_id = shell.joined(shell.join(protocols=owning())).member_id
    broken = shell.joined(shell.join(member_id, protocols={"x": b"\x00"}))
    assert broken.error_code == UnknownServerError.code
    generation_id, _ = rejoin(shell, member_id)
    other = {"range": subscription("topic")}
    assert shell.joined(shell.join("x", protocols=other)).error_code == GroupMaxSizeReached.code
    assert heartbeat(shell, member_id, 7) == IllegalGeneration.code
    assert heartbeat(shell, "x", 1) == UnknownMemberId.code
    assert heartbeat(shell, member_id, 1, instance_id="i") == UnknownMemberId.code
    assert sync_code(shell, member_id, 7) == IllegalGeneration.code
    assert sync_code(shell, "x", 1) == UnknownMemberId.code
    assert sync_code(shell, "a", 2) == UnknownMemberId.code
    mismatched = sync(shell, member_id, generation_id, protocol_name="range")
    assert synced(shell, mismatched).error_code == InconsistentGroupProtocol.code
    beat(shell, "a", -1)
    leave(shell, (member_id, None))
    assert shell.joined(shell.join(member_id)).error_code == UnknownMemberId.code
