"""Requests that only the controller answers, at a broker that is not the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.client.producer.producer import Producer
from barnabas.errors import NotController, StaleControllerEpoch
from barnabas.protocol.message import Message
from barnabas.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from barnabas.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.alter_partition_request import AlterPartitionRequest
from barnabas.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from barnabas.protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_cluster_request import DescribeClusterRequest
from barnabas.protocol.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from barnabas.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.cluster.clusters import cluster
from tests.peers.zookeeper_peer import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.peer]

TIMEOUT_MS = 30_000
REQUESTS: list[tuple[str, int, Message]] = [
    (
        "CreateTopics",
        7,
        CreateTopicsRequest(
            topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=TIMEOUT_MS
        ),
    ),
    ("DeleteTopics", 6, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=TIMEOUT_MS)),
    (
        "CreatePartitions",
        3,
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)], timeout_ms=TIMEOUT_MS),
    ),
    (
        "ElectLeaders",
        2,
        ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=TIMEOUT_MS
        ),
    ),
    (
        "AlterPartitionReassignments",
        0,
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[1])]
                )
            ],
            timeout_ms=TIMEOUT_MS,
        ),
    ),
    ("ListPartitionReassignments", 0, ListPartitionReassignmentsRequest(topics=None, timeout_ms=TIMEOUT_MS)),
    (
        "UpdateFeatures",
        1,
        UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=1)]
        ),
    ),
    (
        "AlterUserScramCredentials",
        0,
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="alice", mechanism=1)]),
    ),
    ("ControlledShutdown", 3, ControlledShutdownRequest(broker_id=1, broker_epoch=1)),
    ("AlterPartition", 3, AlterPartitionRequest(broker_id=1, broker_epoch=1)),
    ("AllocateProducerIds", 0, AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)),
]


def error_of(answer: Any) -> int:
    """That of the request, or else of its first element."""
    if getattr(answer, "error_code", 0):
        return int(answer.error_code)
    for field in ("topics", "responses", "results"):
        for each in getattr(answer, field, ()):
            return int(getattr(each, "error_code", 0))
    return 0


def test_only_the_controller_answers(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(2, tmp_path, zookeeper) as brokers:
        controller = brokers.wait_for_controller()
        other = brokers[3 - controller]
        with other.client() as client:
            for name, version, request in REQUESTS:
                # As in Apache Kafka 3.9.1.
                expected = StaleControllerEpoch if name == "ControlledShutdown" else NotController
                assert error_of(client.ask(name, version, request)) == expected.code, name
            described = client.ask("DescribeCluster", 0, DescribeClusterRequest())
            assert described.controller_id == controller
            quorum = DescribeQuorumRequest(
                topics=[
                    TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
                ]
            )
            [topic] = client.ask("DescribeQuorum", 0, quorum).topics
            assert topic.partitions[0].leader_id == controller
        with brokers[controller].client() as client:
            for name, version, request in REQUESTS:
                assert error_of(client.ask(name, version, request)) != NotController.code, name


def test_any_broker_creates_topics_that_a_client_asks_for(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(2, tmp_path, zookeeper, default_replication_factor=2) as brokers:
        other = brokers[3 - brokers.wait_for_controller()]
        with Producer(bootstrap_servers=other.address) as producer:
            producer.send("automatic", b"1")
            producer.flush()
        brokers.wait_for_topic("automatic", isr=2)
