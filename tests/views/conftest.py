from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.testing import Broker

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    """One broker for all tests here; each uses topics of its own."""
    with Broker() as running:
        yield running


@pytest.fixture(scope="package")
def admin(broker: Broker) -> Iterator[Admin]:
    with broker.admin() as shared:
        yield shared


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with two partitions, three records in the first and two in the second."""
    name = f"topic-{next(_numbers)}"
    broker.create_topics({name: 2})
    with broker.producer() as producer:
        for number in range(5):
            producer.send(name, b"value", partition=number % 2, timestamp_ms=1_000 + number)
    return name
