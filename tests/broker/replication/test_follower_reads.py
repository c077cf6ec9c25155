"""Consumers that read from a follower in their rack (KIP-392)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.errors import NONE, NotLeaderOrFollower, OffsetOutOfRange
from barnabas.model import BrokerId
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.broker.record_requests import batch, produce_request, values
from tests.broker.replication.simulated_cluster import SETTINGS, TOPIC, TOPIC_ID, SimulatedCluster
from tests.simulation.network import Network
from tests.simulation.world import World

LEADER, FOLLOWER = BrokerId(1), BrokerId(2)
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def started(settings: dict[str, str]) -> SimulatedCluster:
    """One partition on three brokers, each in a rack of its own, with two records."""
    world = World(11)
    cluster = SimulatedCluster(world, Network(world), partition_count=1, settings={**SETTINGS, **settings})
    cluster.start()
    cluster.run_until_led()
    produced: Any = cluster.ask(LEADER, "Produce", 9, produce_request(TOPIC, batch(b"a", b"b"), acks=-1))
    assert produced.responses[0].partition_responses[0].error_code == NONE
    return cluster


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = started({"replica.selector.class": RACK_AWARE, "replica.fetch.wait.max.ms": "1400"})
    try:
        yield cluster
    finally:
        cluster.world.close()


def fetch(
    cluster: SimulatedCluster,
    broker_id: BrokerId,
    offset: int = 0,
    *,
    version: int = 13,
    rack: str = "",
    max_wait_ms: int = 0,
) -> Any:
    """The answer for the partition."""
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[asked])
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        rack_id=rack,
        topics=[topic],
        session_epoch=-1,
    )
    answer = cluster.ask(broker_id, "Fetch", version, request)
    [partition] = answer.responses[0].partitions
    return partition


def test_the_leader_names_the_replica_in_the_rack(cluster: SimulatedCluster) -> None:
    found = fetch(cluster, LEADER, rack="rack-2")
    assert (found.error_code, found.preferred_read_replica, found.records or b"") == (NONE, FOLLOWER, b"")
    assert found.high_watermark == 2
    for rack in ("rack-1", "elsewhere", ""):
        found = fetch(cluster, LEADER, rack=rack)
        assert (found.preferred_read_replica, values(found.records)) == (-1, [b"a", b"b"])
    # A replica that does not have the offset is no help.
    assert fetch(cluster, LEADER, 9, rack="rack-2").error_code == OffsetOutOfRange.code


def test_a_follower_serves_up_to_its_high_watermark(cluster: SimulatedCluster) -> None:
    log = cluster.hosts[FOLLOWER].log(0)
    began_s = cluster.world.now_s
    found = fetch(cluster, FOLLOWER, rack="rack-2", max_wait_ms=10_000)
    assert (found.error_code, values(found.records), found.high_watermark) == (NONE, [b"a", b"b"], 2)
    # Followers learn a new high watermark at once, not when they have waited for records.
    assert cluster.world.now_s - began_s < 1.0
    assert log.high_watermark == 2
    assert fetch(cluster, FOLLOWER, version=10).error_code == NotLeaderOrFollower.code
    assert fetch(cluster, FOLLOWER, 3).error_code == OffsetOutOfRange.code


def test_a_consumer_waits_at_a_follower(cluster: SimulatedCluster) -> None:
    process = cluster.world.process("producer")
    request = produce_request(TOPIC, batch(b"c"), acks=-1)

    async def produce_later() -> None:
        await asyncio.sleep(2.0)
        await cluster.client(process, LEADER).ask("Produce", 9, request)

    producing = process.loop.create_task(produce_later())
    found = fetch(cluster, FOLLOWER, 2, max_wait_ms=30_000)
    assert values(found.records) == [b"c"]
    cluster.world.run_until(producing.done)


def test_without_a_selector_the_leader_serves(cluster: SimulatedCluster) -> None:
    plain = started({})
    try:
        found = fetch(plain, LEADER, rack="rack-2")
        assert (found.preferred_read_replica, values(found.records)) == (-1, [b"a", b"b"])
    finally:
        plain.world.close()
