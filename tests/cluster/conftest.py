"""One ZooKeeper for all tests of a module: each cluster has a chroot of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.clusters import require_zookeeper
from tests.peers import zookeeper_peer
from tests.peers.zookeeper_peer import ZooKeeperServer


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    require_zookeeper()
    with zookeeper_peer.zookeeper(zookeeper_peer.V3_8, tmp_path_factory.mktemp("zookeeper")) as running:
        yield running
