"""Replicas whose copying is bounded by a rate."""

from __future__ import annotations

import pytest

from barnabas.errors import NONE
from barnabas.model import BrokerId
from tests.broker.record_requests import batch, produce_request
from tests.broker.replication.simulated_cluster import TOPIC, SimulatedCluster
from tests.simulation.client import SimulatedClient
from tests.simulation.network import Network
from tests.simulation.world import World

LEADER, LATE = BrokerId(1), BrokerId(3)
BATCH_BYTES = 2_000
BATCHES = 30
BYTES_PER_SECOND = 2_000


async def produce_all(client: SimulatedClient) -> None:
    for _ in range(BATCHES):
        request = produce_request(TOPIC, batch(b"x" * BATCH_BYTES), acks=1)
        answer = await client.ask("Produce", 9, request)
        assert answer.responses[0].partition_responses[0].error_code == NONE


def catch_up_s(dynamic: dict[str, str], topic: dict[str, str]) -> float:
    """How long a replica that has missed all records takes to get them."""
    world = World(3)
    cluster = SimulatedCluster(
        world, Network(world), partition_count=1, dynamic_settings=dynamic, topic_settings=topic
    )
    try:
        cluster.start()
        cluster.run_until_led()
        cluster.kill(LATE)
        process = world.process("client")
        world.run(process, produce_all(cluster.client(process, LEADER)))
        cluster.restart(LATE)
        began_s = world.now_s
        world.run_until(lambda: LATE in cluster.states[0].isr or world.now_s > began_s + 120)
        assert cluster.hosts[LATE].copy(0) == cluster.hosts[LEADER].copy(0)
        return world.now_s - began_s
    finally:
        world.close()


# A rate is measured over ten seconds at least, so the first 20,000 bytes are not delayed.
FAST_S = 8.0
SLOW_S = 15.0


@pytest.mark.slow
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_that_is_listed_is_slow(side: str) -> None:
    rate = {f"{side}.replication.throttled.rate": str(BYTES_PER_SECOND)}
    listed = f"{side}.replication.throttled.replicas"
    broker_id = LEADER if side == "leader" else LATE
    assert catch_up_s(rate, {listed: f"0:{broker_id}"}) > SLOW_S
    assert catch_up_s(rate, {listed: f"1:{broker_id}"}) < FAST_S
    assert catch_up_s({}, {listed: "*"}) < FAST_S
