"""Committing, fetching, deleting and expiring offsets, in transactions and outside of them."""

from __future__ import annotations

import pytest

from barnabas.errors import (
    NONE,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    NonEmptyGroup,
    NotEnoughReplicas,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from barnabas.groups.coordinator import CLEANUP_RECORDS_MAX
from barnabas.groups.settings import GroupSettings
from barnabas.model import TopicPartition
from tests.groups.requests import (
    commit,
    commit_code,
    delete_offsets,
    fetch,
    fetch_all,
    heartbeat,
    join_new,
    leave,
    settle,
    state,
    txn_commit,
)
from tests.groups.shell import GROUP, Shell
from tests.groups.topics import topic_id

DAY_MS = 24 * 60 * 60 * 1_000
NOTHING = (NONE, -1, "")


def settled_member(shell: Shell, **options: object) -> tuple[str, int]:
    member_id, caller = join_new(shell, **options)
    shell.advance_ms(3_000)
    return member_id, settle(shell, caller)


def test_a_commit_from_nobody_makes_a_group() -> None:
    shell = Shell()
    assert fetch(shell) == NOTHING
    assert commit_code(shell, commit(shell, 5, metadata="note")) == NONE
    assert fetch(shell) == (NONE, 5, "note")
    assert fetch(shell, partition=1) == NOTHING
    [listed] = shell.coordinator.list_groups()
    assert (listed.group_id, listed.group_state, listed.protocol_type) == (GROUP, "Empty", "")
    # The empty group id is as good as any other here, as it was in the beginning.
    assert commit_code(shell, commit(shell, 6, group_id="")) == NONE
    assert fetch(shell.reloaded(), group_id="") == (NONE, 6, "")


def test_null_metadata_is_none() -> None:
    shell = Shell()
    commit(shell, 5, metadata=None)
    assert fetch(shell) == (NONE, 5, "")


def test_members_commit_for_their_generation() -> None:
    shell = Shell()
    member_id, generation_id = settled_member(shell)
    good = commit(shell, 1, member_id=member_id, generation_id=generation_id)
    assert commit_code(shell, good) == NONE
    for caller, code in (
        (commit(shell, 2, member_id=member_id, generation_id=generation_id - 1), IllegalGeneration.code),
        (commit(shell, 2, member_id="unknown", generation_id=generation_id), UnknownMemberId.code),
        (commit(shell, 2, member_id=member_id), IllegalGeneration.code),
        (commit(shell, 2), UnknownMemberId.code),
        (commit(shell, 2, version=0), UnknownMemberId.code),
    ):
        assert commit_code(shell, caller) == code
    assert fetch(shell) == (NONE, 1, "")


@pytest.mark.parametrize("version", range(1, 10))
def test_a_member_of_no_group(version: int) -> None:
    shell = Shell()
    caller = commit(shell, 1, member_id="member", generation_id=3, version=version)
    expected = GroupIdNotFound if version >= 9 else IllegalGeneration
    assert commit_code(shell, caller) == expected.code
    assert shell.coordinator.list_groups() == []


def test_commits_during_a_rebalance() -> None:
    shell = Shell()
    member_id, generation_id = settled_member(shell)
    _, joining = join_new(shell)
    # Until it joins again the member still owns what it has, and may say how far it has come.
    assert commit_code(shell, commit(shell, 7, member_id=member_id, generation_id=generation_id)) == NONE
    again = shell.join(member_id)
    assert state(shell) == "CompletingRebalance"
    late = commit(shell, 8, member_id=member_id, generation_id=generation_id + 1)
    assert commit_code(shell, late) == RebalanceInProgress.code
    settle(shell, again, joining)


def test_commits_keep_the_session() -> None:
    shell = Shell()
    member_id, generation_id = settled_member(shell)
    for offset in range(4):
        shell.advance_ms(8_000)
        commit(shell, offset, member_id=member_id, generation_id=generation_id)
    assert heartbeat(shell, member_id, generation_id) == NONE


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("x" * 10, NONE),
        ("x" * 11, OffsetMetadataTooLarge.code),
        ("é" * 10, NONE),
        ("🐘" * 5, NONE),
        ("🐘" * 5 + "x", OffsetMetadataTooLarge.code),
    ],
)
def test_metadata_has_a_limit(metadata: str, code: int) -> None:
    shell = Shell(GroupSettings(offset_metadata_max_bytes=10))
    assert commit_code(shell, commit(shell, 1, metadata=metadata)) == code
    assert txn_commit(shell, 1, 7, partition=1, metadata=metadata) == code
    assert (fetch(shell)[1] == 1) == (code == NONE)


