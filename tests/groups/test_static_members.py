"""Members with an instance id: they come back without a rebalance, and fence their former selves."""

from __future__ import annotations

import pytest

from barnabas.errors import (
    NONE,
    CoordinatorNotAvailable,
    FencedInstanceId,
    NotEnoughReplicas,
    UnknownMemberId,
)
from tests.groups.requests import (
    commit,
    commit_code,
    heartbeat,
    join_new,
    leave,
    send_leave,
    settle,
    state,
    sync,
    synced,
)
from tests.groups.shell import GROUP, Shell, subscription

INSTANCE = "static-1"


def stable_static(shell: Shell) -> tuple[str, str, int]:
    """A static leader, a dynamic follower, and the generation."""
    first = shell.join(instance_id=INSTANCE)
    follower, second = join_new(shell)
    shell.advance_ms(6_000)
    leader = shell.joined(first).member_id
    generation_id = shell.joined(first).generation_id
    waiting = sync(shell, follower, generation_id)
    sync(shell, leader, generation_id, {leader: b"leader's", follower: b"follower's"}, instance_id=INSTANCE)
    assert synced(shell, waiting).assignment == b"follower's"
    assert shell.joined(second).leader == leader
    return leader, follower, generation_id


def test_a_static_member_needs_no_id_first() -> None:
    shell = Shell()
    caller = shell.join(instance_id=INSTANCE, version=5)
    shell.advance_ms(3_000)
    response = shell.joined(caller)
    assert response.error_code == NONE
    assert response.member_id.startswith(f"{INSTANCE}-uuid-")
    assert response.members[0].group_instance_id == INSTANCE


@pytest.mark.parametrize("version", [5, 8, 9])
def test_coming_back_keeps_the_assignment_and_the_peace(version: int) -> None:
    shell = Shell()
    leader, follower, generation_id = stable_static(shell)
    response = shell.joined(shell.join(instance_id=INSTANCE, version=version))
    assert (response.error_code, response.generation_id) == (NONE, generation_id)
    back = response.member_id
    assert back != leader
    # From version 9 it is told that it leads and need not assign; before, it is kept from thinking that it leads.
    assert response.skip_assignment == (version == 9)
    assert response.leader == (back if version == 9 else leader)
    assert {each.member_id for each in response.members} == ({back, follower} if version == 9 else set())
    answer = synced(shell, sync(shell, back, generation_id, instance_id=INSTANCE))
    assert answer.assignment == b"leader's"
    assert heartbeat(shell, follower, generation_id) == NONE
    assert state(shell) == "Stable"
    reloaded = shell.reloaded()
    assert heartbeat(reloaded, back, generation_id, instance_id=INSTANCE) == NONE


def test_the_former_self_is_fenced_everywhere() -> None:
    shell = Shell()
    leader, _, generation_id = stable_static(shell)
    shell.join(instance_id=INSTANCE)
    code = FencedInstanceId.code
    assert heartbeat(shell, leader, generation_id, instance_id=INSTANCE) == code
    assert synced(shell, sync(shell, leader, generation_id, instance_id=INSTANCE)).error_code == code
    refused = shell.joined(shell.join(leader, instance_id=INSTANCE))
    assert (refused.error_code, refused.member_id, refused.protocol_name) == (code, leader, None)
    assert shell.joined(shell.join(leader, instance_id=INSTANCE, version=5)).protocol_name == ""
    assert leave(shell, (leader, INSTANCE)).members[0].error_code == code
    caller = commit(shell, 1, member_id=leader, generation_id=generation_id, instance_id=INSTANCE)
    assert commit_code(shell, caller) == code
    # Without the instance it is simply unknown.
    assert heartbeat(shell, leader, generation_id) == UnknownMemberId.code
    assert heartbeat(shell, leader, generation_id, instance_id="other") == UnknownMemberId.code


def test_parked_requests_of_the_former_self_are_fenced() -> None:
    shell = Shell()
    joining = shell.join(instance_id=INSTANCE)
    again = shell.join(instance_id=INSTANCE)
    assert shell.joined(joining).error_code == FencedInstanceId.code
    join_new(shell)
    shell.advance_ms(6_000)
    member_id = shell.joined(again).member_id
    leader = shell.joined(again).leader
    assert leader == member_id
    other = shell.join(instance_id="static-2")
    shell.join(instance_id="static-2")
    assert shell.joined(other).error_code == FencedInstanceId.code


def test_coming_back_while_all_wait_for_the_assignment_starts_over() -> None:
    shell = Shell()
    first = shell.join(instance_id=INSTANCE)
    follower, _ = join_new(shell)
    shell.advance_ms(6_000)
    leader = shell.joined(first).member_id
    waiting = sync(shell, follower, 1)
    back = shell.join(instance_id=INSTANCE)
    assert synced(shell, waiting).error_code != NONE
    assert back not in shell.replies
    again = shell.join(follower)
    assert shell.joined(back).generation_id == shell.joined(again).generation_id == 2
    assert shell.joined(back).member_id != leader


