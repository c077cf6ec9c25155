from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.record_requests import create_topic
from tests.clients.broker_process import BrokerProcess
from tests.hostile.mutations import TARGET, TARGET_PARTITIONS


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for a module's tests, with a topic that requests are aimed at."""
    settings = {
        # Tests look for the line about each of their connections.
        "barnabas.log.lines.per.second": "0",
        # Some tests open hundreds at once. One that finds no room tries again after a second.
        "socket.listen.backlog.size": "1000",
    }
    with BrokerProcess(tmp_path_factory.mktemp("hostile") / "data", settings) as running:
        with running.client() as client:
            create_topic(client, TARGET, TARGET_PARTITIONS)
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()
        assert running.stop() == 0