def test_a_commit_that_cannot_be_stored_has_not_happened() -> None:
    shell = Shell()
    commit(shell, 1)
    shell.append_error = NotEnoughReplicas()
    assert commit_code(shell, commit(shell, 2)) == CoordinatorNotAvailable.code
    assert fetch(shell) == (NONE, 1, "")


def test_a_commit_is_acknowledged_once_it_is_committed() -> None:
    shell = Shell()
    shell.holds_commits = True
    caller = commit(shell, 1)
    assert caller not in shell.replies
    shell.commit()
    assert commit_code(shell, caller) == NONE


def test_all_offsets_of_a_group() -> None:
    shell = Shell()
    for topic in ("a", "b"):
        for partition in range(2):
            commit(shell, 10 + partition, topic=topic, partition=partition)
    commit(shell, 99, group_id="other")
    expected = {("a", 0): 10, ("a", 1): 11, ("b", 0): 10, ("b", 1): 11}
    assert fetch_all(shell) == fetch_all(shell.reloaded()) == expected
    assert fetch_all(shell, "unknown") == {}


def test_transactional_offsets_take_effect_with_the_marker() -> None:
    shell = Shell()
    commit(shell, 1)
    assert txn_commit(shell, 5, 7) == NONE
    assert txn_commit(shell, 6, 8, partition=1) == NONE
    for each in (shell, shell.reloaded()):
        assert fetch(each) == (NONE, 1, "")
        assert fetch(each, stable=True) == (UnstableOffsetCommit.code, -1, "")
        assert fetch(each, partition=1, stable=True) == (UnstableOffsetCommit.code, -1, "")
        assert fetch(each, partition=2, stable=True) == NOTHING
    shell.end_transaction(7, is_committed=True)
    shell.end_transaction(8, is_committed=False)
    shell.end_transaction(9, is_committed=True)
    for each in (shell, shell.reloaded()):
        assert fetch(each, stable=True) == (NONE, 5, "")
        assert fetch(each, partition=1, stable=True) == NOTHING


def test_a_later_commit_is_not_undone_by_an_earlier_transaction() -> None:
    shell = Shell()
    txn_commit(shell, 5, 7)
    commit(shell, 9)
    shell.end_transaction(7, is_committed=True)
    assert fetch(shell, stable=True) == fetch(shell.reloaded(), stable=True) == (NONE, 9, "")


def test_transactional_commits_are_fenced_by_generation() -> None:
    shell = Shell()
    assert txn_commit(shell, 1, 7, member_id="member", generation_id=1) == IllegalGeneration.code
    assert txn_commit(shell, 1, 7, group_id="") == InvalidGroupId.code
    member_id, generation_id = settled_member(shell)
    assert txn_commit(shell, 1, 7, member_id=member_id, generation_id=generation_id) == NONE
    assert txn_commit(shell, 1, 7, member_id=member_id, generation_id=9) == IllegalGeneration.code
    assert txn_commit(shell, 1, 7, member_id="unknown", generation_id=generation_id) == UnknownMemberId.code
    # Before version 3 a producer does not say for whom it commits.
    assert txn_commit(shell, 2, 7) == NONE


def test_deleting_offsets() -> None:
    shell = Shell()
    assert delete_offsets(shell, ("topic", 0)) == (GroupIdNotFound.code, [])
    assert delete_offsets(shell, ("topic", 0), group_id="") == (InvalidGroupId.code, [])
    commit(shell, 1)
    commit(shell, 2, topic="other")
    txn_commit(shell, 3, 7)
    assert delete_offsets(shell, ("topic", 0), ("unknown", 0)) == (NONE, [NONE, NONE])
    shell.end_transaction(7, is_committed=True)
    assert fetch_all(shell) == fetch_all(shell.reloaded()) == {("other", 0): 2}


def test_what_members_read_is_not_deleted() -> None:
    shell = Shell()
    member_id, generation_id = settled_member(shell)
    commit(shell, 1, member_id=member_id, generation_id=generation_id)
    commit(shell, 2, member_id=member_id, generation_id=generation_id, topic="past")
    assert delete_offsets(shell, ("topic", 0), ("past", 0)) == (NONE, [GroupSubscribedToTopic.code, NONE])
    assert fetch_all(shell) == {("topic", 0): 1}
    # Of other protocols nobody here knows what the members read.
    join_new(shell, group_id="connect", protocol_type="connect", protocols={"x": b""})
    assert delete_offsets(shell, ("topic", 0), group_id="connect") == (NonEmptyGroup.code, [])


def test_metadata_that_is_no_subscription_hides_what_members_read() -> None:
    shell = Shell()
    member_id, generation_id = settled_member(shell, protocols={"range": b"\x00\x00\x7f"})
    commit(shell, 1, member_id=member_id, generation_id=generation_id)
    assert delete_offsets(shell, ("topic", 0)) == (NONE, [GroupSubscribedToTopic.code])


