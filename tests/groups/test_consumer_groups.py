"""The life of members of the new protocol: epochs, what they own and give up, time-outs, static members."""

from __future__ import annotations

import pytest

from barnabas.errors import (
    NONE,
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidRegularExpression,
    InvalidRequest,
    NonEmptyGroup,
    NotEnoughReplicas,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from barnabas.groups.settings import GroupOverrides, GroupSettings
from barnabas.protocol.messages.consumer_group_describe_response import DescribedGroup
from tests.groups.requests import (
    assigned,
    beat,
    commit,
    commit_code,
    delete_groups,
    delete_offsets,
    fetch,
    fetch_all,
    heartbeat,
    leave,
    txn_commit,
)
from tests.groups.shell import GROUP, Shell
from tests.groups.topics import image_of, topic_id

TOPIC = topic_id("topic")
# No pause between two assignments, unless a test is about it.
SETTINGS = GroupSettings(consumer_assignment_interval_ms=0)


@pytest.fixture
def shell() -> Shell:
    return Shell(SETTINGS, image=image_of({"topic": 4, "other": 2}))


def describe(shell: Shell, group_id: str = GROUP) -> DescribedGroup:
    return shell.coordinator.describe_consumer_group(group_id)


def target_of(shell: Shell, member_id: str) -> dict[str, list[int]]:
    [member] = [each for each in describe(shell).members if each.member_id == member_id]
    return {each.topic_name: each.partitions for each in member.target_assignment.topic_partitions}


def test_a_member_alone_owns_everything(shell: Shell) -> None:
    joined = beat(shell, "a", rack_id="rack", client_id="me")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (NONE, "a", 2)
    assert joined.heartbeat_interval_ms == 5_000
    assert assigned(joined) == {TOPIC: [0, 1, 2, 3]}
    # Nothing has changed, so nothing is said.
    assert beat(shell, "a", 2, client_id="me").assignment is None
    group = describe(shell)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert group.assignor_name == "uniform"
    [member] = group.members
    assert (member.rack_id, member.client_id, member.client_host) == ("rack", "me", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["topic"], "")
    assert (member.member_epoch, member.member_type) == (2, 1)
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [
        ("topic", [0, 1, 2, 3])
    ]
    [listed] = shell.coordinator.list_groups()
    assert (listed.group_type, listed.group_state, listed.protocol_type) == ("consumer", "Stable", "consumer")


def test_a_second_member_gets_what_the_first_gives_up(shell: Shell) -> None:
    beat(shell, "a")
    joined = beat(shell, "b")
    # Two are to be its own, and are still the first one's.
    assert (joined.member_epoch, assigned(joined)) == (3, {})
    assert describe(shell).group_state == "Reconciling"
    revoked = beat(shell, "a", 2)
    kept = assigned(revoked)
    assert kept is not None
    assert (revoked.member_epoch, len(kept[TOPIC])) == (2, 2)
    # It is asked once, and stays in its epoch until it has done it.
    assert assigned(beat(shell, "a", 2, owned={TOPIC: [0, 1, 2, 3]})) is None
    assert assigned(beat(shell, "b", 3)) is None
    acknowledged = beat(shell, "a", 2, owned=kept)
    assert (acknowledged.member_epoch, acknowledged.assignment) == (3, None)
    given = assigned(beat(shell, "b", 3))
    assert given is not None
    assert sorted(given[TOPIC] + kept[TOPIC]) == [0, 1, 2, 3]
    assert describe(shell).group_state == "Stable"


def test_what_a_member_leaves_goes_to_the_others(shell: Shell) -> None:
    beat(shell, "a")
    beat(shell, "b")
    left = beat(shell, "a", -1)
    assert (left.error_code, left.member_id, left.member_epoch) == (NONE, "a", -1)
    again = beat(shell, "b", 3)
    assert (again.member_epoch, assigned(again)) == (4, {TOPIC: [0, 1, 2, 3]})
    assert beat(shell, "a", 2).error_code == UnknownMemberId.code
    assert beat(shell, "b", -1).error_code == NONE
    assert describe(shell).group_state == "Empty"


def test_a_lost_answer_is_given_again(shell: Shell) -> None:
    first = assigned(beat(shell, "a"))
    beat(shell, "b")
    kept = assigned(beat(shell, "a", 2))
    assert kept is not None
    assert beat(shell, "a", 2, owned=kept).member_epoch == 3
    # The member does not know its new epoch: with what it owned before it is fenced, with a part of it it is not.
    assert beat(shell, "a", 2, owned=first).error_code == FencedMemberEpoch.code
    assert beat(shell, "a", 2).error_code == FencedMemberEpoch.code
    again = beat(shell, "a", 2, owned=kept)
    assert (again.error_code, again.member_epoch) == (NONE, 3)
    assert beat(shell, "a", 4, owned=kept).error_code == FencedMemberEpoch.code
    # Who has lost everything starts again, under the id it has.
    back = beat(shell, "a", 0)
    assert (back.error_code, back.member_epoch, assigned(back)) == (NONE, 3, kept)


def test_a_member_that_is_not_heard_of_is_removed(shell: Shell) -> None:
    beat(shell, "a")
    beat(shell, "b")
    for _ in range(10):
        shell.advance_ms(5_000)
        beat(shell, "b", describe(shell).members[-1].member_epoch)
    assert [member.member_id for member in describe(shell).members] == ["b"]
    assert beat(shell, "a", 2).error_code == UnknownMemberId.code


def test_a_member_that_does_not_give_up_in_time_is_removed(shell: Shell) -> None:
    beat(shell, "a", rebalance_timeout_ms=12_000)
    beat(shell, "b")
    beat(shell, "a", 2)
    for _ in range(3):
        assert len(describe(shell).members) == 2
        shell.advance_ms(4_000)
        beat(shell, "b", 3)
    assert [member.member_id for member in describe(shell).members] == ["b"]
    assert beat(shell, "a", 2).error_code == UnknownMemberId.code


def test_a_removal_that_cannot_be_written_is_not_tried_without_a_pause(shell: Shell) -> None:
    beat(shell, "a", rebalance_timeout_ms=0)
    beat(shell, "b")
    beat(shell, "a", 2)
    shell.append_error = NotEnoughReplicas()
    shell.advance_ms(10_000)
    assert len(describe(shell).members) == 2
    shell.append_error = None
    shell.advance_ms(1_000)
    assert [member.member_id for member in describe(shell).members] == ["b"]


def test_settings_of_a_group(shell: Shell) -> None:
    overrides = GroupOverrides(session_timeout_ms=6_000, heartbeat_interval_ms=2_000)
    shell.coordinator.override_settings({GROUP: overrides})
    assert beat(shell, "a").heartbeat_interval_ms == 2_000
    assert beat(shell, "b", group_id="else").heartbeat_interval_ms == 5_000
    shell.advance_ms(6_000)
    assert describe(shell).group_state == "Empty"
    assert describe(shell, "else").group_state == "Stable"


def test_targets_are_not_computed_more_often_than_asked_for() -> None:
    shell = Shell(GroupSettings(), image=image_of({"topic": 4}))
    beat(shell, "a")
    joined = beat(shell, "b")
    assert (joined.member_epoch, describe(shell).group_state) == (2, "Assigning")
    shell.advance_ms(999)
    assert beat(shell, "b", 2).member_epoch == 2
    shell.advance_ms(1)
    assert beat(shell, "b", 2).member_epoch == 3
    assert describe(shell).group_state == "Reconciling"


def test_topics_that_grow_come_and_go(shell: Shell) -> None:
    beat(shell, "a", topics=("topic", "later"))
    shell.set_topics(image_of({"topic": 5}))
    grown = beat(shell, "a", 2)
    assert (grown.member_epoch, assigned(grown)) == (3, {TOPIC: [0, 1, 2, 3, 4]})
    shell.set_topics(image_of({"topic": 5, "later": 1, "unrelated": 1}))
    assert assigned(beat(shell, "a", 3)) == {TOPIC: [0, 1, 2, 3, 4], topic_id("later"): [0]}
    shell.set_topics(image_of({"later": 1}))
    gone = beat(shell, "a", 4, owned={topic_id("later"): [0]})
    assert (gone.member_epoch, assigned(gone)) == (5, {topic_id("later"): [0]})
    # What does not concern the group does not move it.
    shell.set_topics(image_of({"later": 1, "unrelated": 3}))
    assert beat(shell, "a", 5).member_epoch == 5


def test_a_member_that_changes_its_mind(shell: Shell) -> None:
    beat(shell, "a", topics=("topic", "other"))
    changed = beat(shell, "a", 2, topics=("other",), owned={})
    assert (changed.member_epoch, assigned(changed)) == (3, {topic_id("other"): [0, 1]})
    # It still has to give up what it does not read any more.
    beat(shell, "b", topics=("topic",))
    assert target_of(shell, "b") == {"topic": [0, 1, 2, 3]}


@pytest.mark.parametrize("assignor", ["range", "uniform"])
def test_most_members_choose_the_assignor(shell: Shell, assignor: str) -> None:
    beat(shell, "a", assignor=assignor)
    beat(shell, "b", assignor=assignor)
    beat(shell, "c")
    assert describe(shell).assignor_name == assignor


def test_ranges_are_runs_of_partitions(shell: Shell) -> None:
    beat(shell, "b", assignor="range", topics=("topic", "other"))
    beat(shell, "a", assignor="range", topics=("topic", "other"))
    assert target_of(shell, "a") == {"topic": [0, 1], "other": [0]}
    assert target_of(shell, "b") == {"topic": [2, 3], "other": [1]}
    # Static members come first, by their instance.
    beat(shell, "z", assignor="range", instance_id="i", topics=("topic",))
    assert target_of(shell, "z") == {"topic": [0, 1]}
    assert target_of(shell, "a") == {"topic": [2], "other": [0]}


def test_a_static_member_leaves_for_a_while(shell: Shell) -> None:
    owned = assigned(beat(shell, "a", instance_id="i"))
    beat(shell, "b")
    assert beat(shell, "c", instance_id="i").error_code == UnreleasedInstanceId.code
    away = beat(shell, "a", -2, instance_id="i")
    assert (away.error_code, away.member_epoch) == (NONE, -2)
    back = beat(shell, "c", instance_id="i")
    # Its epoch is that of the group at once, with what it is to keep.
    assert (back.error_code, back.member_epoch) == (NONE, 3)
    kept = assigned(back)
    assert kept is not None
    assert owned is not None
    assert set(kept[TOPIC]) < set(owned[TOPIC])
    assert beat(shell, "a", 2, instance_id="i").error_code == FencedInstanceId.code
    assert beat(shell, "x", 2, instance_id="unknown").error_code == UnknownMemberId.code
    assert assigned(beat(shell, "b", 3)) is not None


def test_a_static_member_that_stays_away_is_removed(shell: Shell) -> None:
    beat(shell, "a", instance_id="i")
    beat(shell, "a", -2, instance_id="i")
    assert len(describe(shell).members) == 1
    shell.advance_ms(45_000)
    assert describe(shell).members == []
    assert beat(shell, "b", instance_id="i").error_code == NONE


def test_a_static_member_that_was_to_give_partitions_up_may_stay_away_for_its_session(shell: Shell) -> None:
    beat(shell, "a", instance_id="i", rebalance_timeout_ms=5_000)
    beat(shell, "b")
    beat(shell, "a", 2, instance_id="i")
    beat(shell, "a", -2, instance_id="i")
    shell.advance_ms(6_000)
    assert {each.member_id for each in describe(shell).members} == {"a", "b"}


def test_everything_is_there_after_a_failover(shell: Shell) -> None:
    beat(shell, "a", instance_id="i", rack_id="rack", assignor="range")
    beat(shell, "b", regex="t.*", topics=("other",))
    shell.advance_ms(1_000)
    beat(shell, "b", 3)
    beat(shell, "a", 2, instance_id="i")
    before = describe(shell)
    other = shell.reloaded()
    assert describe(other) == before
    # Those who are not heard of go there, too.
    other.advance_ms(45_000)
    assert describe(other).group_state == "Empty"
    assert delete_groups(other, GROUP) == {GROUP: NONE}
    last = other.reloaded()
    assert last.coordinator.list_groups() == []
    assert describe(last).error_code == GroupIdNotFound.code


def test_what_cannot_be_written_has_not_happened(shell: Shell) -> None:
    shell.append_error = NotEnoughReplicas()
    assert beat(shell, "a").error_code == CoordinatorNotAvailable.code
    assert describe(shell).error_code == GroupIdNotFound.code
    shell.append_error = None
    assert beat(shell, "a").member_epoch == 2
    shell.append_error = NotEnoughReplicas()
    assert beat(shell, "a", -1).error_code == CoordinatorNotAvailable.code
    assert len(describe(shell).members) == 1
    shell.append_error = None
    shell.advance_ms(45_000)
    assert describe(shell).members == []


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"group_id": ""}, InvalidRequest.code),
        ({"group_id": " "}, InvalidRequest.code),
        ({"member_id": ""}, InvalidRequest.code),
        ({"member_id": "", "version": 0, "member_epoch": 1}, InvalidRequest.code),
        ({"instance_id": ""}, InvalidRequest.code),
        ({"rack_id": ""}, InvalidRequest.code),
        ({"rebalance_timeout_ms": -1}, InvalidRequest.code),
        ({"owned": None}, InvalidRequest.code),
        ({"owned": {TOPIC: [0]}}, InvalidRequest.code),
        ({"topics": None}, InvalidRequest.code),
        ({"member_epoch": -2}, InvalidRequest.code),
        ({"member_epoch": -3}, InvalidRequest.code),
        ({"assignor": "sticky"}, UnsupportedAssignor.code),
        ({"regex": "(", "topics": ()}, InvalidRegularExpression.code),
        ({"member_epoch": 1, "group_id": "unknown"}, GroupIdNotFound.code),
        ({"member_epoch": -1, "group_id": "unknown"}, GroupIdNotFound.code),
        ({"member_epoch": 1}, UnknownMemberId.code),
        ({"member_epoch": -1}, UnknownMemberId.code),
    ],
)
def test_bad_heartbeats(shell: Shell, options: dict[str, object], code: int) -> None:
    beat(shell, "known")
    request = {"member_id": "a", **options}
    response = beat(shell, **request)  # type: ignore[arg-type]
    assert response.error_code == code
    assert response.error_message
    assert [member.member_id for member in describe(shell).members] == ["known"]


