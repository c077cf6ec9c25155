"""Groups on a running broker, request by request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.coordinators import loading as coordinator_loading
from barnabas.broker.coordinators.group_runtime import OFFSETS_TOPIC
from barnabas.broker.coordinators.group_shell import GroupShell
from barnabas.broker.coordinators.keys import partition_of_key
from barnabas.clock import ManualClock
from barnabas.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    NonEmptyGroup,
    NotCoordinator,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.primitives.java_hash import java_hash
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.join_group_response import JoinGroupResponse
from barnabas.protocol.messages.list_groups_request import ListGroupsRequest
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_commit_response import OffsetCommitResponse
from barnabas.protocol.messages.sync_group_request import SyncGroupRequest
from barnabas.protocol.requests import decode_response
from tests.broker.group_requests import (
    commit,
    delete_groups,
    delete_offsets,
    describe,
    fetch_offsets,
    find,
    heartbeat,
    join,
    join_alone,
    join_request,
    leave,
    listed,
    sync,
    wait_for_coordinator,
)
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.broker.replication.roles import change_replicas
from tests.broker.running import RunningBroker
from tests.waiting import wait_until

FEW_PARTITIONS = 3
SETTINGS = {
    "offsets.topic.num.partitions": str(FEW_PARTITIONS),
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
}
TOPIC = "topic"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        with running.client() as client:
            create_topic(client, TOPIC, partitions=2)
            wait_for_coordinator(client, "any")
            assert listed(client) == {}
        yield running


def topic_id(broker: RunningBroker, name: str = TOPIC) -> bytes:
    return broker.server.broker.image.topics[name].id


def receive_join(client: RawClient, version: int = 9) -> JoinGroupResponse:
    body = decode_response(api_for_name("JoinGroup"), version, client.receive_frame()).body
    assert isinstance(body, JoinGroupResponse)
    return body


def delete_topic(client: RawClient, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=60_000)
    [answer] = client.ask("DeleteTopics", 6, request).responses
    assert answer.error_code == NONE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", 0),
        ("abc", 96354),
        # Two units of UTF-16, and the text whose hash is the lowest of all.
        ("\U0001f600", 1772899),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_keys_have_javas_hash(key: str, value: int) -> None:
    assert java_hash(key) == value
    assert partition_of_key(key, 50) == (0 if value == -(2**31) else abs(value) % 50)


def test_a_coordinator_is_found_in_each_version(broker: RunningBroker, client: RawClient) -> None:
    wait_until(lambda: find(client, "id", key_type=1).error_code == NONE)
    for version in range(7):
        found = find(client, "group", version=version)
        assert (found.error_code, found.host, found.port) == (NONE, "127.0.0.1", broker.port), version
        assert found.node_id == broker.server.broker.replicas.broker_id
        if version >= 1:
            transaction = find(client, "id", version=version, key_type=1)
            assert (transaction.error_code, transaction.node_id) == (NONE, found.node_id)
            assert find(client, "id", version=version, key_type=2).error_code == InvalidRequest.code


@pytest.mark.parametrize("version", range(10))
def test_the_life_of_a_member(client: RawClient, version: int) -> None:
    group_id = f"life-{version}"
    joined = join(client, group_id, version=version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (NONE, 1, "range")
    assert joined.leader == joined.member_id
    assert [member.member_id for member in joined.members] == [joined.member_id]
    synced = sync(client, group_id, joined, {joined.member_id: b"part"}, version=min(version, 5))
    assert (synced.error_code, synced.assignment) == (NONE, b"part")
    for heartbeat_version in range(5):
        assert heartbeat(client, group_id, joined, version=heartbeat_version) == NONE
    described = describe(client, group_id, version=min(version, 6), operations=True)
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert described.authorized_operations == (0b1101_0100_1000 if version >= 3 else -(2**31))
    [member] = described.members
    assert (member.client_id, member.client_host, member.member_assignment) == ("test", "/127.0.0.1", b"part")
    assert listed(client, version=min(version, 5))[group_id] == ("Stable" if version >= 4 else "")
    assert leave(client, group_id, joined.member_id, version=min(version, 5)) == NONE
    assert heartbeat(client, group_id, joined) == UnknownMemberId.code
    assert describe(client, group_id).group_state == "Empty"
    assert delete_groups(client, group_id, version=min(version, 2)) == {group_id: NONE}
    assert group_id not in listed(client)


def test_a_second_member_has_the_first_join_again(broker: RunningBroker, client: RawClient) -> None:
    first = join_alone(client, "two")
    with broker.client("other") as other:
        other_id = other.ask("JoinGroup", 9, join_request("two")).member_id
        other.send("JoinGroup", 9, join_request("two", other_id))
        wait_until(lambda: heartbeat(client, "two", first) == RebalanceInProgress.code)
        again = client.ask("JoinGroup", 9, join_request("two", first.member_id))
        second = receive_join(other)
        assert (again.error_code, second.error_code) == (NONE, NONE)
        assert again.generation_id == second.generation_id == 2
        assert again.leader == second.leader == first.member_id
        assert {each.member_id for each in again.members} == {first.member_id, other_id}
        assert second.members == []
        parts = {first.member_id: b"one", other_id: b"two"}
        assert sync(client, "two", again, parts).assignment == b"one"
        assert sync(other, "two", second).assignment == b"two"


def test_a_member_whose_connection_ends_goes_when_its_session_does(
    broker: RunningBroker, client: RawClient
) -> None:
    with broker.client() as other:
        # Before version 4 one request is enough, and there is no session before its answer.
        joined = join(other, "gone", version=3, session_timeout_ms=100)
        assert joined.error_code == NONE
    wait_until(lambda: describe(client, "gone").group_state == "Empty")
    assert heartbeat(client, "gone", joined) == UnknownMemberId.code


def test_a_parked_join_whose_connection_ends_does_not_hold_the_group(
    broker: RunningBroker, client: RawClient
) -> None:
    first = join_alone(client, "parked")
    with broker.client() as other:
        other_id = other.ask("JoinGroup", 9, join_request("parked")).member_id
        other.send("JoinGroup", 9, join_request("parked", other_id, session_timeout_ms=100))
        wait_until(lambda: heartbeat(client, "parked", first) == RebalanceInProgress.code)
    again = client.ask("JoinGroup", 9, join_request("parked", first.member_id))
    assert {each.member_id for each in again.members} == {first.member_id, other_id}
    # Its session may already have ended.
    synced = sync(client, "parked", again, {first.member_id: b"mine"})
    assert synced.error_code in (NONE, RebalanceInProgress.code)
    wait_until(lambda: heartbeat(client, "parked", again) == RebalanceInProgress.code)
    alone = client.ask("JoinGroup", 9, join_request("parked", first.member_id))
    assert [each.member_id for each in alone.members] == [first.member_id]


def test_a_static_member_comes_back_to_its_assignment(client: RawClient) -> None:
    first = join_alone(client, "static", instance_id="one")
    again = client.ask("JoinGroup", 9, join_request("static", instance_id="one"))
    assert (again.error_code, again.generation_id, again.skip_assignment) == (NONE, 1, True)
    assert again.member_id != first.member_id
    assert sync(client, "static", again, instance_id="one").assignment == b"assigned"
    assert heartbeat(client, "static", first) == UnknownMemberId.code


def test_requests_without_a_group(client: RawClient) -> None:
    joined = JoinGroupResponse(member_id="member", generation_id=1)
    assert client.ask("JoinGroup", 9, join_request("", "member")).error_code == InvalidGroupId.code
    assert sync(client, "", joined).error_code == InvalidGroupId.code
    assert heartbeat(client, "", joined) == InvalidGroupId.code
    assert leave(client, "", "member") == InvalidGroupId.code
    assert delete_offsets(client, "", {TOPIC: [0]}) == InvalidGroupId.code
    # Who only keeps offsets may do without a name, as clients did long ago.
    assert commit(client, "", {(TOPIC, 0): 3}) == {(TOPIC, 0): NONE}
    assert fetch_offsets(client, "", {TOPIC: [0]}) == {(TOPIC, 0): 3}
    assert delete_groups(client, "") == {"": NONE}


def test_requests_of_nobody_we_know(client: RawClient) -> None:
    stranger = JoinGroupResponse(member_id="stranger", generation_id=1)
    assert client.ask("JoinGroup", 9, join_request("none", "stranger")).error_code == UnknownMemberId.code
    assert sync(client, "none", stranger).error_code == UnknownMemberId.code
    assert heartbeat(client, "none", stranger) == UnknownMemberId.code
    assert leave(client, "none", "stranger") == UnknownMemberId.code
    for version in range(1, 10):
        expected = GroupIdNotFound.code if version >= 9 else IllegalGeneration.code
        codes = commit(client, "none", {(TOPIC, 0): 1}, version=version, joined=stranger)
        assert codes == {(TOPIC, 0): expected}, version
    assert delete_offsets(client, "none", {TOPIC: [0]}) == GroupIdNotFound.code
    assert delete_groups(client, "none") == {"none": GroupIdNotFound.code}
    for version in range(7):
        described = describe(client, "none", version=version)
        assert described.group_state == "Dead"
        assert described.error_code == (GroupIdNotFound.code if version >= 6 else NONE)


def test_a_member_says_which_protocol_it_takes_for_the_groups(client: RawClient) -> None:
    joined = join(client, "protocol")
    request = SyncGroupRequest(group_id="protocol", generation_id=1, member_id=joined.member_id)
    assert client.ask("SyncGroup", 5, request).error_code == InconsistentGroupProtocol.code


@pytest.mark.parametrize("version", range(11))
def test_offsets_are_committed_and_fetched(broker: RunningBroker, client: RawClient, version: int) -> None:
    group_id = f"offsets-{version}"
    ids = {TOPIC: topic_id(broker)}
    offsets = {(TOPIC, 0): 5, (TOPIC, 1): 6}
    assert commit(client, group_id, offsets, version=version, topic_ids=ids) == dict.fromkeys(offsets, NONE)
    for fetch_version in range(11):
        found = fetch_offsets(client, group_id, {TOPIC: [1, 0, 7]}, version=fetch_version, topic_ids=ids)
        assert found == {(TOPIC, 1): 6, (TOPIC, 0): 5, (TOPIC, 7): -1}, fetch_version
        if fetch_version >= 2:
            every = fetch_offsets(client, group_id, None, version=fetch_version, topic_ids=ids)
            assert every == offsets, fetch_version
    assert describe(client, group_id).group_state == "Empty"


def test_partitions_that_there_are_not(broker: RunningBroker, client: RawClient) -> None:
    unknown = UnknownTopicOrPartition.code
    offsets = {(TOPIC, 0): 1, (TOPIC, 2): 1, ("nowhere", 0): 1}
    refused = {(TOPIC, 2): unknown, ("nowhere", 0): unknown}
    assert commit(client, "partly", offsets) == {(TOPIC, 0): NONE, **refused}
    assert commit(client, "partly", {("nowhere", 0): 1}) == {("nowhere", 0): unknown}
    ids = {TOPIC: topic_id(broker), "nowhere": b"\x01" * 16}
    by_id = {**refused, (TOPIC, 0): NONE, ("nowhere", 0): UnknownTopicId.code}
    assert commit(client, "partly", offsets, version=10, topic_ids=ids) == by_id
    asked = {TOPIC: [0], "nowhere": [0]}
    found = fetch_offsets(client, "partly", asked, version=10, topic_ids=ids)
    assert found == {(TOPIC, 0): 1, ("nowhere", 0): f"error {UnknownTopicId.code}"}
    deleted = delete_offsets(client, "partly", {TOPIC: [0, 2], "nowhere": [0]})
    assert deleted == {(TOPIC, 0): NONE, **refused}
    assert delete_offsets(client, "partly", {"nowhere": [0]}) == {("nowhere", 0): unknown}
    assert fetch_offsets(client, "partly", {TOPIC: [0]}) == {(TOPIC, 0): -1}


def test_metadata_has_a_bound(client: RawClient) -> None:
    codes = commit(client, "large", {(TOPIC, 0): 1}, metadata="m" * 4_097)
    assert codes == {(TOPIC, 0): OffsetMetadataTooLarge.code}
    assert commit(client, "large", {(TOPIC, 0): 1}, metadata="m" * 4_096) == {(TOPIC, 0): NONE}


def test_commits_of_members(client: RawClient) -> None:
    joined = join_alone(client, "members")
    assert commit(client, "members", {(TOPIC, 0): 9}, joined=joined) == {(TOPIC, 0): NONE}
    assert commit(client, "members", {(TOPIC, 0): 1}) == {(TOPIC, 0): UnknownMemberId.code}
    joined.generation_id += 1
    assert commit(client, "members", {(TOPIC, 0): 1}, joined=joined) == {(TOPIC, 0): IllegalGeneration.code}
    assert fetch_offsets(client, "members", {TOPIC: [0]}) == {(TOPIC, 0): 9}


def test_groups_of_several_coordinators_are_deleted_together(client: RawClient) -> None:
    names = [f"several-{number}" for number in range(3 * FEW_PARTITIONS)]
    assert len({partition_of_key(name, FEW_PARTITIONS) for name in names}) == FEW_PARTITIONS
    for name in names:
        assert commit(client, name, {(TOPIC, 0): 1}) == {(TOPIC, 0): NONE}
    join_alone(client, "busy")
    codes = delete_groups(client, "unknown", *names, "busy", names[0])
    assert list(codes.items()) == [
        ("unknown", GroupIdNotFound.code),
        *((name, NONE) for name in names),
        ("busy", NonEmptyGroup.code),
    ]
    assert not set(names) & set(listed(client))
    assert delete_groups(client) == {}


def test_groups_are_listed_by_state(client: RawClient) -> None:
    join_alone(client, "stable")
    commit(client, "empty", {(TOPIC, 0): 1})
    assert listed(client, states=("stable",)).get("stable") == "Stable"
    assert "empty" not in listed(client, states=("stable",))
    assert listed(client, states=("Empty",)).get("empty") == "Empty"


def test_a_topic_that_is_deleted_takes_its_offsets_along(client: RawClient) -> None:
    create_topic(client, "short-lived")
    commit(client, "forgets", {("short-lived", 0): 4, (TOPIC, 0): 5})
    delete_topic(client, "short-lived")
    assert fetch_offsets(client, "forgets", None) == {(TOPIC, 0): 5}


def test_while_a_partition_is_loaded(broker: RunningBroker, client: RawClient) -> None:
    joined = join_alone(client, "loading")
    create_topic(client, "passing")
    assert commit(client, "loading", {(TOPIC, 0): 8, ("passing", 0): 1}, joined=joined) == {
        (TOPIC, 0): NONE,
        ("passing", 0): NONE,
    }
    runtime = broker.server.broker.groups
    index = runtime.partition_of("loading")

    async def begin() -> GroupShell:
        # As if the partition had just come to this broker.
        before = runtime._shells[index]
        before.unload()
        shell = runtime._shells[index] = runtime._new_shell(before.partition)
        return shell

    shell = broker.call(begin)
    in_progress = CoordinatorLoadInProgress.code
    assert client.ask("JoinGroup", 9, join_request("loading")).error_code == in_progress
    assert sync(client, "loading", joined).error_code == in_progress
    assert heartbeat(client, "loading", joined) == NONE
    assert leave(client, "loading", joined.member_id) == in_progress
    assert commit(client, "loading", {(TOPIC, 0): 1}, joined=joined) == {(TOPIC, 0): in_progress}
    assert fetch_offsets(client, "loading", {TOPIC: [0]}) == in_progress
    assert fetch_offsets(client, "loading", {TOPIC: [0]}, version=1) == {(TOPIC, 0): f"error {in_progress}"}
    assert delete_offsets(client, "loading", {TOPIC: [0]}) == in_progress
    assert describe(client, "loading").error_code == in_progress
    assert delete_groups(client, "loading") == {"loading": in_progress}
    assert client.ask("ListGroups", 5, ListGroupsRequest()).error_code == in_progress
    delete_topic(client, "passing")
    broker.call(lambda: shell.load(1, broker.server.broker.background))
    assert heartbeat(client, "loading", joined) == NONE
    assert fetch_offsets(client, "loading", None) == {(TOPIC, 0): 8}
    assert describe(client, "loading").group_state == "Stable"


def test_a_log_that_fails_leaves_no_coordinator(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, SETTINGS) as broker, broker.client() as client:
        create_topic(client, TOPIC)
        wait_for_coordinator(client, "group")
        commit(client, "group", {(TOPIC, 0): 1})
        replicas = broker.server.broker.replicas
        partition = next(iter(broker.server.broker.groups)).partition.topic_partition

        async def fail() -> None:
            everywhere = [partition._replace(partition=index) for index in range(FEW_PARTITIONS)]
            replicas.take_offline(str(tmp_path), everywhere)

        broker.call(fail)
        code = NotCoordinator.code
        assert commit(client, "group", {(TOPIC, 0): 2}) == {(TOPIC, 0): code}
        assert fetch_offsets(client, "group", {TOPIC: [0]}) == code
        assert client.ask("JoinGroup", 9, join_request("group")).error_code == code
        assert listed(client) == {}


def test_before_there_is_a_topic_and_after(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, SETTINGS) as broker, broker.client() as client:
        create_topic(client, TOPIC)
        assert client.ask("JoinGroup", 9, join_request("group")).error_code == NotCoordinator.code
        assert fetch_offsets(client, "group", {TOPIC: [0]}) == NotCoordinator.code
        assert commit(client, "group", {(TOPIC, 0): 2}) == {(TOPIC, 0): NotCoordinator.code}
        assert listed(client) == {}
        wait_for_coordinator(client, "group")
        assert len(broker.server.broker.image.topics[OFFSETS_TOPIC].partitions) == FEW_PARTITIONS
        first = join_alone(client, "group")
        with broker.client() as other:
            member_id = other.ask("JoinGroup", 9, join_request("group")).member_id
            other.send("JoinGroup", 9, join_request("group", member_id))
            wait_until(lambda: heartbeat(client, "group", first) == RebalanceInProgress.code)
            delete_topic(client, OFFSETS_TOPIC)
            # Whoever waits is sent away.
            assert receive_join(other).error_code == NotCoordinator.code
        assert heartbeat(client, "group", first) == NotCoordinator.code
        wait_for_coordinator(client, "group")
        assert heartbeat(client, "group", first) == UnknownMemberId.code


@pytest.mark.parametrize("key_type", [0, 1])
@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_the_topic_of_the_coordinators_is_created_in_the_background(
    tmp_path: Path, version: int, key_type: int
) -> None:
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        missing = find(client, "key", version=version, key_type=key_type)
        assert (missing.error_code, missing.node_id, missing.host, missing.port) == (
            CoordinatorNotAvailable.code,
            -1,
            "",
            -1,
        )
        assert missing.error_message.startswith("The coordinator is not available.")
        wait_until(lambda: find(client, "key", version=version, key_type=key_type).error_code == NONE)


def test_a_topic_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    too_many = {"offsets.topic.replication.factor": "3"}
    with RunningBroker(tmp_path, too_many) as broker, broker.client() as client:
        for version in (0, 3, 6):
            assert find(client, "group", version=version).error_code == CoordinatorNotAvailable.code
        wait_until(lambda: "time(s)" in find(client, "group").error_message)
    lines = [record for record in caplog.messages if OFFSETS_TOPIC in record]
    assert len(lines) == 1
    assert "replication" in lines[0].lower()


@pytest.mark.parametrize("codec", ["0", "2"])
def test_groups_and_offsets_are_there_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    # So little is read at once that each batch is a read of its own, and so few records that a batch is several parts.
    monkeypatch.setattr(coordinator_loading, "RECORDS_AT_ONCE", 2)
    settings = {**SETTINGS, "offsets.load.buffer.size": "1", "offsets.topic.compression.codec": codec}
    running = RunningBroker(tmp_path, settings)
    with running as broker, broker.client() as client:
        create_topic(client, TOPIC, partitions=5)
        wait_for_coordinator(client, "group")
        joined = join_alone(client, "group", instance_id="one")
        for name in ("kept", "deleted"):
            wait_for_coordinator(client, name)
            for number in range(10):
                offsets = {(TOPIC, index): 10 * number + index for index in range(5)}
                assert commit(client, name, offsets) == dict.fromkeys(offsets, NONE)
        assert delete_groups(client, "deleted") == {"deleted": NONE}
    with running as broker, broker.client() as client:
        for name in ("group", "kept", "deleted"):
            wait_for_coordinator(client, name)
        assert listed(client) == {"group": "Stable", "kept": "Empty"}
        assert fetch_offsets(client, "kept", None) == offsets
        [member] = describe(client, "group").members
        assert (member.member_id, member.group_instance_id) == (joined.member_id, "one")
        assert member.member_assignment == b"assigned"
        assert heartbeat(client, "group", joined) == NONE


def test_offsets_and_empty_groups_expire(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {
        **SETTINGS,
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": "20",
    }
    with RunningBroker(tmp_path, settings, clock=clock) as broker, broker.client() as client:
        create_topic(client, TOPIC)
        wait_for_coordinator(client, "old")
        commit(client, "old", {(TOPIC, 0): 1})
        clock.advance_ms(59_999)
        wait_for_coordinator(client, "young")
        commit(client, "young", {(TOPIC, 0): 1})
        assert fetch_offsets(client, "old", None) == {(TOPIC, 0): 1}
        clock.advance_ms(1)
        wait_until(lambda: "old" not in listed(client))
        assert fetch_offsets(client, "old", None) == {}
        assert fetch_offsets(client, "young", None) == {(TOPIC, 0): 1}


def test_more_tombstones_than_a_batch_holds(tmp_path: Path) -> None:
    running = RunningBroker(tmp_path, {**SETTINGS, "message.max.bytes": "1000"})
    with running as broker, broker.client() as client:
        create_topic(client, TOPIC)
        create_topic(client, "wide", partitions=60)
        wait_for_coordinator(client, "group")
        commit(client, "group", {(TOPIC, 0): 1})
        for start in range(0, 60, 10):
            offsets = {("wide", index): index for index in range(start, start + 10)}
            assert commit(client, "group", offsets) == dict.fromkeys(offsets, NONE)
        delete_topic(client, "wide")
        assert fetch_offsets(client, "group", None) == {(TOPIC, 0): 1}
    with running as broker, broker.client() as client:
        wait_for_coordinator(client, "group")
        assert fetch_offsets(client, "group", None) == {(TOPIC, 0): 1}


@pytest.mark.parametrize("is_in_time", [True, False])
def test_a_commit_waits_for_the_replicas(tmp_path: Path, is_in_time: bool) -> None:
    timeout_ms = 600_000 if is_in_time else 50
    settings = {**SETTINGS, "offsets.commit.timeout.ms": str(timeout_ms), "offsets.topic.num.partitions": "1"}
    with RunningBroker(tmp_path, settings) as broker, broker.client() as client:
        create_topic(client, TOPIC)
        wait_for_coordinator(client, "group")
        [shell] = broker.server.broker.groups
        partition = shell.partition
        replicas = broker.server.broker.replicas

        async def add_a_replica_that_lags() -> None:
            change_replicas(replicas, partition, [replicas.broker_id, replicas.broker_id + 1])

        async def remove_it() -> None:
            change_replicas(replicas, partition, [replicas.broker_id])

        broker.call(add_a_replica_that_lags)
        with broker.client() as other:
            offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
            topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[offset])
            other.send("OffsetCommit", 9, OffsetCommitRequest(group_id="group", topics=[topic]))
            wait_until(lambda: partition.log is not None and partition.log.log_end_offset > 0)
            # The group and its offset are appended, and not committed.
            assert describe(client, "group").group_state == "Dead"
            assert fetch_offsets(client, "group", None) == {}
            if is_in_time:
                broker.call(remove_it)
            body = decode_response(api_for_name("OffsetCommit"), 9, other.receive_frame()).body
        assert isinstance(body, OffsetCommitResponse)
        [answer] = body.topics[0].partitions
        assert answer.error_code == (NONE if is_in_time else CoordinatorNotAvailable.code)
        if not is_in_time:
            assert fetch_offsets(client, "group", None) == {}
            # The record is still in the log. It counts as soon as the replicas have it.
            broker.call(remove_it)
        assert fetch_offsets(client, "group", None) == {(TOPIC, 0): 7}
        assert describe(client, "group").group_state == "Empty"