def test_offsets_of_deleted_partitions_are_forgotten() -> None:
    shell = Shell()
    for group_id in ("a", "b"):
        commit(shell, 1, group_id=group_id)
        commit(shell, 2, group_id=group_id, partition=1)
    txn_commit(shell, 3, 7, group_id="c")
    shell.carry_out(shell.coordinator.offsets.delete_partitions({TopicPartition("topic", 0)}))
    shell.end_transaction(7, is_committed=True)
    assert [fetch_all(shell, group_id) for group_id in "abc"] == [{("topic", 1): 2}, {("topic", 1): 2}, {}]


def test_an_offset_is_not_told_of_another_topic_with_the_same_name() -> None:
    shell = Shell()
    former, made_anew = topic_id("topic"), topic_id("topic", 1)
    commit(shell, 5, topic_id=former, version=10)
    commit(shell, 6, partition=1)
    # What is left of a topic that has been deleted could not be forgotten.
    shell.append_error = NotEnoughReplicas()
    shell.carry_out(shell.coordinator.offsets.delete_partitions({TopicPartition("topic", 0)}))
    shell.append_error = None
    for each in (shell, shell.reloaded()):
        assert fetch(each, topic_id=made_anew) == NOTHING
        assert fetch(each, topic_id=former) == (NONE, 5, "")
        # Without an id nobody knows better.
        assert fetch(each) == (NONE, 5, "")
        assert fetch(each, partition=1, topic_id=made_anew) == (NONE, 6, "")
    commit(shell, 7, topic_id=made_anew, version=10)
    assert fetch(shell, topic_id=made_anew) == (NONE, 7, "")


def test_offsets_without_members_expire() -> None:
    shell = Shell()
    commit(shell, 1)
    shell.advance_ms(6 * DAY_MS)
    commit(shell, 2, partition=1)
    shell.advance_ms(DAY_MS + 600_000)
    assert fetch_all(shell) == {("topic", 1): 2}
    shell.advance_ms(6 * DAY_MS)
    assert shell.coordinator.list_groups() == shell.reloaded().coordinator.list_groups() == []


def test_offsets_of_a_group_expire_after_its_last_member() -> None:
    shell = Shell()
    member_id, generation_id = settled_member(shell, session_timeout_ms=1_800_000)
    commit(shell, 1, member_id=member_id, generation_id=generation_id)
    commit(shell, 2, member_id=member_id, generation_id=generation_id, topic="past")
    for _ in range(8 * 24):
        shell.advance_ms(1_800_000 - 1)
        heartbeat(shell, member_id, generation_id)
        shell.advance_ms(1_800_000 - 1)
        assert heartbeat(shell, member_id, generation_id) == NONE
    assert fetch_all(shell) == {("topic", 0): 1}
    leave(shell, (member_id, None))
    shell.advance_ms(7 * DAY_MS - 600_000)
    assert fetch_all(shell.reloaded()) == {("topic", 0): 1}
    shell.advance_ms(2 * 600_000)
    assert shell.coordinator.list_groups() == []


def test_old_clients_say_themselves_when_an_offset_expires() -> None:
    shell = Shell()
    commit(shell, 1, retention_time_ms=DAY_MS, version=4)
    commit(shell, 2, retention_time_ms=20 * DAY_MS, version=4, partition=1)
    reloaded = shell.reloaded()
    reloaded.advance_ms(DAY_MS + 600_000)
    assert fetch_all(reloaded) == {("topic", 1): 2}
    reloaded.advance_ms(18 * DAY_MS)
    assert fetch_all(reloaded) == {("topic", 1): 2}


def test_offsets_of_an_open_transaction_do_not_expire() -> None:
    shell = Shell()
    commit(shell, 1)
    txn_commit(shell, 2, 7)
    shell.advance_ms(8 * DAY_MS)
    assert fetch_all(shell) == {("topic", 0): 1}
    shell.end_transaction(7, is_committed=False)
    shell.advance_ms(600_000)
    assert shell.coordinator.list_groups() == []


def test_many_offsets_expire_in_batches() -> None:
    shell = Shell()
    count = CLEANUP_RECORDS_MAX + 10
    for partition in range(count):
        commit(shell, 1, partition=partition)
    shell.advance_ms(7 * DAY_MS - 1)
    before = shell.next_offset
    shell.advance_ms(600_000)
    # A tombstone for each offset and one for the group.
    assert shell.next_offset == before + count + 1
    assert shell.coordinator.list_groups() == []
    assert shell.coordinator._counts.offset_expirations == count