def test_a_member_of_version_0_is_given_its_id(shell: Shell) -> None:
    joined = beat(shell, "", version=0)
    assert joined.error_code == NONE
    assert joined.member_id
    assert beat(shell, joined.member_id, 2, version=0).error_code == NONE


def test_a_full_group() -> None:
    shell = Shell(GroupSettings(consumer_max_size=1), image=image_of({"topic": 1}))
    assert beat(shell, "a").error_code == NONE
    assert beat(shell, "b").error_code == GroupMaxSizeReached.code
    assert beat(shell, "a", 2).error_code == NONE


def test_commits_of_members(shell: Shell) -> None:
    beat(shell, "a")

    def committed(epoch: int, *, member_id: str = "a", partition: int = 0, version: int = 9) -> int:
        caller = commit(
            shell, 7, member_id=member_id, generation_id=epoch, partition=partition, version=version
        )
        return commit_code(shell, caller)

    assert committed(2) == NONE
    assert fetch(shell)[:2] == (NONE, 7)
    assert committed(3) == StaleMemberEpoch.code
    assert committed(2, version=8) == UnsupportedVersion.code
    assert committed(2, member_id="x") == UnknownMemberId.code
    assert committed(-1, member_id="") == UnknownMemberId.code
    beat(shell, "b")
    kept = assigned(beat(shell, "a", 2))
    assert kept is not None
    assert beat(shell, "a", 2, owned=kept).member_epoch == 3
    beat(shell, "b", 3)
    lost = next(each for each in range(4) if each not in kept[TOPIC])
    # Its last epoch is good for what it owned then and still does.
    assert committed(2, partition=kept[TOPIC][0]) == NONE
    assert committed(2, partition=lost) == StaleMemberEpoch.code
    assert committed(0, partition=kept[TOPIC][0]) == StaleMemberEpoch.code
    # Transactional producers are told in the words of classic groups.
    assert txn_commit(shell, 9, 1, member_id="a", generation_id=4) == IllegalGeneration.code
    assert txn_commit(shell, 9, 1, member_id="a", generation_id=0) == IllegalGeneration.code
    assert txn_commit(shell, 9, 1, member_id="a", generation_id=3) == NONE
    assert txn_commit(shell, 9, 2) == NONE


