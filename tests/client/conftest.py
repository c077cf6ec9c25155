from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from barnabas.client.producer.producer import Producer
from tests.clients.broker_process import BrokerProcess

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests here; each uses topics of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("client") / "data", {"num.partitions": "3"}) as running:
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()


@pytest.fixture
def topic() -> str:
    """A name that no other test of the module uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture(scope="package")
def producer(broker: BrokerProcess) -> Iterator[Producer]:
    """One producer for all tests here."""
    with Producer(bootstrap_servers=broker.address) as shared:
        yield shared
