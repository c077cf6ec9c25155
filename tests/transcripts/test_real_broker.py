"""Our broker in a process of its own, as the controller of stub brokers on a real ZooKeeper, does the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.coordination.metadata.tree import FEATURE
from tests.cluster.clusters import Cluster, require_zookeeper
from tests.peers import zookeeper_peer
from tests.peers.zookeeper_peer import ZooKeeperServer
from tests.transcripts.comparison import differences
from tests.transcripts.golden import read_golden
from tests.transcripts.own_world import own_world
from tests.transcripts.real_world import real_world
from tests.transcripts.scenarios import run_scenario
from tests.transcripts.transaction_log import TransactionLog
from tests.transcripts.world import CONTROLLER_ID

pytestmark = [pytest.mark.slow, pytest.mark.peer]

SCENARIOS = ("crash", "reassignment", "unclean", "deletion")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "zookeeper"


@pytest.fixture
def zookeeper(folder: Path) -> Iterator[ZooKeeperServer]:
    require_zookeeper()
    with zookeeper_peer.zookeeper(zookeeper_peer.V3_8, folder) as running:
        yield running


@pytest.mark.parametrize("level", ["3.9", "2.8"])
def test_our_broker_does_the_same(
    level: str, zookeeper: ZooKeeperServer, folder: Path, tmp_path: Path
) -> None:
    golden, log = read_golden(level), TransactionLog(folder / "data")
    for scenario in SCENARIOS:
        for name in (scenario, f"{scenario}-alone"):
            (tmp_path / name).mkdir()
        cluster = Cluster(zookeeper, tmp_path / scenario)
        try:
            transcript = asyncio.run(run(cluster, tmp_path / f"{scenario}-alone", scenario, level, log))
            found = differences(golden[scenario], transcript)
            assert not found, "\n".join([scenario, *found])
            assert "Traceback" not in cluster[CONTROLLER_ID].log_text()
        except BaseException:
            cluster.print_logs()
            raise
        finally:
            cluster.close()


async def run(
    cluster: Cluster, folder: Path, scenario: str, level: str, log: TransactionLog
) -> list[dict[str, Any]]:
    """The transcript of a broker. The controller without a process says how much is to come in each step."""
    async with own_world(level, folder) as alone:
        expected = await run_scenario(alone, scenario)
    # The stubs have no features, as Kafka's brokers.
    version = 2 if level == "3.9" else 1
    cluster.tree.create(FEATURE, b'{"features":{},"version":%d,"status":1}' % version)
    broker = cluster.add(
        CONTROLLER_ID, inter_broker_protocol_version=level, auto_leader_rebalance_enable=False
    )
    async with real_world(level, broker.port, cluster.connect, log) as world:
        world.expected = expected
        # It is elected when the scenario says so.
        await world.vacate()
        await asyncio.to_thread(broker.start)
        return await run_scenario(world, scenario)