def test_fetching_offsets_as_a_member(shell: Shell) -> None:
    beat(shell, "a")
    commit(shell, 7, member_id="a", generation_id=2)
    assert fetch(shell, member_id="a", member_epoch=2)[:2] == (NONE, 7)
    for member_id, epoch, error in (
        ("a", 1, StaleMemberEpoch),
        ("a", 3, StaleMemberEpoch),
        ("x", 2, UnknownMemberId),
        ("a", -1, StaleMemberEpoch),
    ):
        with pytest.raises(error):
            fetch(shell, member_id=member_id, member_epoch=epoch)


def test_an_empty_group_takes_commits_of_anybody(shell: Shell) -> None:
    beat(shell, "a")
    assert delete_groups(shell, GROUP) == {GROUP: NonEmptyGroup.code}
    assert commit_code(shell, commit(shell, 7, member_id="a", generation_id=2)) == NONE
    assert delete_offsets(shell, ("topic", 0)) == (NONE, [GroupSubscribedToTopic.code])
    beat(shell, "a", -1)
    assert commit_code(shell, commit(shell, 8)) == NONE
    assert commit_code(shell, commit(shell, 8, generation_id=2)) == UnknownMemberId.code
    assert delete_offsets(shell, ("topic", 0)) == (NONE, [NONE])
    assert fetch_all(shell) == {}


