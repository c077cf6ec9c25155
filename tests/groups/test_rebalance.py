"""Joining, agreeing, staying and leaving, with dynamic members."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.errors import (
    NONE,
    CoordinatorNotAvailable,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)
from barnabas.groups.classic_group import member_id_of
from barnabas.groups.coordinator import CLEANUP
from barnabas.groups.settings import GroupSettings
from tests.groups.requests import heartbeat, join_new, leave, settle, state, sync, synced
from tests.groups.shell import GROUP, Shell, subscription

INITIAL_DELAY_MS = 3_000
STRING_BYTES_MAX = 2**15 - 1


def stable_pair(shell: Shell) -> tuple[str, str, int]:
    """A stable group of two: its leader, the other one, and the generation."""
    leader, first = join_new(shell)
    follower, second = join_new(shell)
    shell.advance_ms(2 * INITIAL_DELAY_MS)
    return leader, follower, settle(shell, first, second)


def test_a_new_member_gets_an_id_first() -> None:
    shell = Shell()
    response = shell.joined(shell.join(client_id="app"))
    assert response.error_code == MemberIdRequired.code
    assert response.member_id.startswith("app-uuid-")
    assert state(shell) == "Empty"
    # The id is good for a session.
    shell.advance_ms(10_001)
    late = shell.joined(shell.join(response.member_id))
    assert (late.error_code, late.protocol_name) == (UnknownMemberId.code, None)


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_a_new_member_joins_at_once(version: int) -> None:
    shell = Shell()
    caller = shell.join(version=version)
    assert caller not in shell.replies
    shell.advance_ms(INITIAL_DELAY_MS)
    response = shell.joined(caller)
    assert (response.error_code, response.generation_id) == (NONE, 1)
    assert response.leader == response.member_id == response.members[0].member_id


@pytest.mark.parametrize(
    ("version", "instance_id"),
    [(3, None), (9, None), (5, "i" * STRING_BYTES_MAX), (9, "i" * STRING_BYTES_MAX)],
    ids=["dynamic, old", "dynamic", "static, old", "static"],
)
def test_the_longest_names_leave_room_for_an_id(version: int, instance_id: str | None) -> None:
    shell = Shell()
    leader = shell.join(version=version, instance_id="leader" if version > 3 else None)
    other = shell.join(version=version, instance_id=instance_id, client_id="é" * (STRING_BYTES_MAX // 2))
    if instance_id is None and version > 3:
        assert shell.joined(other).error_code == MemberIdRequired.code
        other = shell.join(shell.joined(other).member_id, version=version)
    # Whoever is told of the member can be told: the shell writes all answers.
    shell.advance_ms(2 * INITIAL_DELAY_MS)
    told = {member.member_id for member in shell.joined(leader).members}
    assert told == {shell.joined(leader).member_id, shell.joined(other).member_id}


def test_an_id_is_as_long_as_a_string_can_be() -> None:
    uuid = str(UUID(int=7))
    assert len(member_id_of("x" * STRING_BYTES_MAX, uuid)) == STRING_BYTES_MAX
    assert len(member_id_of("é" * STRING_BYTES_MAX, uuid).encode()) in (
        STRING_BYTES_MAX - 1,
        STRING_BYTES_MAX,
    )


def test_version_0_has_one_time_out_for_both() -> None:
    shell = Shell()
    shell.join(version=0, session_timeout_ms=20_000, rebalance_timeout_ms=-1)
    member = next(iter(shell.coordinator._groups.classic[GROUP].members.values()))
    assert member.rebalance_timeout_ms == 20_000


def test_the_leader_alone_is_told_the_members() -> None:
    shell = Shell()
    leader, first = join_new(shell)
    follower, second = join_new(shell, protocols={"range": subscription("other")})
    assert first not in shell.replies
    shell.advance_ms(2 * INITIAL_DELAY_MS)
    to_leader, to_follower = shell.joined(first), shell.joined(second)
    assert {each.member_id: each.metadata for each in to_leader.members} == {
        leader: subscription("topic"),
        follower: subscription("other"),
    }
    assert to_follower.members == []
    assert to_leader.leader == to_follower.leader == leader
    assert (to_leader.protocol_type, to_leader.protocol_name) == ("consumer", "range")
    assert state(shell) == "CompletingRebalance"


def test_the_first_rebalance_waits_for_more_members_but_not_for_ever() -> None:
    shell = Shell()
    _, first = join_new(shell, rebalance_timeout_ms=7_000)
    for _ in range(2):
        shell.advance_ms(2_500)
        join_new(shell, rebalance_timeout_ms=7_000)
        assert first not in shell.replies
    # Three seconds, three more since somebody has come, and what is then left of seven.
    shell.advance_ms(1_999)
    assert first not in shell.replies
    shell.advance_ms(1)
    assert len(shell.joined(first).members) == 3


def test_sync_gives_each_member_its_assignment() -> None:
    shell = Shell()
    leader, _ = join_new(shell)
    follower, _ = join_new(shell)
    shell.advance_ms(2 * INITIAL_DELAY_MS)
    waiting = sync(shell, follower, 1)
    assert waiting not in shell.replies
    answer = synced(
        shell,
        sync(shell, leader, 1, {leader: b"one"}, protocol_name="range", protocol_type="consumer"),
    )
    assert (answer.assignment, answer.protocol_name, answer.protocol_type) == (b"one", "range", "consumer")
    # Whom the leader has forgotten has nothing, and the group is stable all the same.
    assert synced(shell, waiting).assignment == b""
    assert state(shell) == "Stable"
    assert synced(shell, sync(shell, leader, 1)).assignment == b"one"


def test_a_repeated_sync_takes_the_place_of_the_first() -> None:
    shell = Shell()
    leader, _ = join_new(shell)
    follower, _ = join_new(shell)
    shell.advance_ms(2 * INITIAL_DELAY_MS)
    first, second = sync(shell, follower, 1), sync(shell, follower, 1)
    assert synced(shell, first).error_code == RebalanceInProgress.code
    sync(shell, leader, 1, {follower: b"mine"})
    assert synced(shell, second).assignment == b"mine"


def test_a_member_that_comes_later_has_all_join_again() -> None:
    shell = Shell()
    leader, follower, generation_id = stable_pair(shell)
    third, third_joining = join_new(shell)
    assert heartbeat(shell, leader, generation_id) == RebalanceInProgress.code
    assert synced(shell, sync(shell, leader, generation_id)).error_code == RebalanceInProgress.code
    first, second = shell.join(leader), shell.join(follower)
    assert settle(shell, first, second, third_joining) == generation_id + 1
    assert heartbeat(shell, third, generation_id) == IllegalGeneration.code
    assert heartbeat(shell, third, generation_id + 1) == NONE


def test_who_does_not_join_again_in_time_is_out() -> None:
    shell = Shell()
    leader, follower, generation_id = stable_pair(shell)
    _, joining = join_new(shell, rebalance_timeout_ms=30_000)
    again = shell.join(leader, rebalance_timeout_ms=30_000)
    for _ in range(12):
        assert heartbeat(shell, follower, generation_id) == RebalanceInProgress.code
        shell.advance_ms(5_000)
    assert settle(shell, again, joining) == generation_id + 1
    assert heartbeat(shell, follower, generation_id) == UnknownMemberId.code


def test_a_follower_that_joins_unchanged_is_told_what_it_knows() -> None:
    shell = Shell()
    leader, follower, generation_id = stable_pair(shell)
    response = shell.joined(shell.join(follower))
    assert (response.error_code, response.generation_id, response.members) == (NONE, generation_id, [])
    assert state(shell) == "Stable"
    # The leader that joins wants a new assignment, and a follower with other metadata needs one.
    waiting = shell.join(leader)
    assert waiting not in shell.replies
    assert state(shell) == "PreparingRebalance"
    settle(shell, waiting, shell.join(follower))
    changed = shell.join(follower, protocols={"range": subscription("new")})
    assert changed not in shell.replies


def test_a_join_whose_answer_was_lost_is_answered_again() -> None:
    shell = Shell()
    leader, first = join_new(shell)
    follower, _ = join_new(shell)
    shell.advance_ms(2 * INITIAL_DELAY_MS)
    assert shell.joined(shell.join(leader)) == shell.joined(first)
    assert shell.joined(shell.join(follower)).members == []
    assert state(shell) == "CompletingRebalance"
    # Other metadata is another matter: the leader has not seen it.
    waiting = shell.join(follower, protocols={"range": subscription("new")})
    assert shell.joined(shell.join(leader)).generation_id == shell.joined(waiting).generation_id == 2


def test_a_repeated_join_takes_the_place_of_the_first() -> None:
    shell = Shell()
    member_id, first = join_new(shell)
    second = shell.join(member_id)
    response = shell.joined(first)
    assert (response.error_code, response.member_id) == (RebalanceInProgress.code, member_id)
    shell.advance_ms(INITIAL_DELAY_MS)
    settle(shell, second)


def test_a_sync_of_another_generation() -> None:
    shell = Shell()
    leader, _, generation_id = stable_pair(shell)
    answer = synced(shell, sync(shell, leader, generation_id + 1))
    assert answer.error_code == IllegalGeneration.code


def test_sessions_end_without_heartbeats() -> None:
    shell = Shell()
    leader, follower, generation_id = stable_pair(shell)
    for _ in range(4):
        shell.advance_ms(4_000)
        heartbeat(shell, leader, generation_id)
    assert heartbeat(shell, leader, generation_id) == RebalanceInProgress.code
    assert heartbeat(shell, follower, generation_id) == UnknownMemberId.code
    settle(shell, shell.join(leader))
    shell.advance_ms(10_001)
    assert state(shell) == "Empty"
    assert [timer for timer in shell.timers if timer != CLEANUP] == []
    assert shell.reloaded().coordinator.describe_groups([GROUP], version=5)[0].members == []


def test_who_joins_but_never_syncs_is_out() -> None:
    shell = Shell()
    leader, _ = join_new(shell, rebalance_timeout_ms=20_000)
    silent, _ = join_new(shell, rebalance_timeout_ms=20_000)
    shell.advance_ms(2 * INITIAL_DELAY_MS)
    waiting = sync(shell, leader, 1, {leader: b"1", silent: b"2"})
    assert synced(shell, waiting).error_code == NONE
    for _ in range(4):
        shell.advance_ms(5_000)
        heartbeat(shell, silent, 1)
        heartbeat(shell, leader, 1)
    assert heartbeat(shell, silent, 1) == UnknownMemberId.code
    assert heartbeat(shell, leader, 1) == RebalanceInProgress.code


def test_leaving_is_seen_at_once() -> None:
    shell = Shell()
    leader, follower, generation_id = stable_pair(shell)
    response = leave(shell, (follower, None), ("nobody", None))
    assert [each.error_code for each in response.members] == [NONE, UnknownMemberId.code]
    assert heartbeat(shell, leader, generation_id) == RebalanceInProgress.code
    assert leave(shell, (leader, None), version=2).error_code == NONE
    assert state(shell) == "Empty"
    assert leave(shell, (leader, None), version=0).error_code == UnknownMemberId.code


def test_an_id_that_was_never_used_leaves_without_a_rebalance() -> None:
    shell = Shell()
    leader, _, generation_id = stable_pair(shell)
    member_id = shell.joined(shell.join()).member_id
    assert leave(shell, (member_id, None)).members[0].error_code == NONE
    assert heartbeat(shell, leader, generation_id) == NONE


def test_who_leaves_while_waiting_is_answered() -> None:
    shell = Shell()
    leader, first = join_new(shell)
    follower, _ = join_new(shell)
    third, _ = join_new(shell)
    leave(shell, (leader, None))
    response = shell.joined(first)
    assert (response.error_code, response.member_id) == (UnknownMemberId.code, "")
    shell.advance_ms(2 * INITIAL_DELAY_MS)
    waiting = sync(shell, third, 1)
    leave(shell, (third, None))
    assert synced(shell, waiting).error_code == UnknownMemberId.code
    assert heartbeat(shell, follower, 1) == RebalanceInProgress.code


def test_a_full_group_takes_no_more() -> None:
    shell = Shell(GroupSettings(group_max_size=2))
    leader, _, generation_id = stable_pair(shell)
    refused = shell.joined(shell.join())
    assert (refused.error_code, refused.member_id) == (GroupMaxSizeReached.code, "")
    assert heartbeat(shell, leader, generation_id) == NONE


def test_a_group_that_is_loaded_over_its_size_makes_room() -> None:
    shell = Shell()
    leader, follower, _ = stable_pair(shell)
    smaller = shell.reloaded(GroupSettings(group_max_size=1))
    assert state(smaller) == "PreparingRebalance"
    waiting = smaller.join(leader)
    assert smaller.joined(smaller.join(follower)).error_code == GroupMaxSizeReached.code
    smaller.advance_ms(60_000)
    settle(smaller, waiting)


def test_members_must_have_a_protocol_in_common() -> None:
    shell = Shell()
    join_new(shell, protocols={"range": b"", "sticky": b""})
    for asking in (
        shell.join(protocols={"other": b""}),
        shell.join(protocols={}),
        shell.join(protocol_type="connect"),
    ):
        assert shell.joined(asking).error_code == InconsistentGroupProtocol.code
    _, second = join_new(shell, protocols={"new": b"", "sticky": b""})
    shell.advance_ms(2 * INITIAL_DELAY_MS)
    assert shell.joined(second).protocol_name == "sticky"
    assert synced(
        shell, sync(shell, shell.joined(second).member_id, 1, protocol_name="range")
    ).error_code == (InconsistentGroupProtocol.code)


def test_the_protocol_that_most_prefer_is_taken() -> None:
    shell = Shell()
    callers = [
        join_new(shell, protocols=dict.fromkeys(names, b""))[1]
        for names in (("range", "sticky"), ("sticky", "range"), ("sticky", "range"))
    ]
    shell.advance_ms(3 * INITIAL_DELAY_MS)
    assert [shell.joined(caller).protocol_name for caller in callers] == ["sticky"] * 3


def test_bad_requests_leave_no_group_behind() -> None:
    shell = Shell()
    assert shell.joined(shell.join(group_id="")).error_code == InvalidGroupId.code
    for timeout_ms in (5_999, 1_800_001):
        refused = shell.joined(shell.join(session_timeout_ms=timeout_ms))
        assert refused.error_code == InvalidSessionTimeout.code
    assert shell.joined(shell.join("unknown")).error_code == UnknownMemberId.code
    assert shell.joined(shell.join(protocols={})).error_code == InconsistentGroupProtocol.code
    assert synced(shell, sync(shell, "unknown", 1)).error_code == UnknownMemberId.code
    assert synced(shell, sync(shell, "unknown", 1, group_id="")).error_code == InvalidGroupId.code
    assert heartbeat(shell, "unknown", 1) == UnknownMemberId.code
    assert heartbeat(shell, "unknown", 1, group_id="") == InvalidGroupId.code
    assert leave(shell, ("unknown", None)).members[0].error_code == UnknownMemberId.code
    assert leave(shell, ("unknown", None), group_id="").error_code == InvalidGroupId.code
    assert shell.coordinator.list_groups() == []
    assert not shell.log


def test_an_id_for_a_dynamic_member_is_none_for_a_static_one() -> None:
    shell = Shell()
    member_id = shell.joined(shell.join()).member_id
    refused = shell.joined(shell.join(member_id, instance_id="static"))
    assert refused.error_code == UnknownServerError.code


def test_an_assignment_that_cannot_be_stored_is_not_given_out() -> None:
    shell = Shell()
    leader, _ = join_new(shell)
    follower, _ = join_new(shell)
    shell.advance_ms(2 * INITIAL_DELAY_MS)
    waiting = sync(shell, follower, 1)
    shell.append_error = NotEnoughReplicas()
    leading = sync(shell, leader, 1, {leader: b"1", follower: b"2"})
    for caller in (waiting, leading):
        answer = synced(shell, caller)
        assert (answer.error_code, answer.assignment) == (CoordinatorNotAvailable.code, b"")
    assert state(shell) == "PreparingRebalance"
    shell.append_error = None
    assert settle(shell, shell.join(leader), shell.join(follower)) == 2


def test_a_rebalance_overtakes_an_assignment_that_is_being_stored() -> None:
    shell = Shell()
    leader, _ = join_new(shell)
    shell.advance_ms(INITIAL_DELAY_MS)
    shell.holds_commits = True
    leading = sync(shell, leader, 1, {leader: b"1"})
    joining = shell.join(version=3)
    assert leading not in shell.replies
    shell.holds_commits = False
    shell.commit()
    assert synced(shell, leading).error_code == RebalanceInProgress.code
    assert state(shell) == "PreparingRebalance"
    settle(shell, shell.join(leader), joining)


def test_an_assignment_that_was_stored_late_is_not_that_of_the_next_generation() -> None:
    shell = Shell()
    leader, _ = join_new(shell)
    shell.advance_ms(INITIAL_DELAY_MS)
    shell.holds_commits = True
    sync(shell, leader, 1, {leader: b"old"})
    second = shell.join(version=3)
    first = shell.join(leader)
    # Its reply waits for the commit, too.
    [follower] = shell.coordinator._groups.classic[GROUP].members.keys() - {leader}
    waiting = sync(shell, follower, 2)
    shell.commit()
    assert waiting not in shell.replies
    assert state(shell) == "CompletingRebalance"
    shell.holds_commits = False
    settle(shell, first, second)


def test_a_new_group_that_cannot_be_stored_is_forgotten() -> None:
    shell = Shell()
    shell.append_error = NotLeaderOrFollower()
    caller = shell.join(version=3)
    assert shell.joined(caller).error_code == NotCoordinator.code
    assert shell.coordinator.list_groups() == []
    assert shell.timers.keys() == {CLEANUP}


def test_a_stable_group_survives_its_coordinator() -> None:
    shell = Shell()
    leader, follower, generation_id = stable_pair(shell)
    _, joining = join_new(shell)
    shell.unload()
    assert shell.joined(joining).error_code == NotCoordinator.code
    assert not shell.timers
    reloaded = shell.reloaded()
    assert heartbeat(reloaded, follower, generation_id) == NONE
    assert synced(reloaded, sync(reloaded, leader, generation_id)).assignment == leader.encode()
    reloaded.advance_ms(10_001)
    assert state(reloaded) == "Empty"
