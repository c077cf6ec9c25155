"""Brokers that hang for longer than their session lasts, and a ZooKeeper that is away: all of it under load.

Brokers go on while ZooKeeper is away. Afterwards every broker is registered, all replicas are in sync again, and every
confirmed record is there. `make soak` has longer ones of the same tests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tests.client.proxy import Proxy
from tests.cluster.clusters import Cluster, cluster, require_zookeeper
from tests.cluster.loads import OwnLoad, read_topic
from tests.peers.zookeeper_peer import ZooKeeperServer
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

IS_SOAK: Final = bool(os.environ.get("BARNABAS_SOAK"))
BROKERS: Final = 3
PARTITIONS: Final = 6
SESSION_MS: Final = 2_000
HANGS: Final = 24 if IS_SOAK else 4
# At least two sessions' time.
AWAY_S: Final = 60.0 if IS_SOAK else 2.5 * SESSION_MS / 1_000
TOPIC: Final = "orders"


@contextmanager
def load_on(brokers: Cluster) -> Iterator[OwnLoad]:
    """Produces to a topic with three replicas. At the end all of them are in sync, and have what was confirmed."""
    with brokers.admin() as admin:
        admin.create_topics({TOPIC: PARTITIONS}, replication_factor=BROKERS)
    wait_until_in_sync(brokers)
    with OwnLoad(brokers, TOPIC, PARTITIONS) as load:
        load.wait_for_more()
        yield load
        load.wait_for_more()
    wait_until_in_sync(brokers)
    load.check(read_topic(brokers, TOPIC, PARTITIONS))
    for broker in brokers:
        assert "Traceback" not in broker.log_text()


def wait_until_in_sync(brokers: Cluster) -> None:
    brokers.wait_for_brokers(*range(1, BROKERS + 1))
    brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=BROKERS)


def test_brokers_that_hang_or_are_killed(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    rng = Random(5)
    settings = {"min_insync_replicas": 2, "zookeeper_session_timeout_ms": SESSION_MS}
    with cluster(BROKERS, tmp_path, zookeeper, **settings) as brokers, load_on(brokers) as load:
        for number in range(HANGS):
            # The controller, too, since it is one of them.
            broker = brokers[1 + number % BROKERS]
            epoch = brokers.wait_for_registration(broker.broker_id)
            if rng.random() < 0.7:
                broker.pause()
                wait_until(lambda b=broker: brokers.broker_epoch(b.broker_id) is None)  # type: ignore[misc]
                load.wait_for_more()
                broker.resume()
            else:
                broker.kill()
                broker.start()
            brokers.wait_for_registration(broker.broker_id, other_than=epoch)
            wait_until_in_sync(brokers)


def test_zookeeper_is_away(tmp_path: Path) -> None:
    require_zookeeper()
    settings: dict[str, Any] = {"min_insync_replicas": 2, "zookeeper_session_timeout_ms": SESSION_MS}
    with cluster(BROKERS, tmp_path, **settings) as brokers, load_on(brokers) as load:
        brokers.zookeeper.stop()
        back_s = time.monotonic() + AWAY_S
        while time.monotonic() < back_s:
            load.wait_for_more()
        brokers.zookeeper.start()
        brokers.zookeeper.wait_until_ready()
        wait_until_in_sync(brokers)
        # The controller controls.
        with brokers.admin() as admin:
            admin.create_topics({"later": 1}, replication_factor=BROKERS)
        brokers.wait_for_topic("later", isr=BROKERS)


def test_no_broker_reaches_zookeeper(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """All sessions expire at once, and nobody knows until ZooKeeper can be reached again."""
    with Proxy() as between:
        between.target_port = zookeeper.port
        brokers = Cluster(zookeeper, tmp_path)
        try:
            for broker_id in range(1, BROKERS + 1):
                brokers.add(
                    broker_id,
                    zookeeper_connect=between.address + brokers.chroot,
                    zookeeper_session_timeout_ms=SESSION_MS,
                    min_insync_replicas=2,
                ).begin_start()
            for broker in brokers:
                broker.wait_until_ready()
            brokers.wait_for_controller()
            epochs = {each.broker_id: brokers.wait_for_registration(each.broker_id) for each in brokers}
            with load_on(brokers) as load:
                between.hold()
                between.cut_all()
                for broker_id in epochs:
                    wait_until(lambda b=broker_id: brokers.broker_epoch(b) is None)  # type: ignore[misc]
                back_s = time.monotonic() + AWAY_S
                while time.monotonic() < back_s:
                    load.wait_for_more()
                between.release()
                for broker_id, epoch in epochs.items():
                    brokers.wait_for_registration(broker_id, other_than=epoch)
        except BaseException:
            brokers.print_logs()
            raise
        finally:
            brokers.close()
