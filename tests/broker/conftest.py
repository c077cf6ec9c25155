from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.raw_client import RawClient
from tests.broker.running import RunningBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for a module's tests; each uses topics of its own."""
    with RunningBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with broker.client() as connected:
        yield connected