def test_offsets_expire_unless_they_are_read(shell: Shell) -> None:
    shell.coordinator.override_settings({GROUP: GroupOverrides(session_timeout_ms=2 * 60 * 60 * 1_000)})
    beat(shell, "a")
    commit(shell, 7, member_id="a", generation_id=2)
    commit(shell, 7, member_id="a", generation_id=2, topic="other")
    day_ms = 24 * 60 * 60 * 1_000
    for _ in range(8 * 24):
        shell.advance_ms(60 * 60 * 1_000)
        beat(shell, "a", 2)
    assert fetch_all(shell) == {("topic", 0): 7}
    beat(shell, "a", -1)
    shell.advance_ms(day_ms)
    assert shell.coordinator.list_groups() == []
    assert shell.reloaded().coordinator.list_groups() == []


def test_requests_of_the_classic_protocol_from_others(shell: Shell) -> None:
    beat(shell, "a")
    assert heartbeat(shell, "a", 2) == UnknownMemberId.code
    assert heartbeat(shell, "x", 2) == UnknownMemberId.code
    assert [each.error_code for each in leave(shell, ("a", None), ("x", None)).members] == [
        UnknownMemberId.code,
        UnknownMemberId.code,
    ]
    [described] = shell.coordinator.describe_groups([GROUP], version=6)
    assert (described.error_code, described.group_state) == (GroupIdNotFound.code, "Dead")
    assert described.error_message == f"Group {GROUP} is not a classic group."
    [described] = shell.coordinator.describe_groups([GROUP], version=5)
    assert (described.error_code, described.group_state) == (NONE, "Dead")


def test_a_classic_group_is_no_consumer_group() -> None:
    shell = Shell(SETTINGS)
    commit(shell, 1)
    group = describe(shell)
    assert (group.error_code, group.error_message) == (
        GroupIdNotFound.code,
        f"Group {GROUP} is not a consumer group.",
    )
    assert describe(shell, "none").error_message == "Group none not found."
    assert beat(shell, "a", 2).error_code == GroupIdNotFound.code
