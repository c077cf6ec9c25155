"""Each version of the APIs that clients of all ages begin with, asked for raw: an answer that the version can carry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.broker.requests.routes import ROUTES
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.describe_cluster_request import DescribeClusterRequest
from barnabas.protocol.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.init_producer_id_request import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, produce
from tests.clients.broker_process import BrokerProcess

TOPIC = "known"

REQUESTS: dict[str, Message] = {
    "ApiVersions": ApiVersionsRequest(client_software_name="test", client_software_version="1"),
    "Metadata": MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]),
    "DescribeCluster": DescribeClusterRequest(),
    "DescribeTopicPartitions": DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)]),
    "InitProducerId": InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
    "OffsetForLeaderEpoch": OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic=TOPIC, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
            )
        ]
    ),
    "DeleteRecords": DeleteRecordsRequest(
        timeout_ms=30_000,
        topics=[
            DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
        ],
    ),
}
VERSIONS = {route.name: range(route.first_version, route.last_version + 1) for route in ROUTES}


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with broker.client() as connected:
        yield connected


# As long as the broker: parallel runs come back to this module while the same broker still runs.
@pytest.fixture(scope="package", autouse=True)
def known(broker: BrokerProcess) -> None:
    with broker.client() as connected:
        create_topic(connected, TOPIC)
        assert produce(connected, TOPIC, batch(b"a", b"b")).error_code == 0


@pytest.mark.parametrize("api", REQUESTS)
def test_each_version_is_answered_without_an_error(client: RawClient, api: str) -> None:
    for version in VERSIONS[api]:
        response = client.ask(api, version, REQUESTS[api])
        assert getattr(response, "error_code", 0) == 0, (version, response)
        for topic in getattr(response, "topics", ()):
            assert getattr(topic, "error_code", 0) == 0, (version, topic)
            for partition in topic.partitions:
                assert partition.error_code == 0, (version, topic)


@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 2), (-2, 0), (0, 0), (1_700_000_000_001, 1)])
def test_list_offsets(client: RawClient, timestamp: int, offset: int) -> None:
    for version in VERSIONS["ListOffsets"]:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
                )
            ],
        )
        [topic] = client.ask("ListOffsets", version, request).topics
        [answer] = topic.partitions
        assert answer.error_code == 0
        if version == 0:
            # Segments by the time they were last written: of the one there is, its start and its end, or nothing.
            assert answer.old_style_offsets == ({-1: [2], -2: [0]}.get(timestamp, []))
        else:
            assert answer.offset == offset, version
            assert answer.leader_epoch == (0 if version >= 4 else -1), version


def test_bytes_behind_a_request_are_left_alone(client: RawClient) -> None:
    """librdkafka asks for all topics with three bytes too many, from version 9 on."""
    client.send_bytes(bytes.fromhex("000000190003000d00000003000772646b61666b610000000000010000"))
    frame = client.receive_frame()
    assert TOPIC.encode() in frame
