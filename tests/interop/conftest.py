"""`make interop` runs these tests and nothing else does: they fetch programs from the registries of other languages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.interop.kafka_tools import Both, both_clusters
from tests.peers.kafka_peer import PeerUnavailable

if os.environ.get("BARNABAS_INTEROP") != "1":
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker with two directories for a module's tests; each uses topics of its own."""
    folder: Path = tmp_path_factory.mktemp("interop")
    directories = f"{folder / 'a'},{folder / 'b'}"
    with BrokerProcess(folder / "a", {"log.dirs": directories}) as running:
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()
        assert running.stop() == 0


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """A cluster of ours and one of Apache Kafka 3.9.1 for all tests of tools; each test uses topics of its own."""
    try:
        with both_clusters(tmp_path_factory.mktemp("clusters")) as running:
            yield running
    except PeerUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture
def both(clusters: Both) -> Iterator[Both]:
    yield clusters
    clusters.check()
