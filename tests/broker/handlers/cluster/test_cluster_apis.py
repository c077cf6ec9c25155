"""ACLs without an authorizer, the quorum, features and the list of what has settings, against a running broker."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas import errors
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.describe_acls_request import DescribeAclsRequest
from barnabas.protocol.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from barnabas.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from barnabas.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.config_requests import CLIENT_METRICS, GROUP, SET, incremental
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.broker.running import RunningBroker

UPGRADE, SAFE_DOWNGRADE = 1, 2
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8


@pytest.mark.parametrize("version", range(4))
def test_there_are_no_acls_without_an_authorizer(client: RawClient, version: int) -> None:
    disabled = errors.SecurityDisabled.code
    any_acl: dict[str, Any] = {"resource_type_filter": 1, "operation": 1, "permission_type": 1}
    described = client.ask("DescribeAcls", version, DescribeAclsRequest(**any_acl))
    assert (described.error_code, described.error_message, described.resources) == (
        disabled,
        "No Authorizer is configured on the broker",
        [],
    )
    refusal = (disabled, "No Authorizer is configured.")
    creations = [
        AclCreation(resource_type=2, resource_name=name, principal="User:ann", operation=3, permission_type=3)
        for name in "ab"
    ]
    created = client.ask("CreateAcls", version, CreateAclsRequest(creations=creations))
    assert [(each.error_code, each.error_message) for each in created.results] == [refusal, refusal]
    deleted = client.ask("DeleteAcls", version, DeleteAclsRequest(filters=[DeleteAclsFilter(**any_acl)]))
    assert [(each.error_code, each.error_message) for each in deleted.filter_results] == [refusal]


def quorum_request(topic: str, partition: int) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[TopicData(topic_name=topic, partitions=[PartitionData(partition_index=partition)])]
    )


@pytest.mark.parametrize("version", range(3))
def test_the_controller_is_a_quorum_of_one(broker: RunningBroker, client: RawClient, version: int) -> None:
    request = quorum_request("__cluster_metadata", 0)
    answer = client.ask("DescribeQuorum", version, request)
    [partition] = answer.topics[0].partitions
    image = broker.server.broker.image
    assert (answer.error_code, partition.error_code) == (0, 0)
    assert (partition.leader_id, partition.leader_epoch) == (image.controller_id, image.controller_epoch)
    [voter] = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (image.controller_id, partition.high_watermark)
    assert partition.observers == []
    if version >= 2:
        [node] = answer.nodes
        assert [(each.host, each.port) for each in node.listeners] == [("127.0.0.1", broker.port)]
    create_topic(client, f"change-{version}")
    [later] = client.ask("DescribeQuorum", version, request).topics[0].partitions
    assert later.high_watermark > partition.high_watermark


@pytest.mark.parametrize(("topic", "partition"), [("other", 0), ("__cluster_metadata", 1)])
def test_nothing_else_has_a_quorum(client: RawClient, topic: str, partition: int) -> None:
    answer = client.ask("DescribeQuorum", 2, quorum_request(topic, partition))
    [found] = answer.topics[0].partitions
    assert (answer.error_code, found.error_code) == (0, errors.UnknownTopicOrPartition.code)


def test_the_release_is_among_the_features(client: RawClient) -> None:
    for version in (3, 4):
        answer = client.ask(
            "ApiVersions", version, ApiVersionsRequest(client_software_name="a", client_software_version="1")
        )
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        finalized = {each.name: each.max_version_level for each in answer.finalized_features}
        assert supported["metadata.version"] == (7, 30)
        assert finalized["metadata.version"] == 30
        assert answer.finalized_features_epoch >= 0


def update(
    client: RawClient, *updates: tuple[str, int, int], version: int = 2
) -> tuple[int, str | None, list[str]]:
    request = UpdateFeaturesRequest(
        timeout_ms=30_000,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
    )
    answer = client.ask("UpdateFeatures", version, request)
    return answer.error_code, answer.error_message, [each.feature for each in answer.results]


def test_features_stay_at_their_highest_level(client: RawClient) -> None:
    assert update(client, ("group.version", 1, UPGRADE)) == (0, None, [])
    assert update(client, ("group.version", 1, UPGRADE), version=1) == (0, None, ["group.version"])
    code, message, _ = update(client, ("group.version", 0, SAFE_DOWNGRADE))
    assert code == errors.InvalidUpdateVersion.code
    assert str(message).startswith(
        "The update failed for all features since the following feature had an error: Invalid update version 0 for"
        " feature group.version. Can't downgrade the version of this feature."
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("metadata.version", 99, UPGRADE), "Local controller {} only supports versions 7-30"),
        (("nope", 1, UPGRADE), "Local controller {} does not support this feature."),
        (("nope", 0, UPGRADE), "Feature nope not found."),
        (("group.version", -1, UPGRADE), "A feature version cannot be less than 0."),
        (("group.version", 1, 7), "The controller does not support the given upgrade type."),
        (
            ("group.version", 0, UPGRADE),
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe",
        ),
    ],
)
def test_updates_of_features_that_are_refused(
    broker: RunningBroker, client: RawClient, change: tuple[str, int, int], reason: str
) -> None:
    name, level, _ = change
    expected = (
        "The update failed for all features since the following feature had an error: Invalid update version"
        f" {level} for feature {name}. {reason.format(broker.server.broker.image.controller_id)}"
    )
    code = errors.InvalidUpdateVersion.code
    found, message, results = update(client, ("transaction.version", 2, UPGRADE), change)
    assert (found, results) == (code, [])
    assert str(message).startswith(expected)


def test_what_has_settings_is_listed(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "listed")
    assert incremental(client, CLIENT_METRICS, "watch", ("metrics", SET, "*"))[0] == 0
    assert incremental(client, GROUP, "readers", ("consumer.session.timeout.ms", SET, "50000"))[0] == 0

    def listed(*types: int, version: int = 1) -> set[tuple[int, str]]:
        answer = client.ask(
            "ListConfigResources", version, ListConfigResourcesRequest(resource_types=list(types))
        )
        assert answer.error_code == 0
        return {(each.resource_type, each.resource_name) for each in answer.config_resources}

    me = str(broker.server.broker.replicas.broker_id)
    assert listed(version=0) == {(CLIENT_METRICS, "watch")}
    assert listed(GROUP) == {(GROUP, "readers")}
    assert listed(BROKER, BROKER_LOGGER) == {(BROKER, me), (BROKER_LOGGER, me)}
    assert (TOPIC, "listed") in listed(TOPIC)
    assert listed() >= {(CLIENT_METRICS, "watch"), (GROUP, "readers"), (BROKER, me), (TOPIC, "listed")}
    for types in ([99], [TOPIC, 0]):
        answer = client.ask("ListConfigResources", 1, ListConfigResourcesRequest(resource_types=types))
        assert (answer.error_code, answer.config_resources) == (errors.UnsupportedVersion.code, [])
