"""Groups and transactions change hands between real Kafkas and us, and are described alike before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from bench.kafka import ApacheKafka
from tests.broker.raw_client import RawClient
from tests.broker.transaction_requests import read_committed
from tests.clients.broker_process import BrokerProcess
from tests.peers.coordinated import (
    COORDINATOR_PARTITIONS,
    PARTITIONS,
    SETTINGS,
    TOPIC,
    fill,
    prepare_ends,
    told,
)
from tests.peers.kafka_peer import V3, V4, PeerUnavailable, broker_on, jars
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

BROKER_ID: Final = 3
CLUSTER_ID: Final = "barnabas-peer-testing1"
TOPICS: Final = {
    TOPIC: PARTITIONS,
    "__consumer_offsets": COORDINATOR_PARTITIONS,
    "__transaction_state": COORDINATOR_PARTITIONS,
}
ENDED: Final = {"to-commit": "CompleteCommit", "to-abort": "CompleteAbort"}


@pytest.fixture(autouse=True)
def _kafka() -> None:
    try:
        jars(V3)
        jars(V4)
    except PeerUnavailable as why:
        pytest.skip(str(why))


def ours(directory: Path) -> BrokerProcess:
    return BrokerProcess(directory, {**SETTINGS, "auto.create.topics.enable": "false"})


def check_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Each part by itself, for a failure that can be read; what was prepared is complete by now."""
    ended = {expected["transactions"][name]["producer"][0] for name in ENDED}
    for part, before in expected.items():
        after = found[part]
        if part in ("transactions", "listed transactions"):
            before, after = (
                {key: value for key, value in each.items() if key not in ENDED} for each in (before, after)
            )
        if part == "producers":
            before, after = (
                {
                    partition: {key: value for key, value in producers.items() if key not in ended}
                    for partition, producers in each.items()
                }
                for each in (before, after)
            )
        assert after == before, part


def check_prepared(port: int, has_consumer_protocol: bool) -> dict[str, Any]:
    """Prepared transactions are completed by whoever finds them, the one visibly, the other not."""
    asked: list[dict[str, Any]] = []

    def is_complete() -> bool:
        asked.append(told(port, has_consumer_protocol=has_consumer_protocol))
        states = {name: asked[-1]["transactions"][name]["state"] for name in ENDED}
        return states == ENDED

    wait_until(is_complete)
    of_producer = {name: asked[-1]["transactions"][name]["producer"][0] for name in ENDED}
    with RawClient(port) as client:
        wait_until(lambda: b"to-abort" in bytes(read_committed(client, TOPIC, partition=2).records))
        found = read_committed(client, TOPIC, partition=2)
        assert b"to-commit" in bytes(found.records)
        assert b"open" not in bytes(found.records)
        aborted = {each.producer_id for each in found.aborted_transactions}
        assert of_producer["to-abort"] in aborted
        assert of_producer["to-commit"] not in aborted
    return asked[-1]


def test_ours_after_kafka_4(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with ApacheKafka(directory, SETTINGS) as kafka:
        fill(kafka.port, has_consumer_protocol=True)
        expected = told(kafka.port, has_consumer_protocol=True)
        kafka.stop()
    prepare_ends(directory)
    with ours(directory) as broker:
        check_same(check_prepared(broker.port, has_consumer_protocol=True), expected)
        assert "Traceback" not in broker.log_text()


def test_ours_after_kafka_3(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    with broker_on(directory, tmp_path, BROKER_ID, CLUSTER_ID, SETTINGS) as kafka:
        fill(kafka.port, has_consumer_protocol=False)
        expected = told(kafka.port, has_consumer_protocol=False)
    prepare_ends(directory)
    with ours(directory) as broker:
        check_same(check_prepared(broker.port, has_consumer_protocol=False), expected)
        assert "Traceback" not in broker.log_text()


def test_kafka_3_after_ours(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with ours(directory) as broker:
        fill(broker.port, has_consumer_protocol=True)
        expected = told(broker.port, has_consumer_protocol=False)
        assert broker.stop() == 0
    prepare_ends(directory)
    topic_ids = {topic: _topic_id(directory, topic) for topic in TOPICS}
    meta = dict(
        line.split("=", 1) for line in (directory / "meta.properties").read_text().splitlines() if "=" in line
    )
    broker_id = int(meta["broker.id"])
    settings = {**SETTINGS, "reserved.broker.max.id": str(max(1_000, broker_id))}
    with broker_on(directory, tmp_path, broker_id, meta["cluster.id"], settings) as kafka:
        kafka.create_topics({topic: (topic_ids[topic], count) for topic, count in TOPICS.items()})
        check_same(check_prepared(kafka.port, has_consumer_protocol=False), expected)


def _topic_id(directory: Path, topic: str) -> str:
    text = (directory / f"{topic}-0" / "partition.metadata").read_text()
    return next(line.split(": ")[1] for line in text.splitlines() if line.startswith("topic_id"))
