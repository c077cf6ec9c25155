"""The same requests of administrators to Apache Kafka and to us get the same errors, in the same words.

Ours may say more behind Kafka's words. Both brokers are new, on one node with the same id.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest
from barnabas.protocol.messages.describe_acls_request import DescribeAclsRequest
from barnabas.protocol.messages.describe_cluster_request import DescribeClusterRequest
from barnabas.protocol.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from barnabas.protocol.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from barnabas.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from bench.kafka import ApacheKafka
from tests.broker.config_requests import describe_result, incremental
from tests.broker.group_requests import find
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.clients.broker_process import BrokerProcess
from tests.peers.kafka_peer import START_TIMEOUT_S, V4, PeerUnavailable, jars
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

ID: Final = 1
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND = 0, 1, 2
SETTINGS: Final = {
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
SHA_256, SHA_512 = 1, 2


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RawClient]]:
    """One of Apache Kafka and one of ours, with a topic `taken`."""
    try:
        jars(V4)
    except PeerUnavailable as why:
        pytest.skip(str(why))
    folder: Path = tmp_path_factory.mktemp("administrators")
    with (
        ApacheKafka(folder / "kafka", SETTINGS) as kafka,
        BrokerProcess(folder / "ours", {**SETTINGS, "broker.id": str(ID)}) as ours,
        kafka.client() as kafka_client,
        ours.client() as our_client,
    ):
        both = [kafka_client, our_client]
        for client in both:
            create_topic(client, "taken")
            create_topic(client, "a.b")
        yield both


def errors_in(answer: Any) -> list[tuple[int, str]]:
    """Every error of an answer with its message, in the order in which they stand."""
    found: list[tuple[int, str]] = []
    if isinstance(answer, list):
        for each in answer:
            found += errors_in(each)
    elif hasattr(answer, "__slots__"):
        if hasattr(answer, "error_code"):
            found.append((answer.error_code, getattr(answer, "error_message", None) or ""))
        for name in answer.__slots__:
            found += errors_in(getattr(answer, name))
    return found


def check_same(clients: list[RawClient], api_name: str, version: int, request: Message) -> None:
    kafkas, ours = (errors_in(client.ask(api_name, version, request)) for client in clients)
    assert [code for code, _ in ours] == [code for code, _ in kafkas], (request, kafkas, ours)
    for (_, theirs), (_, text) in zip(kafkas, ours, strict=True):
        assert text.startswith(theirs), request


@pytest.mark.parametrize("version", [0, 3, 4, 9, 12, 13])
def test_a_missing_topic_is_unknown_at_first(clients: list[RawClient], version: int) -> None:
    def ask(client: RawClient, name: str) -> Any:
        [topic] = client.ask(
            "Metadata", version, MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        ).topics
        return topic

    for name in (f"used-{version}", "bad name", "", "."):
        kafkas, ours = (ask(client, name) for client in clients)
        for answer in (kafkas, ours):
            assert (answer.error_code, answer.name) == (kafkas.error_code, name)
            assert (answer.partitions, answer.topic_id, answer.is_internal) == ([], bytes(16), False)
    wait_until(
        lambda: all(ask(client, f"used-{version}").error_code == 0 for client in clients),
        timeout_s=START_TIMEOUT_S,
    )


@pytest.mark.parametrize(("key_type", "version"), [(0, 3), (1, 6)])
def test_a_coordinator_is_not_available_at_first(
    clients: list[RawClient], key_type: int, version: int
) -> None:
    kafkas, ours = (find(client, "key", version=version, key_type=key_type) for client in clients)
    for answer in (kafkas, ours):
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (15, -1, "", -1)
    assert ours.error_message.startswith(kafkas.error_message or "")
    wait_until(
        lambda: all(
            find(client, "key", version=version, key_type=key_type).error_code == 0 for client in clients
        ),
        timeout_s=START_TIMEOUT_S,
    )


def new_topic(
    name: str = "new", partitions: int = 1, replication_factor: int = 1, **configs: str | None
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def assigned(*assignments: tuple[int, list[int]], partitions: int = -1) -> CreatableTopic:
    topic = new_topic(partitions=partitions, replication_factor=-1)
    topic.assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
        for index, replicas in assignments
    ]
    return topic


BAD_SETTINGS: Final = (
    {"retention_ms": "abc"},
    {"retention_ms": "-2"},
    {"retention_ms": None},
    {"flush_ms": ""},
    {"nope": "1"},
    {"cleanup_policy": "xyz"},
    {"cleanup_policy": "compact,xyz"},
    {"compression_type": "xyz"},
    {"compression_gzip_level": "10"},
    {"compression_lz4_level": "18"},
    {"compression_zstd_level": "23"},
    {"min_insync_replicas": "0"},
    {"min_cleanable_dirty_ratio": "1.5"},
    {"min_cleanable_dirty_ratio": "-1"},
    {"preallocate": "maybe"},
    {"segment_bytes": "99999999999"},
    {"message_timestamp_type": "x"},
    {"leader_replication_throttled_replicas": "x"},
    {"remote_storage_enable": "true"},
    {"min_compaction_lag_ms": "10", "max_compaction_lag_ms": "5"},
)


@pytest.mark.parametrize(
    "topic",
    [
        *(new_topic(name) for name in ("taken", "a_b", "", ".", "..", "x" * 250, "bad name", "ü", "a/b")),
        new_topic("__cluster_metadata"),
        new_topic(partitions=0),
        new_topic(partitions=-2),
        new_topic(partitions=20_000),
        new_topic(replication_factor=0),
        assigned((0, [ID]), (0, [ID])),
        assigned((1, [ID])),
        assigned((0, [])),
        assigned((0, [ID, ID])),
        assigned((0, [99])),
        assigned((0, [ID]), partitions=1),
        *(new_topic(**each) for each in BAD_SETTINGS),
    ],
    ids=str,
)
def test_topics_that_are_refused(clients: list[RawClient], topic: CreatableTopic) -> None:
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    check_same(clients, "CreateTopics", 7, request)
    assert errors_in(clients[1].ask("CreateTopics", 7, request))[0][0] != 0


def test_topics_and_partitions(clients: list[RawClient]) -> None:
    check_same(clients, "CreateTopics", 7, CreateTopicsRequest(topics=[new_topic(), new_topic()]))
    for name in ("nope", "", "bad name"):
        check_same(
            clients, "DeleteTopics", 5, DeleteTopicsRequest(topic_names=[name, name], timeout_ms=30_000)
        )
    for name, count, assignments in (
        ("nope", 2, None),
        ("taken", 1, None),
        ("taken", 0, None),
        ("taken", 3, [[ID]]),
        ("taken", 2, [[ID], [ID]]),
        ("taken", 2, [[99]]),
        ("taken", 2, [[ID, ID]]),
        ("taken", 2, [[]]),
    ):
        new = CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if assignments is None
            else [CreatePartitionsAssignment(broker_ids=each) for each in assignments],
        )
        request = CreatePartitionsRequest(topics=[new], timeout_ms=30_000, validate_only=True)
        check_same(clients, "CreatePartitions", 3, request)
    for name, index, replicas in (
        ("nope", 0, [ID]),
        ("taken", 9, [ID]),
        ("taken", 0, None),
        ("taken", 0, []),
        ("taken", 0, [ID, ID]),
        ("taken", 0, [99]),
        ("taken", 0, [-1]),
    ):
        moved = ReassignableTopic(
            name=name, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)]
        )
        moves = AlterPartitionReassignmentsRequest(topics=[moved], timeout_ms=30_000)
        check_same(clients, "AlterPartitionReassignments", 1, moves)
    for kind, name, index in ((0, "nope", 0), (0, "taken", 0), (0, "taken", 7), (1, "taken", 0)):
        election = ElectLeadersRequest(
            election_type=kind,
            topic_partitions=[TopicPartitions(topic=name, partitions=[index])],
            timeout_ms=30_000,
        )
        check_same(clients, "ElectLeaders", 2, election)
    for endpoint_type in (2, 9):
        check_same(clients, "DescribeCluster", 2, DescribeClusterRequest(endpoint_type=endpoint_type))


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        (TOPIC, "taken", ("retention.ms", SET, "abc")),
        (TOPIC, "taken", ("nope", SET, "1")),
        (TOPIC, "taken", ("nope", APPEND, "1")),
        (TOPIC, "taken", ("retention.ms", APPEND, "1")),
        (TOPIC, "taken", ("retention.ms", SET, None)),
        (TOPIC, "taken", ("cleanup.policy", APPEND, "xyz")),
        (TOPIC, "missing", ("retention.ms", SET, "1")),
        (TOPIC, "bad name", ("retention.ms", SET, "1")),
        (TOPIC, "", ("retention.ms", SET, "1")),
        (1, "x", ("a", SET, "1")),
        (99, "x", ("a", SET, "1")),
        (BROKER, str(ID), ("num.partitions", SET, "5")),
        (BROKER, "", ("broker.id", SET, "5")),
        (BROKER, "", ("log.retention.ms", SET, "abc")),
        (BROKER, "", ("log.cleanup.policy", SET, "xyz")),
        (BROKER, "", ("unclean.leader.election.enable", SET, "q")),
        (BROKER, str(ID), ("ssl.keystore.location", SET, "x")),
        (BROKER, "", ("listener.name.plaintext.plain.sasl.jaas.config", SET, "x")),
        (BROKER, "", ("listener.name.plaintext.plain.connections.max.reauth.ms", SET, "5")),
        (BROKER, "", ("listener.name.plaintext.ssl.keystore.location", SET, "x")),
        (BROKER, "", ("listener.name.plaintext.my.own", SET, "x")),
        (BROKER, "", ("listener.name.plaintext.max.connections", SET, "many")),
        (BROKER, "abc", ("log.retention.ms", SET, "5")),
        (BROKER, "77", ("log.retention.ms", SET, "5")),
        (BROKER, str(ID), ("log.retention.ms", APPEND, "5")),
        (BROKER_LOGGER, "77", ("root", SET, "INFO")),
        (BROKER_LOGGER, "x", ("root", SET, "INFO")),
        (BROKER_LOGGER, str(ID), ("root", DELETE, None)),
        (BROKER_LOGGER, str(ID), ("root", APPEND, "INFO")),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "abc")),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "1")),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "-1")),
        (GROUP, "g", ("nope", SET, "1")),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000")),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "abc")),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "5")),
        (CLIENT_METRICS, "m", ("match", SET, "x=y")),
        (CLIENT_METRICS, "m", ("match", SET, "client_id=(")),
        (CLIENT_METRICS, "m", ("metrics", SET, "a,,b")),
        (CLIENT_METRICS, "m", ("nope", SET, "1")),
        (CLIENT_METRICS, "", ("metrics", SET, "*")),
    ],
)
def test_settings_that_are_refused(
    clients: list[RawClient], kind: int, name: str, change: tuple[str, int, str | None]
) -> None:
    kafkas, ours = (incremental(client, kind, name, change) for client in clients)
    assert kafkas[0] != 0
    assert ours[0] == kafkas[0]
    assert str(ours[1]).startswith(str(kafkas[1]))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TOPIC, "nope"),
        (TOPIC, ""),
        (TOPIC, "bad name"),
        (BROKER, "abc"),
        (BROKER, "77"),
        (BROKER_LOGGER, "77"),
    ],
)
def test_resources_that_cannot_be_described(clients: list[RawClient], kind: int, name: str) -> None:
    kafkas, ours = (describe_result(client, kind, name) for client in clients)
    assert kafkas.error_code != 0
    assert ours.error_code == kafkas.error_code
    assert ours.error_message.startswith(kafkas.error_message)


def test_client_metrics_are_subscribed_and_listed(clients: list[RawClient]) -> None:
    for client in clients:
        changes = (("metrics", SET, "a.,b."), ("interval.ms", SET, "1000"), ("match", SET, "client_id=x.*"))
        assert incremental(client, CLIENT_METRICS, "s", *changes)[0] == 0
    wait_until(
        lambda: all(
            client.ask("ListConfigResources", 0, ListConfigResourcesRequest()).config_resources
            for client in clients
        ),
        timeout_s=START_TIMEOUT_S,
    )
    for name in ("s", "none"):
        kafkas, ours = (
            describe_result(client, CLIENT_METRICS, name, include_synonyms=True) for client in clients
        )
        assert sorted(map(str, ours.configs)) == sorted(map(str, kafkas.configs))
    for version, types in ((0, []), (1, [CLIENT_METRICS]), (1, [BROKER, BROKER_LOGGER]), (1, [99])):
        request = ListConfigResourcesRequest(resource_types=types)
        kafkas, ours = (client.ask("ListConfigResources", version, request) for client in clients)
        assert ours == kafkas


def test_quotas_that_are_refused(clients: list[RawClient]) -> None:
    for entity, key, value in (
        ({"user": "u"}, "nope", 1.0),
        ({"user": "u"}, "producer_byte_rate", 0.0),
        ({"user": "u"}, "producer_byte_rate", 1.5),
        ({"user": "u"}, "producer_byte_rate", 1e30),
        ({"user": ""}, "producer_byte_rate", 1.0),
        ({"nope": "x"}, "producer_byte_rate", 1.0),
        ({}, "producer_byte_rate", 1.0),
        ({"ip": "not an ip"}, "connection_creation_rate", 1.0),
        ({"ip": "1.2.3.4"}, "producer_byte_rate", 1.0),
    ):
        entry = EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[OpData(key=key, value=value)],
        )
        check_same(clients, "AlterClientQuotas", 1, AlterClientQuotasRequest(entries=[entry]))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls(clients: list[RawClient], version: int) -> None:
    every = DescribeAclsRequest(resource_type_filter=TOPIC, operation=1, permission_type=1)
    check_same(clients, "DescribeAcls", version, every)
    creation = AclCreation(
        resource_type=TOPIC, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
    )
    check_same(clients, "CreateAcls", version, CreateAclsRequest(creations=[creation, creation]))
    filters = [DeleteAclsFilter(resource_type_filter=TOPIC, operation=1, permission_type=1)]
    check_same(clients, "DeleteAcls", version, DeleteAclsRequest(filters=filters))


def test_scram_credentials(clients: list[RawClient]) -> None:
    def described(client: RawClient, *users: str) -> list[str]:
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in users])
        results = client.ask("DescribeUserScramCredentials", 0, request).results
        for result in results:
            # Kafka's order is that of a hash map, which differs from run to run.
            result.credential_infos.sort(key=lambda each: each.mechanism)
        return sorted(map(str, results))

    def check(deletions: list[tuple[str, int]], upsertions: list[tuple[str, int, int]]) -> None:
        request = AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in deletions
            ],
            upsertions=[
                ScramCredentialUpsertion(
                    name=name, mechanism=mechanism, iterations=count, salt=b"s", salted_password=b"p"
                )
                for name, mechanism, count in upsertions
            ],
        )
        check_same(clients, "AlterUserScramCredentials", 0, request)

    check([], [("ann", SHA_256, 4_096)])
    check([], [("ann", SHA_512, 8_192)])
    check([], [("ben", SHA_256, 16_384)])
    wait_until(lambda: len(described(clients[0])) == 2, timeout_s=START_TIMEOUT_S)
    for users in ((), ("ann",), ("ann", "ben"), ("nobody",), ("ann", "ann")):
        kafkas, ours = (described(client, *users) for client in clients)
        assert ours == kafkas
    for wrong in (("c", 1, 4_095), ("c", 1, 16_385), ("", 1, 4_096), ("c", 0, 4_096), ("", 9, 4_096)):
        check([], [wrong])
    check([("nobody", SHA_256)], [])
    check([("ann", SHA_256)], [("ann", SHA_256, 4_096)])
    check([("x", SHA_256)], [("x", SHA_512, 4_096)])
    check([("ann", SHA_256), ("ann", SHA_512)], [])
    check([("ann", SHA_256)], [])
    wait_until(
        lambda: described(clients[0], "ann") == described(clients[1], "ann"), timeout_s=START_TIMEOUT_S
    )


def test_features_and_the_quorum(clients: list[RawClient]) -> None:
    for name, level, kind in (
        ("metadata.version", 99, 1),
        ("metadata.version", 7, 1),
        ("metadata.version", 30, 1),
        ("nope", 1, 1),
        ("nope", 0, 1),
        ("group.version", 0, 1),
        ("group.version", 1, 2),
        ("group.version", 1, 7),
        ("transaction.version", 9, 1),
        ("transaction.version", -1, 1),
    ):
        for version in (1, 2):
            key = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            request = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[key], validate_only=True)
            check_same(clients, "UpdateFeatures", version, request)
    for topic, partition in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("other", 0)):
        for version in range(3):
            asked = TopicData(topic_name=topic, partitions=[PartitionData(partition_index=partition)])
            described = DescribeQuorumRequest(topics=[asked])
            kafkas, ours = (client.ask("DescribeQuorum", version, described) for client in clients)
            assert errors_in(ours) == errors_in(kafkas)
            [theirs], [found] = (answer.topics[0].partitions for answer in (kafkas, ours))
            assert found.leader_id == theirs.leader_id
            assert len(found.current_voters) == len(theirs.current_voters)
            assert len(ours.nodes) == len(kafkas.nodes)
