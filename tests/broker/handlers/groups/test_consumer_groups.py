"""Consumer groups of the new protocol on a running broker: each API in each version, restarts, settings, metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.coordinators.group_runtime import OFFSETS_TOPIC, group_settings
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.definition import InvalidSetting
from barnabas.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    GroupIdNotFound,
    InvalidConfig,
    InvalidGroupId,
    InvalidRegularExpression,
    InvalidRequest,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from barnabas.model import TimestampMs, TopicPartition
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.records.builder import BatchBuilder
from barnabas.records.policy import AppendOrigin
from tests.broker.config_requests import DELETE, GROUP, SET, incremental
from tests.broker.config_requests import describe as describe_configs
from tests.broker.group_requests import (
    commit as commit_offsets,
)
from tests.broker.group_requests import (
    delete_groups,
    describe,
    listed,
    wait_for_coordinator,
)
from tests.broker.metrics.test_broker_metrics import metrics
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.broker.running import RunningBroker
from tests.waiting import wait_until

FAST = {
    "offsets.topic.num.partitions": "3",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "50",
    "group.consumer.assignment.interval.ms": "0",
    # However slow the machine is, nobody is to be given up.
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
    "barnabas.metrics.port": "0",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("broker"), FAST) as running:
        with running.client() as client:
            create_topic(client, "topic", partitions=4)
            for number in range(20):
                wait_for_coordinator(client, f"group-{number}")
        yield running


def beat(
    client: RawClient, group_id: str, member_id: str, epoch: int = 0, /, *, version: int = 1, **fields: Any
) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch)
    if epoch == 0:
        request.rebalance_timeout_ms = 60_000
        request.topic_partitions = []
        request.subscribed_topic_names = ["topic"]
    for name, value in fields.items():
        setattr(request, name, value)
    return client.ask("ConsumerGroupHeartbeat", version, request)


def commit(client: RawClient, group_id: str, member_id: str = "", epoch: int = -1, version: int = 9) -> int:
    joined = SimpleNamespace(member_id=member_id, generation_id=epoch)
    codes = commit_offsets(client, group_id, {("topic", 0): 5}, joined=joined, version=version)
    return codes["topic", 0]


def describe_consumer(client: RawClient, group_id: str, *, version: int = 1, operations: bool = False) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=operations)
    [group] = client.ask("ConsumerGroupDescribe", version, request).groups
    return group


@pytest.mark.parametrize("version", [0, 1])
def test_the_life_of_a_member(client: RawClient, version: int) -> None:
    group_id = f"life-{version}"
    joined = beat(client, group_id, "" if version == 0 else "a", version=version)
    assert (joined.error_code, joined.error_message, joined.member_epoch) == (NONE, None, 2)
    assert joined.heartbeat_interval_ms == 50
    [topic] = joined.assignment.topic_partitions
    assert topic.partitions == [0, 1, 2, 3]
    member_id = joined.member_id
    assert beat(client, group_id, member_id, 2, version=version).assignment is None
    group = describe_consumer(client, group_id, version=version, operations=True)
    assert (group.error_code, group.group_state, group.group_epoch) == (NONE, "Stable", 2)
    assert group.authorized_operations == 0b1101_0100_1000
    [member] = group.members
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
    assert member.member_type == (1 if version >= 1 else -1)
    [owned] = member.assignment.topic_partitions
    assert (owned.topic_name, owned.topic_id, owned.partitions) == ("topic", topic.topic_id, [0, 1, 2, 3])
    assert describe(client, group_id, version=6).error_code == GroupIdNotFound.code
    assert describe(client, group_id, version=5).group_state == "Dead"
    assert listed(client)[group_id] == "Stable"
    assert delete_groups(client, group_id) == {group_id: NonEmptyGroup.code}
    assert beat(client, group_id, member_id, -1, version=version).member_epoch == -1
    assert describe_consumer(client, group_id).group_state == "Empty"
    assert delete_groups(client, group_id) == {group_id: NONE}
    assert describe_consumer(client, group_id).error_code == GroupIdNotFound.code


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("epoch", "fields", "code"),
    [
        (0, {"group_id": ""}, InvalidRequest.code),
        (0, {"rack_id": ""}, InvalidRequest.code),
        (0, {"instance_id": ""}, InvalidRequest.code),
        (0, {"rebalance_timeout_ms": -1}, InvalidRequest.code),
        (0, {"topic_partitions": None}, InvalidRequest.code),
        (0, {"subscribed_topic_names": None}, InvalidRequest.code),
        (0, {"server_assignor": "none"}, UnsupportedAssignor.code),
        (-2, {}, InvalidRequest.code),
        (-7, {}, InvalidRequest.code),
        (1, {"member_id": ""}, InvalidRequest.code),
        (1, {}, UnknownMemberId.code),
        (-1, {}, UnknownMemberId.code),
        (1, {"group_id": "no such group"}, GroupIdNotFound.code),
        (3, {"member_id": "known"}, FencedMemberEpoch.code),
    ],
)
def test_bad_heartbeats(
    client: RawClient, version: int, epoch: int, fields: dict[str, Any], code: int
) -> None:
    beat(client, "bad", "known")
    response = beat(client, "bad", "a", epoch, version=version, **fields)
    assert response.error_code == code
    assert response.error_message


def test_a_bad_expression(client: RawClient) -> None:
    response = beat(client, "bad", "a", subscribed_topic_regex="(")
    assert response.error_code == InvalidRegularExpression.code
    assert "SubscribedTopicRegex `(` is not a valid regular expression" in response.error_message


def test_a_description_of_nothing(client: RawClient) -> None:
    for version in (0, 1):
        assert describe_consumer(client, "", version=version).error_code == InvalidGroupId.code
        unknown = describe_consumer(client, "nothing", version=version, operations=True)
        assert (unknown.error_code, unknown.error_message) == (
            GroupIdNotFound.code,
            "Group nothing not found.",
        )
        assert unknown.authorized_operations == -(2**31)


def test_members_follow_topics(client: RawClient) -> None:
    create_topic(client, "grows", partitions=1)
    beat(client, "follows", "a", subscribed_topic_names=["grows"])
    beat(client, "matches", "b", subscribed_topic_names=None, subscribed_topic_regex="gro.*")

    def owned(group_id: str) -> int:
        [member] = describe_consumer(client, group_id).members
        beat(client, group_id, member.member_id, member.member_epoch)
        return sum(len(topic.partitions) for topic in member.assignment.topic_partitions)

    wait_until(lambda: owned("follows") == 1 and owned("matches") == 1)
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="grows", count=3, assignments=None)], timeout_ms=60_000
    )
    assert client.ask("CreatePartitions", 3, request).results[0].error_code == NONE
    wait_until(lambda: owned("follows") == 3 and owned("matches") == 3)


@pytest.mark.parametrize("version", [8, 9])
def test_offsets_with_the_epoch_of_a_member(client: RawClient, version: int) -> None:
    group_id = f"offsets-{version}"
    beat(client, group_id, "a")
    code = commit(client, group_id, "a", 2, version)
    assert code == (NONE if version >= 9 else UnsupportedVersion.code)
    assert commit(client, group_id, "a", 3) == StaleMemberEpoch.code
    assert commit(client, group_id, "x", 2) == UnknownMemberId.code
    assert commit(client, group_id) == UnknownMemberId.code

    def fetched(member_id: str | None, epoch: int) -> int:
        asked = OffsetFetchRequestGroup(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            topics=[OffsetFetchRequestTopics(name="topic", partition_indexes=[0])],
        )
        [group] = client.ask("OffsetFetch", 9, OffsetFetchRequest(groups=[asked])).groups
        assert isinstance(group.error_code, int)
        return group.error_code

    assert fetched(None, -1) == NONE
    assert fetched("a", 2) == NONE
    assert fetched("a", 7) == StaleMemberEpoch.code
    assert fetched("x", 1) == UnknownMemberId.code


def test_features(client: RawClient) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    for version in (3, 4):
        response = client.ask("ApiVersions", version, request)
        levels = {each.name: each.max_version_level for each in response.finalized_features}
        assert levels["group.version"] == 1
        assert response.finalized_features_epoch >= 0
        ranges = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
        assert ranges.get("group.version") == ((0, 1) if version >= 4 else None)


def test_metrics_of_groups(broker: RunningBroker, client: RawClient) -> None:
    before = metrics(broker)
    beat(client, "counted", "a")
    assert commit(client, "counted", "a", 2) == NONE
    after = metrics(broker)
    coordinator = "kafka_server_group_coordinator_metrics_"

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert grown(f'{coordinator}group_count{{protocol="consumer"}}') == 1
    assert grown(f'{coordinator}consumer_group_count{{state="stable"}}') == 1
    assert grown(f"{coordinator}offset_commit_total") == 1
    assert grown(f"{coordinator}consumer_group_rebalance_total") == 1
    assert grown("kafka_coordinator_group_groupmetadatamanager_numoffsets") == 1
    assert grown("kafka_coordinator_group_groupmetadatamanager_numgroupsstable") == 0


def test_settings_of_a_group(tmp_path: Path) -> None:
    name, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

    def altered(client: RawClient, setting: str, value: str) -> int:
        code: int = incremental(client, GROUP, "own/group", (setting, SET, value))[0]
        return code

    with RunningBroker(tmp_path, FAST) as running:
        with running.client() as client:
            create_topic(client, "topic", partitions=4)
            wait_for_coordinator(client, "own/group")
            wait_for_coordinator(client, "other")
            assert altered(client, name, "50000") == NONE
            assert altered(client, heartbeat, "200") == NONE
            for setting, value in (
                (name, "44999"),
                (name, "3600001"),
                (name, "long"),
                (heartbeat, "49"),
                (heartbeat, "15001"),
                ("consumer.assignment.interval.ms", "-1"),
                ("share.session.timeout.ms", "50000"),
            ):
                assert altered(client, setting, value) == InvalidConfig.code, (setting, value)
            entries = describe_configs(client, GROUP, "own/group", include_synonyms=True)
            assert (entries[name].value, entries[name].config_source) == ("50000", 8)
            assert [each.value for each in entries[name].synonyms] == ["50000", "3600000", "45000"]
            assert beat(client, "own/group", "a").heartbeat_interval_ms == 200
            assert beat(client, "other", "a").heartbeat_interval_ms == 50
        running.stop()
        running.start()
        with running.client() as client:
            wait_for_coordinator(client, "own/group")
            assert beat(client, "own/group", "a").heartbeat_interval_ms == 200
            assert incremental(client, GROUP, "own/group", (heartbeat, DELETE, None))[0] == NONE
            assert beat(client, "own/group", "a").heartbeat_interval_ms == 50


def test_groups_are_there_after_a_restart(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, FAST) as running:
        with running.client() as client:
            create_topic(client, "topic", partitions=4)
            wait_for_coordinator(client, "stays")
            beat(client, "stays", "a", instance_id="i", rack_id="r")
            beat(client, "stays", "b")
            before = describe_consumer(client, "stays")
            assert len(before.members) == 2
        running.stop()
        running.start()
        with running.client() as client:
            wait_for_coordinator(client, "stays")
            assert describe_consumer(client, "stays") == before
            assert beat(client, "stays", "b", 3).error_code == NONE


def test_a_record_that_makes_no_sense_does_not_keep_the_groups_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**FAST, "offsets.topic.num.partitions": "1"}
    with RunningBroker(tmp_path, settings) as running:
        with running.client() as client:
            create_topic(client, "topic", partitions=4)
            wait_for_coordinator(client, "good")
            beat(client, "good", "a")
        builder = BatchBuilder()
        for key, value in (
            (b"\x00\x05\x00\x01", b"\x00\x00"),
            (b"\x00\x01garbage", b"\x00\x04garbage"),
            (b"\x00\x03\x00\x04good", b"\x00\x09"),
            (b"", b""),
            (b"\x7f\x00later", b""),
        ):
            builder.append(TimestampMs(1), key, value)

        async def append() -> None:
            partition = running.server.broker.replicas.find(TopicPartition(OFFSETS_TOPIC, 0))
            assert partition is not None
            partition.append(builder.build(), -1, AppendOrigin.COORDINATOR)

        running.call(append)
        running.stop()
        with caplog.at_level(logging.ERROR):
            running.start()
            with running.client() as client:
                wait_for_coordinator(client, "good")
                assert describe_consumer(client, "good").group_state == "Stable"
        assert sum("is skipped" in record.message for record in caplog.records) == 4


def test_a_broker_that_does_not_speak_the_new_protocol(tmp_path: Path) -> None:
    settings = {"group.coordinator.rebalance.protocols": "classic"}
    with RunningBroker(tmp_path, settings) as running, running.client() as client:
        assert beat(client, "group", "a").error_code == UnsupportedVersion.code
        assert describe_consumer(client, "group").error_code == UnsupportedVersion.code


def test_before_there_is_a_coordinator(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as running, running.client() as client:
        waiting = {CoordinatorNotAvailable.code, CoordinatorLoadInProgress.code, 16}
        assert beat(client, "group", "a").error_code in waiting
        assert describe_consumer(client, "group").error_code in waiting


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group.consumer.session.timeout.ms", "44999"),
        ("group.consumer.session.timeout.ms", "60001"),
        ("group.consumer.heartbeat.interval.ms", "4999"),
        ("group.consumer.heartbeat.interval.ms", "15001"),
        ("group.consumer.migration.policy", "sideways"),
        ("group.coordinator.rebalance.protocols", "consumer"),
        ("group.coordinator.rebalance.protocols", "classic,morse"),
        ("group.consumer.max.size", "0"),
        ("group.consumer.assignors", "sticky"),
    ],
)
def test_settings_that_cannot_be(name: str, value: str) -> None:
    with pytest.raises(InvalidSetting, match=name):
        group_settings(BrokerConfig({name: value}))


def test_settings() -> None:
    package = "org.apache.kafka.coordinator.group.assignor"
    configured = {
        "group.consumer.assignors": f"{package}.RangeAssignor,uniform",
        "group.consumer.migration.policy": "Upgrade",
    }
    settings = group_settings(BrokerConfig(configured))
    assert settings.consumer_assignors == ("range", "uniform")
    assert (settings.can_upgrade, settings.can_downgrade) == (True, False)
    defaults = group_settings(BrokerConfig())
    assert defaults.consumer_assignors == ("uniform", "range")
    assert (defaults.can_upgrade, defaults.can_downgrade) == (True, True)
    assert defaults.rebalance_protocols == {"classic", "consumer", "streams"}
