"""Listing, describing and deleting groups."""

from __future__ import annotations

from barnabas.errors import (
    NONE,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    NonEmptyGroup,
    NotEnoughReplicas,
    UnknownMemberId,
)
from barnabas.groups.coordinator import CLEANUP
from barnabas.model import Offset, TimestampMs
from barnabas.records.builder import BatchBuilder
from tests.groups.requests import (
    commit,
    commit_code,
    delete_groups,
    delete_offsets,
    fetch_all,
    join_new,
    settle,
    txn_commit,
)
from tests.groups.shell import GROUP, Shell, subscription


def listed(shell: Shell, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> set[str]:
    return {group.group_id for group in shell.coordinator.list_groups(states, types)}


def test_groups_are_listed_by_state_and_type() -> None:
    shell = Shell()
    commit(shell, 1, group_id="simple")
    _, caller = join_new(shell, group_id="stable")
    _, _ = join_new(shell, group_id="joining")
    shell.advance_ms(3_000)
    settle(shell, caller, group_id="stable")
    assert listed(shell) == {"simple", "stable", "joining"}
    assert listed(shell, ("Stable",)) == {"stable"}
    assert listed(shell, ("stable", "EMPTY")) == {"stable", "simple"}
    assert listed(shell, ("CompletingRebalance",)) == {"joining"}
    assert listed(shell, ("NoSuchState",)) == set()
    assert listed(shell, (), ("Classic",)) == {"simple", "stable", "joining"}
    assert listed(shell, (), ("consumer",)) == set()
    [group] = shell.coordinator.list_groups(["Stable"])
    assert (group.protocol_type, group.group_state, group.group_type) == ("consumer", "Stable", "classic")


def test_a_stable_group_is_described_with_metadata_and_assignments() -> None:
    shell = Shell()
    member_id, caller = join_new(shell, client_id="app")
    shell.advance_ms(3_000)
    [before] = shell.coordinator.describe_groups([GROUP], version=6)
    assert (before.group_state, before.protocol_data) == ("CompletingRebalance", "")
    assert before.members[0].member_metadata == b""
    settle(shell, caller)
    [group] = shell.coordinator.describe_groups([GROUP], version=6)
    assert (group.error_code, group.group_state) == (NONE, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    [member] = group.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "app", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("topic"), member_id.encode())
    assert shell.reloaded().coordinator.describe_groups([GROUP], version=6) == [group]


def test_an_unknown_group_is_dead_and_from_version_6_an_error() -> None:
    shell = Shell()
    [before] = shell.coordinator.describe_groups(["unknown"], version=5)
    assert (before.error_code, before.group_state, before.error_message) == (NONE, "Dead", None)
    [since] = shell.coordinator.describe_groups(["unknown"], version=6)
    assert (since.error_code, since.group_state) == (GroupIdNotFound.code, "Dead")
    assert since.error_message == "Group unknown not found."


def test_empty_groups_are_deleted_with_their_offsets() -> None:
    shell = Shell()
    commit(shell, 1, group_id="simple")
    txn_commit(shell, 2, 7, group_id="simple", partition=1)
    _, caller = join_new(shell, group_id="stable")
    shell.advance_ms(3_000)
    settle(shell, caller, group_id="stable")
    assert delete_groups(shell, "simple", "stable", "unknown", "simple") == {
        "simple": NONE,
        "stable": NonEmptyGroup.code,
        "unknown": GroupIdNotFound.code,
    }
    shell.end_transaction(7, is_committed=True)
    for each in (shell, shell.reloaded()):
        assert listed(each) == {"stable"}
        assert fetch_all(each, "simple") == {}


def test_an_id_that_was_given_out_dies_with_its_group() -> None:
    shell = Shell()
    member_id = shell.joined(shell.join()).member_id
    assert delete_groups(shell, GROUP) == {GROUP: NONE}
    assert shell.joined(shell.join(member_id)).error_code == UnknownMemberId.code
    shell.advance_ms(10_000)
    assert shell.timers.keys() == {CLEANUP}


def test_a_deletion_that_cannot_be_stored_has_not_happened() -> None:
    shell = Shell()
    commit(shell, 1)
    shell.append_error = NotEnoughReplicas()
    assert delete_groups(shell, GROUP) == {GROUP: CoordinatorNotAvailable.code}
    assert listed(shell) == {GROUP}
    assert fetch_all(shell) == {("topic", 0): 1}


def test_groups_of_other_protocols_are_left_alone() -> None:
    shell = Shell()
    commit(shell, 1)
    builder = BatchBuilder(base_offset=Offset(shell.next_offset))
    # The epoch of a share group, and a part of it.
    builder.append(TimestampMs(0), b"\x00\x0b\x00\x05group", b"\x00\x00\x00\x00\x00\x01\x00")
    builder.append(TimestampMs(0), b"\x00\x0a\x00\x05group\x00\x01m", b"\x00\x00")
    shell.log += builder.build()
    other = shell.reloaded()
    assert listed(other) == set()
    assert fetch_all(other) == {("topic", 0): 1}
    assert other.joined(other.join()).error_code == InconsistentGroupProtocol.code
    assert commit_code(other, commit(other, 2)) == UnknownMemberId.code
    assert txn_commit(other, 2, 7) == UnknownMemberId.code
    assert delete_groups(other, GROUP) == {GROUP: NonEmptyGroup.code}
    assert delete_offsets(other, ("topic", 0)) == (NonEmptyGroup.code, [])
    [described] = other.coordinator.describe_groups([GROUP], version=6)
    assert described.error_message == "Group group is not a classic group."
    other.advance_ms(30 * 24 * 60 * 60 * 1_000)
    assert fetch_all(other) == {("topic", 0): 1}
    # Once it is gone, its id is free again.
    builder = BatchBuilder(base_offset=Offset(other.next_offset))
    builder.append(TimestampMs(0), b"\x00\x0b\x00\x05group", None)
    other.log += builder.build()
    free = other.reloaded()
    _, caller = join_new(free)
    free.advance_ms(3_000)
    settle(free, caller)
