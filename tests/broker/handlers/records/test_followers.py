"""A leader with a follower: what the follower fetches, and what clients see meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from barnabas.broker.quotas.quotas import CONSUMER_BYTE_RATE, DEFAULT, QuotaEntity
from barnabas.errors import (
    FencedLeaderEpoch,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownLeaderEpoch,
)
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsResponse
from barnabas.protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.protocol.requests import decode_response
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import (
    batch,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    values,
)
from tests.broker.replication.roles import change_replicas, code_of, role
from tests.broker.running import RunningBroker
from tests.broker.transaction_requests import describe_producers
from tests.waiting import wait_until

FOLLOWER = BrokerId(7)
TOOL = -2
LATEST, EARLIEST = -1, -2


@pytest.fixture
def follower(broker: RunningBroker) -> Iterator[RawClient]:
    with broker.client() as connected:
        yield connected


def set_replicas(
    broker: RunningBroker, topic: str, *others: BrokerId, isr: Sequence[int] | None = None
) -> int:
    """The leader epoch from then on."""
    replicas = broker.server.broker.replicas
    partition = replicas.find(TopicPartition(topic, 0))
    assert partition is not None

    async def change() -> int:
        change_replicas(replicas, partition, [replicas.broker_id, *others], isr)
        return partition.leader_epoch

    return broker.call(change)


def test_a_follower_fetches_what_is_not_committed_and_commits_it(
    broker: RunningBroker, client: RawClient, follower: RawClient
) -> None:
    create_topic(client, "copied")
    epoch = set_replicas(broker, "copied", FOLLOWER)
    client.send("Produce", 9, produce_request("copied", batch(b"a", b"b"), acks=-1))
    asks = {"replica_id": FOLLOWER, "current_leader_epoch": epoch}
    copied = fetch(follower, "copied", 0, max_wait_ms=60_000, **asks)
    assert values(copied.records) == [b"a", b"b"]
    assert copied.high_watermark == 0
    with broker.client() as consumer:
        assert values(fetch(consumer, "copied", 0).records) == []
        assert fetch(follower, "copied", 2, **asks).error_code == 0
        answer = decode_response(api_for_name("Produce"), 9, client.receive_frame()).body
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert values(fetch(consumer, "copied", 0).records) == [b"a", b"b"]


def test_an_append_wakes_a_follower_before_anything_is_committed(
    broker: RunningBroker, client: RawClient, follower: RawClient
) -> None:
    create_topic(client, "woken")
    set_replicas(broker, "woken", FOLLOWER, BrokerId(8))
    follower.send("Fetch", 12, fetch_request("woken", 0, max_wait_ms=60_000, replica_id=FOLLOWER))
    assert produce(client, "woken", batch(b"a")).error_code == 0
    answer = decode_response(api_for_name("Fetch"), 12, follower.receive_frame()).body
    [partition] = answer.responses[0].partitions
    assert (values(partition.records), partition.high_watermark) == ([b"a"], 0)


def test_others_are_no_followers(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "foreign")
    epoch = set_replicas(broker, "foreign", FOLLOWER)

    def code(**asks: int) -> int:
        return int(fetch(client, "foreign", 0, **asks).error_code)

    assert code(replica_id=8) == NotLeaderOrFollower.code
    assert code(replica_id=8, current_leader_epoch=epoch) == UnknownLeaderEpoch.code
    assert code(replica_id=FOLLOWER, current_leader_epoch=epoch - 1) == FencedLeaderEpoch.code
    assert code(replica_id=FOLLOWER, current_leader_epoch=epoch + 1) == UnknownLeaderEpoch.code


def test_tools_read_what_is_not_committed(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "compared")
    set_replicas(broker, "compared", FOLLOWER)
    assert produce(client, "compared", batch(b"a")).error_code == 0
    for version in (4, 10, 12):
        found = fetch(client, "compared", 0, version=version, replica_id=TOOL)
        assert (values(found.records), found.high_watermark) == ([b"a"], 0)
        assert values(fetch(client, "compared", 0, version=version).records) == []


def test_a_replica_that_does_not_lead_describes_producers(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "described")
    epoch = set_replicas(broker, "described", FOLLOWER)
    written = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    assert produce(client, "described", written).error_code == 0
    replicas = broker.server.broker.replicas
    partition = replicas.find(TopicPartition("described", 0))
    assert partition is not None

    async def lose_leadership() -> None:
        request = role(
            FOLLOWER,
            epoch + 1,
            replicas=[replicas.broker_id, FOLLOWER],
            controller_epoch=replicas.controller_epoch,
            topic="described",
            topic_id=partition.topic_id,
        )
        assert code_of(replicas.become(request)) == 0

    broker.call(lose_leadership)
    assert fetch(client, "described", 0).error_code == NotLeaderOrFollower.code
    [producer] = describe_producers(client, "described").active_producers
    assert producer.producer_id == 5


def test_quotas_and_metrics_of_consumers_leave_followers_out(
    broker: RunningBroker, client: RawClient, follower: RawClient
) -> None:
    create_topic(client, "unthrottled")
    set_replicas(broker, "unthrottled", FOLLOWER)
    assert produce(client, "unthrottled", batch(b"x" * 10_000)).error_code == 0
    running = broker.server.broker
    metrics = running.replicas.topic_metrics.of("unthrottled")

    async def limit(rate: float | None) -> None:
        running.quotas.set_limits(
            QuotaEntity(None, DEFAULT), {} if rate is None else {CONSUMER_BYTE_RATE: rate}
        )

    broker.call(lambda: limit(1.0))
    try:
        for _ in range(3):
            copied = fetch(follower, "unthrottled", 0, replica_id=FOLLOWER)
            assert values(copied.records) == [b"x" * 10_000]
    finally:
        broker.call(lambda: limit(None))
    assert metrics.bytes_out == 0


def test_a_producer_that_waits_learns_the_new_leader(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "moved")
    epoch = set_replicas(broker, "moved", FOLLOWER)
    client.send("Produce", 10, produce_request("moved", batch(b"a"), acks=-1))
    replicas = broker.server.broker.replicas
    key = TopicPartition("moved", 0)
    wait_until(lambda: replicas.delayed.produces.watches(key))

    async def stop() -> None:
        state = StopReplicaPartitionState(partition_index=0, leader_epoch=epoch)
        replicas.stop(
            StopReplicaRequest(
                controller_epoch=replicas.controller_epoch,
                topic_states=[StopReplicaTopicState(topic_name="moved", partition_states=[state])],
            )
        )

    broker.call(stop)
    answer = decode_response(api_for_name("Produce"), 10, client.receive_frame()).body
    [partition] = answer.responses[0].partition_responses
    assert partition.error_code == NotLeaderOrFollower.code
    assert (
        partition.current_leader.leader_id == broker.server.broker.image.topics["moved"].partitions[0].leader
    )
    assert answer.node_endpoints


def list_offsets(client: RawClient, topic: str, timestamp: int, version: int) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    response = client.ask("ListOffsets", version, request)
    assert isinstance(response, ListOffsetsResponse)
    return response.topics[0].partitions[0]


def test_the_latest_offset_is_unknown_until_the_watermark_has_reached_the_epoch(
    broker: RunningBroker, client: RawClient, follower: RawClient
) -> None:
    create_topic(client, "elected")
    set_replicas(broker, "elected", FOLLOWER)
    assert produce(client, "elected", batch(b"a", timestamp=1_000)).error_code == 0
    set_replicas(broker, "elected", FOLLOWER)
    assert list_offsets(client, "elected", LATEST, 5).error_code == OffsetNotAvailable.code
    assert list_offsets(client, "elected", LATEST, 4).error_code == LeaderNotAvailable.code
    assert list_offsets(client, "elected", 1_000, 5).error_code == OffsetNotAvailable.code
    earliest = list_offsets(client, "elected", EARLIEST, 5)
    assert (earliest.error_code, earliest.offset) == (0, 0)
    assert fetch(follower, "elected", 1, replica_id=FOLLOWER).error_code == 0
    latest = list_offsets(client, "elected", LATEST, 5)
    assert (latest.error_code, latest.offset) == (0, 1)