def test_coming_back_with_another_protocol_rebalances() -> None:
    shell = Shell()
    protocols = {"range": subscription("topic"), "sticky": subscription("topic")}
    first = shell.join(instance_id=INSTANCE, protocols=protocols)
    shell.advance_ms(3_000)
    member_id = shell.joined(first).member_id
    sync(shell, member_id, 1, {member_id: b"all"}, instance_id=INSTANCE)
    assert state(shell) == "Stable"
    back = shell.join(instance_id=INSTANCE, protocols={"sticky": subscription("topic")})
    assert (shell.joined(back).generation_id, shell.joined(back).protocol_name) == (2, "sticky")


def test_a_return_that_cannot_be_stored_is_undone() -> None:
    shell = Shell()
    leader, follower, generation_id = stable_static(shell)
    shell.append_error = NotEnoughReplicas()
    response = shell.joined(shell.join(instance_id=INSTANCE))
    assert response.error_code == CoordinatorNotAvailable.code
    assert (response.member_id, response.leader, response.members) == ("", leader, [])
    shell.append_error = None
    assert heartbeat(shell, leader, generation_id, instance_id=INSTANCE) == NONE
    assert heartbeat(shell, follower, generation_id) == NONE


def test_a_rebalance_answers_a_return_that_is_being_stored() -> None:
    shell = Shell()
    _, follower, generation_id = stable_static(shell)
    shell.holds_commits = True
    back = shell.join(instance_id=INSTANCE)
    assert back not in shell.replies
    send_leave(shell, (follower, None))
    shell.commit()
    assert shell.joined(back).generation_id == generation_id + 1
    assert state(shell) == "CompletingRebalance"


def test_a_static_member_that_is_away_keeps_its_place_for_a_session() -> None:
    shell = Shell()
    first = shell.join(instance_id=INSTANCE, session_timeout_ms=600_000, rebalance_timeout_ms=10_000)
    shell.advance_ms(3_000)
    settle_alone = shell.joined(first).member_id
    sync(shell, settle_alone, 1, {settle_alone: b"all"}, instance_id=INSTANCE)
    _, joining = join_new(shell, rebalance_timeout_ms=10_000)
    shell.advance_ms(10_000)
    # The rebalance goes on without it, but not against it: the new leader is told of it.
    assert {each.member_id for each in shell.joined(joining).members} >= {settle_alone}
    settled = shell.joined(joining)
    sync(shell, settled.member_id, settled.generation_id, {settle_alone: b"still its own"})
    assert heartbeat(shell, settle_alone, settled.generation_id, instance_id=INSTANCE) == NONE


def test_a_group_waits_while_all_its_static_members_are_away() -> None:
    shell = Shell()
    first = shell.join(instance_id=INSTANCE, session_timeout_ms=600_000)
    follower, second = join_new(shell)
    shell.advance_ms(6_000)
    generation_id = shell.joined(first).generation_id
    leader = shell.joined(first).member_id
    sync(shell, leader, generation_id, {leader: b"all"}, instance_id=INSTANCE)
    assert second in shell.replies
    leave(shell, (follower, None))
    # Several rebalance time-outs pass, and within its session the member may come back.
    shell.advance_ms(3 * 60_000)
    assert state(shell) == "PreparingRebalance"
    back = shell.join(instance_id=INSTANCE)
    assert shell.joined(back).generation_id == generation_id + 1


def test_a_rebalance_that_takes_no_time_is_not_tried_without_a_pause() -> None:
    shell = Shell()
    first = shell.join(instance_id=INSTANCE, session_timeout_ms=60_000)
    shell.advance_ms(3_000)
    leader = shell.joined(first).member_id
    sync(shell, leader, 1, {leader: b"all"}, instance_id=INSTANCE)
    shell.join(leader, instance_id=INSTANCE, session_timeout_ms=60_000, rebalance_timeout_ms=0)
    sync(shell, leader, 2, {leader: b"all"}, instance_id=INSTANCE)
    follower, _ = join_new(shell, rebalance_timeout_ms=0)
    leave(shell, (follower, None))
    shell.advance_ms(30_000)
    assert state(shell) == "PreparingRebalance"
    shell.advance_ms(30_000)
    assert state(shell) == "Empty"


def test_static_members_leave_by_their_instance() -> None:
    shell = Shell()
    stable_static(shell)
    response = leave(shell, ("", INSTANCE), ("", "unknown"), ("", None))
    codes = [each.error_code for each in response.members]
    assert codes == [NONE, UnknownMemberId.code, UnknownMemberId.code]
    assert INSTANCE not in shell.coordinator._groups.classic[GROUP].static_members


def test_settling_with_two_instances() -> None:
    shell = Shell()
    callers = [shell.join(instance_id=instance_id) for instance_id in ("a", "b")]
    shell.advance_ms(6_000)
    assert settle(shell, *callers) == 1
