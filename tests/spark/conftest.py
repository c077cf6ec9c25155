"""One Spark session and one broker for all tests here: each test uses topics, groups and directories of its own."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.session import start_session
from barnabas.testing import Broker
from tests.client.consumer_servers import KafkaProcess
from tests.peers.kafka_peer import V4, PeerUnavailable
from tests.spark.database_fixtures import database_url, postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["apache_kafka", "broker", "database_url", "postgres", "spark", "topic"]

JAVA_MIN = 17
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that needs the session waits for a JVM: it is slow whatever it does then."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


def require_java() -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17: there is no java on the PATH")
    told = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, timeout=60, check=False
    ).stderr
    major = re.search(r'version "(\d+)', told)
    if major is None or int(major[1]) < JAVA_MIN:
        pytest.skip(f"Spark needs Java {JAVA_MIN}: `java -version` says {told.strip()!r}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    require_java()
    session = start_session(
        "tests",
        master="local[2]",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.driver.memory": "1g",
            # For the one test that compares with Spark's pages.
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with KafkaProcess(tmp_path_factory.mktemp("kafka") / "data", V4) as running:
            yield running.address
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
