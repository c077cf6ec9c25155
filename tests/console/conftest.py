from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from barnabas.testing import Broker
from tests.console.running import RunningConsole

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    """One broker for all tests here; each uses topics of its own."""
    with Broker() as running:
        yield running


@pytest.fixture(scope="package")
def console(broker: Broker) -> Iterator[RunningConsole]:
    with RunningConsole(broker.bootstrap) as running:
        yield running


@pytest.fixture(scope="package")
def fetching_console(broker: Broker) -> Iterator[RunningConsole]:
    """A console that does not read files."""
    with RunningConsole(broker.bootstrap, may_read_files=False) as running:
        yield running


@pytest.fixture
def new_topic(broker: Broker) -> Callable[..., str]:
    def create(partitions: int = 2) -> str:
        name = f"topic-{next(_numbers)}"
        broker.create_topics({name: partitions})
        return name

    return create
