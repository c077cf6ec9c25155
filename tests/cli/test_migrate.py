"""`barnabas cluster migrate` on a real ZooKeeper."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from barnabas.testing import Broker
from tests.peers import zookeeper_peer
from tests.peers.kafka_peer import PeerUnavailable
from tests.peers.zookeeper_peer import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.peer]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    try:
        zookeeper_peer.jars(zookeeper_peer.V3_8)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    with zookeeper_peer.zookeeper(zookeeper_peer.V3_8, tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


def migrate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas", "cluster", "migrate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_topics_and_settings_move_and_stay_moved(server: ZooKeeperServer, tmp_path: Path) -> None:
    target = f"{server.address}/shop/barnabas"
    arguments = ("--log-dirs", str(tmp_path), "--zookeeper", target)
    with Broker(directory=tmp_path, topics={"orders": 3}) as broker:
        with broker.admin() as admin:
            topic_id = admin.describe_topics(["orders"])["orders"].topic_id
        refused = migrate(*arguments)
        assert (refused.returncode, "Stop the broker first" in refused.stderr) == (1, True)
    moved = migrate(*arguments)
    assert moved.returncode == 0, moved.stderr
    assert f"zookeeper.connect={target}" in moved.stdout
    again = migrate(*arguments, "--json")
    assert json.loads(again.stdout)["topics"] == 1
    client = KazooClient(target)
    client.start()
    try:
        stored = json.loads(client.get("/brokers/topics/orders")[0])
        assert stored["topic_id"] == str(topic_id)
        assert sorted(stored["partitions"]) == ["0", "1", "2"]
        assert not client.exists("/barnabas/migration")
        # Groups and transactions of the single node go on as they were.
        assert json.loads(client.get("/feature")[0])["features"] == {
            "group.version": {"max_version_level": 1},
            "transaction.version": {"max_version_level": 2},
        }
        cluster_id = json.loads(client.get("/cluster/id")[0])["id"]
        assert cluster_id == json.loads(again.stdout)["cluster_id"]
    finally:
        client.stop()
        client.close()
    elsewhere = migrate("--log-dirs", str(tmp_path), "--zookeeper", f"{server.address}/other")
    assert (elsewhere.returncode, "has moved" in elsewhere.stderr) == (1, True)
    start = [sys.executable, "-m", "barnabas", "start", "--override", f"log.dirs={tmp_path}"]
    alone = subprocess.run(start, capture_output=True, text=True, timeout=120, check=False)
    assert alone.returncode == 1
    assert f"start the broker with zookeeper.connect={target}" in alone.stderr


def test_an_ensemble_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    with Broker(directory=tmp_path):
        pass
    missing = migrate("--log-dirs", str(tmp_path), "--zookeeper", "127.0.0.1:1/b")
    assert missing.returncode == 3
    assert len(missing.stderr.splitlines()) == 1, missing.stderr
    assert "127.0.0.1:1" in missing.stderr
    with Broker(directory=tmp_path) as broker:
        assert broker.is_running
