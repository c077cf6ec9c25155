"""Fixtures that give a test a running broker.

    def test_orders(barnabas_broker):
        producer = barnabas_broker.producer()

`barnabas_broker` is a broker for one test. `shared_barnabas_broker` is one broker for all tests of a run; each test
sees only its own topics and groups. This is cheaper if there are many tests. A marker sets topics and settings:

    @pytest.mark.barnabas(topics={"orders": 3}, log_retention_ms=1000)

`barnabas_cluster` is a cluster of three brokers on a ZooKeeper for one test; the marker sets its topics, settings and
number of brokers too.

pytest loads this module at every start, whether or not a test needs a broker, so expensive imports are late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing import Broker, Cluster

MARKER = "barnabas"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(topics, **settings): topics and settings of what the fixtures barnabas_broker and barnabas_cluster"
        " start",
    )


@pytest.fixture
def barnabas_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for this test only; it is removed with all its data after the test."""
    from barnabas.testing import Broker

    marker = request.node.get_closest_marker(MARKER)
    with Broker(**({} if marker is None else marker.kwargs)) as broker:
        yield broker


@pytest.fixture
def barnabas_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster for this test only. The test is skipped if there is no ZooKeeper to start."""
    from barnabas.testing import Cluster, ZooKeeperUnavailable

    marker = request.node.get_closest_marker(MARKER)
    cluster = Cluster(**({} if marker is None else marker.kwargs))
    try:
        cluster.start()
    except ZooKeeperUnavailable as missing:
        pytest.skip(str(missing))
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="session")
def _session_barnabas_broker() -> Iterator[Broker]:
    from barnabas.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def shared_barnabas_broker(
    request: pytest.FixtureRequest, _session_barnabas_broker: Broker
) -> Iterator[Broker]:
    """One broker for all tests that use it; topics and groups of a test are deleted after it."""
    broker = _session_barnabas_broker
    marker = request.node.get_closest_marker(MARKER)
    wanted = {} if marker is None else dict(marker.kwargs)
    topics = wanted.pop("topics", ())
    if wanted:
        raise pytest.UsageError(
            f"a broker that tests share has no settings for one of them ({', '.join(wanted)}): use barnabas_broker"
        )
    if not broker.is_running:
        broker.start()
    if topics:
        broker.create_topics(topics)
    yield broker
    if broker.is_running:
        broker.reset()
