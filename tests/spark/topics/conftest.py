from __future__ import annotations

from collections.abc import Iterator

import pytest

import barnabas.spark.topics.fetch


@pytest.fixture(autouse=True)
def connections_of_a_task() -> Iterator[None]:
    """Connections stay open for the next task of the process; here the process is that of many tests."""
    yield
    while barnabas.spark.topics.fetch._readers:
        barnabas.spark.topics.fetch._readers.popitem()[1].close()
