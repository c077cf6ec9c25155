"""What the tasks of a transactional batch do, on a broker and without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.producer.partitioners import partition_for_key
from barnabas.client.producer.producer import Producer
from barnabas.errors import InvalidProducerEpoch, InvalidTopicException, MessageTooLarge, ProducerFenced
from barnabas.spark.topics.sink_columns import SinkColumns
from barnabas.testing import Broker
from tests.spark.sink_reading import committed_values

pa = pytest.importorskip("pyarrow", reason="pyarrow is needed: install barnabas[spark]")
pytest.importorskip("pyspark", reason="pyspark is needed: install barnabas[spark]")

from barnabas.spark.exactly_once import tasks as exactly_once_tasks  # noqa: E402
from barnabas.spark.exactly_once.tasks import Assigner, TransactionWriter  # noqa: E402
from barnabas.spark.topics import sink  # noqa: E402

COLUMNS = SinkColumns(names=("value", "topic", "partition"), topic="out")


@pytest.fixture(autouse=True)
def clients() -> Iterator[None]:
    yield
    while sink._producers:
        sink._producers.popitem()[1].close(timeout_ms=0)


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with Broker(topics={"out": 3, "dead": 1}) as running:
        yield running


def settings(server: Broker, name: str) -> dict[str, str]:
    return {"bootstrap.servers": server.bootstrap, "transactional.id": name, "max.block.ms": "20000"}


def rows(*triples: tuple[str, str | None, int]) -> Any:
    return pa.RecordBatch.from_pydict(
        {
            "value": [value for value, _, _ in triples],
            "topic": pa.array([topic for _, topic, _ in triples], pa.string()),
            "partition": pa.array([partition for _, _, partition in triples], pa.int32()),
        }
    )


def run(writer: TransactionWriter, *batches: Any) -> dict[str, Any]:
    [outcome] = pickle.loads(pickle.dumps(writer)).run(iter(batches))
    found: dict[str, Any] = outcome.to_pylist()[0]
    return found


def test_tasks_write_to_one_transaction_and_none_of_them_twice(
    server: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(settings(server, "twice")) as owner:
        owner.init_transactions()
        owner.begin_transaction()
        writer = TransactionWriter(settings(server, "twice"), COLUMNS, owner.share_transaction())
        first = run(writer, rows(("a", "out", 0), ("b", "dead", 0)), rows(("c", "out", 1)))
        assert first == {"stage": -1, "records": 3, "code": 0, "message": "", "is_rerun": False}
        assert run(writer)["records"] == 0
        assert run(writer, rows(("d", "out", 2)))["records"] == 1
        context = SimpleNamespace(attemptNumber=lambda: 1, stageId=lambda: 7, partitionId=lambda: 0)
        monkeypatch.setattr(exactly_once_tasks, "TaskContext", SimpleNamespace(get=lambda: context))
        again = run(writer, rows(("e", "out", 1)))
        assert again["is_rerun"]
        assert again["stage"] == 7
        assert again["message"] == "task 0 was run 2 times"
        owner.commit_transaction()
    assert committed_values(server.bootstrap, "out") == ["a", "c", "d"]
    assert committed_values(server.bootstrap, "dead") == ["b"]


def test_what_stands_in_the_way_is_told_by_its_code(server: Broker) -> None:
    with Producer(settings(server, "told")) as owner, Producer(settings(server, "told")) as other:
        owner.init_transactions()
        owner.begin_transaction()
        shared = owner.share_transaction()
        topics = SinkColumns(names=COLUMNS.names, topic=None)
        nameless = run(TransactionWriter(settings(server, "told"), topics, shared), rows(("a", None, 0)))
        writer = TransactionWriter(settings(server, "told"), COLUMNS, shared)
        assert (nameless["code"], nameless["is_rerun"]) == (InvalidTopicException.code, False)
        assert "null in its column 'topic'" in nameless["message"]
        large = run(writer, rows(("x" * 2_000_000, "out", 0)))
        assert large["code"] == MessageTooLarge.code
        assert "max.request.size" in large["message"]
        other.init_transactions()
        fenced = run(writer, rows(("b", "out", 0)))
        assert fenced["code"] in (ProducerFenced.code, InvalidProducerEpoch.code)


def test_partitions_of_rows() -> None:
    keys = [b"a", None, b""]
    columns = SinkColumns(names=("value", "key", "topic", "partition"), topic="out")
    assigner = pickle.loads(pickle.dumps(Assigner({}, columns, {"out": 7, "dead": 2}, 3)))
    given = pa.StructArray.from_arrays(
        [
            pa.array(["out", "out", "dead"]),
            pa.array(keys, pa.binary()),
            pa.array([None, None, None], pa.int32()),
        ],
        names=["topic", "key", "partition"],
    )
    assert assigner.assign(given).to_pylist() == [partition_for_key(b"a", 7), 4, partition_for_key(b"", 2)]
    # The next Arrow batch without keys goes to the next partition, and a row's own partition wins.
    fixed = pa.StructArray.from_arrays(
        [pa.array(["out"] * 2), pa.array([None, b"a"], pa.binary()), pa.array([None, 6], pa.int32())],
        names=["topic", "key", "partition"],
    )
    assert assigner.assign(fixed).to_pylist() == [5, 6]
    by_key = Assigner({}, SinkColumns(names=("value", "key"), topic="out"), {"out": 7}, 0)
    text = pa.StructArray.from_arrays([pa.array(["a", "key"])], names=["key"])
    assert by_key.assign(text).to_pylist() == [partition_for_key(b"a", 7), partition_for_key(b"key", 7)]
