"""Pipelines that run: files, in the shared session, against a broker."""

from __future__ import annotations

import html
import json
import re
import sqlite3
import urllib.request
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow.dataset
import pytest

from barnabas.errors import InvalidConfig
from barnabas.model import TopicPartition
from barnabas.spark.failures import has_protobuf
from barnabas.spark.pipeline.checkpoint import read_checkpoint, remove_checkpoint
from barnabas.spark.pipeline.group import lags
from barnabas.spark.pipeline.plan import plan_of, plan_text
from barnabas.spark.pipeline.reset import execute_reset, plan_reset
from barnabas.spark.pipeline.run import PipelineRun
from barnabas.spark.pipeline.status import status_of
from barnabas.testing import Broker
from tests.spark.pipeline.running import TIMEOUT_S, Load, records_of, run_to_end, send, values_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


COPY = """
    name = "{topic}"
    [sources.orders]
    type = "topic"
    topics = "{topic}"
    headers = true
    format = {{ kind = "json", schema = "customer STRING, amount BIGINT" }}
    [[transforms]]
    name = "shouted"
    sql = "SELECT upper(customer) AS customer, amount * 2 AS amount, _timestamp FROM orders WHERE amount > 0"
    [sink]
    type = "topic"
    topic = "{topic}-out"
    key = "customer"
    timestamp = "_timestamp"
    format = {{ kind = "json" }}
    [dead_letters]
    topic = "{topic}-bad"
"""


def test_exactly_once_with_dead_letters(
    spark: SparkSession, broker: Broker, topic: str, load: Load, tmp_path: Path
) -> None:
    """Two runs and a reset: each record is there as often as it should be, and bad ones with their origin."""
    broker.create_topics({topic: 2, f"{topic}-out": 2, f"{topic}-bad": 1})
    pipeline = load(COPY.format(topic=topic))
    with broker.producer() as producer:
        for number in range(10):
            value = json.dumps({"customer": "ann", "amount": number}).encode()
            producer.send(topic, value, timestamp_ms=1_700_000_000_000 + number)
        bad = producer.send(topic, b"{nope", key=b"k", headers=[("own", b"1")], partition=1).result()

    (first,) = run_to_end(spark, pipeline, tmp_path)
    assert (first.rows, first.lag, first.batch_id) == (11, 0, 0)
    assert Counter(each["amount"] for each in values_of(broker, f"{topic}-out")) == Counter(range(2, 20, 2))
    record = records_of(broker, f"{topic}-out")[0]
    assert record.key == b"ANN"
    assert record.timestamp_ms == 1_700_000_000_000 + json.loads(record.value)["amount"] // 2
    assert json.loads(record.value).keys() == {"customer", "amount"}
    (letter,) = records_of(broker, f"{topic}-bad")
    assert (letter.key, letter.value) == (b"k", b"{nope")
    assert letter.headers == (
        ("own", b"1"),
        ("__barnabas.errors.topic", topic.encode()),
        ("__barnabas.errors.partition", b"1"),
        ("__barnabas.errors.offset", str(bad.offset).encode()),
        ("__barnabas.errors.timestamp", str(bad.timestamp_ms).encode()),
        ("__barnabas.errors.message", letter.headers[5][1]),
        ("__barnabas.errors.pipeline", topic.encode()),
    )
    assert letter.headers[5][1].startswith(b"not JSON")
    assert {each.lag for each in lags(pipeline, topic)} == {0}

    send(broker, topic, [{"customer": "bob", "amount": 50}])
    plan = plan_of(spark, pipeline, tmp_path)
    assert sum(each["end_offset"] - each["from_offset"] for each in plan["sources"][0]["offsets"]) == 1
    assert plan["queries"][0]["progress"] == "batch 0 is done"
    assert "to read: 1 of 2 partitions" in plan_text(plan)
    (second,) = run_to_end(spark, pipeline, tmp_path)
    assert second.batch_id == 1
    assert Counter(each["amount"] for each in values_of(broker, f"{topic}-out")) == Counter(
        [*range(2, 20, 2), 100]
    )
    assert len(records_of(broker, f"{topic}-bad")) == 1

    # Begun anew behind all that there is, it writes nothing twice.
    planned = plan_reset(pipeline, None, -1)
    assert planned.checkpoint_exists
    assert planned.groups == (topic,)
    assert planned.offsets == planned.committed
    execute_reset(pipeline, planned)
    send(broker, topic, [{"customer": "eve", "amount": 7}])
    (third,) = run_to_end(spark, pipeline, tmp_path)
    assert (third.batch_id, third.rows) == (0, 1)
    assert len(records_of(broker, f"{topic}-out")) == 11


def test_status_agrees_with_structured_streaming(
    spark: SparkSession, broker: Broker, topic: str, load: Load, tmp_path: Path
) -> None:
    """Query, batch and offsets of `pipeline status` are those of Spark's own progress and of its page."""
    broker.create_topics({topic: 2, f"{topic}-out": 2, f"{topic}-bad": 1})
    text = COPY.format(topic=topic).replace("headers = true", "max_records = 6")
    pipeline = load(text)
    assert status_of(pipeline)["queries"] == [
        {"query": topic, "query_id": None, "told": "has not run yet"},
    ]
    with broker.producer() as producer:
        for number in range(20):
            producer.send(topic, b'{"customer": "ann", "amount": 1}', partition=number % 2)
    running = PipelineRun(spark, pipeline, tmp_path, available_now=True)
    try:
        running.start()
        (each,) = running._running
        assert each.query.awaitTermination(TIMEOUT_S)
        progress = json.loads(each.query.lastProgress.json)  # type: ignore[union-attr]
        wait_until(lambda: _shown(spark, topic).get("Status") == "FINISHED", "the page shows the end")
        shown = _shown(spark, topic)
    finally:
        running.stop()
    status = status_of(pipeline)
    (query,) = status["queries"]
    assert (query["query_id"], query["committed_batch_id"]) == (progress["id"], progress["batchId"])
    assert query["planned_batch_id"] == progress["batchId"] == 3
    assert (shown["ID"], shown["Latest Batch"]) == (query["query_id"], "3")
    ends = [source["endOffset"] for source in progress["sources"]]
    # The log of the checkpoint has a line for each scan, of which there are two with dead letters.
    assert [each for each in query["offsets"] if each not in ends] == []
    assert [each for each in ends if each not in query["offsets"]] == []
    assert {row["partition"]: row["committed_offset"] for row in status["partitions"]} == {
        int(partition): offset for partition, offset in ends[0][topic].items()
    }
    assert status["lag"] == 0


def _shown(spark: SparkSession, name: str) -> dict[str, str]:
    """The row of a query on the page of Structured Streaming, by the headings of its table."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"{spark.sparkContext.uiWebUrl}/StreamingQuery/", timeout=TIMEOUT_S) as answer:
        page = answer.read().decode()
    for table in re.findall(r"<table.*?</table>", page, re.DOTALL):
        headings, *rows = [
            [
                html.unescape(re.sub(r"<[^>]*>", " ", cell)).strip()
                for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)
            ]
            for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)
        ]
        for row in rows:
            found = dict(zip((re.sub(r"\W+$", "", each).strip() for each in headings), row, strict=False))
            if found.get("Name") == name:
                return found
    return {}


def test_topic_to_parquet(
    spark: SparkSession, broker: Broker, topic: str, load: Load, tmp_path: Path
) -> None:
    """Windows of event time, in files; dead letters are a query of their own then, exactly once too."""
    broker.create_topics({topic: 2, f"{topic}-bad": 1})
    pipeline = load(
        f"""
        name = "{topic}"
        [sources.clicks]
        type = "topic"
        topics = "{topic}"
        format = {{ kind = "json", schema = "page STRING, at TIMESTAMP" }}
        watermark = {{ column = "at", delay = "10s" }}
        [[transforms]]
        name = "counts"
        sql = '''
            SELECT window.start AS minute, page, count(*) AS clicks FROM clicks
            GROUP BY window(at, '1 minute'), page
        '''
        [sink]
        type = "files"
        path = "out"
        file_format = "parquet"
        partition_by = ["page"]
        [dead_letters]
        topic = "{topic}-bad"
        """
    )
    send(
        broker,
        topic,
        [
            {"page": f"p{number % 2}", "at": f"2026-01-01T00:0{number // 60}:{number % 60:02d}Z"}
            for number in range(120)
        ]
        + [{"page": "p0", "at": "2026-01-01T01:00:00Z"}, b"nope"],
    )
    reports = run_to_end(spark, pipeline, tmp_path)
    assert {each.query for each in reports} == {topic, f"{topic}.dead-letters"}
    assert max(each.state_rows for each in reports) > 0
    rows = pyarrow.dataset.dataset(
        tmp_path / "out", partitioning="hive", exclude_invalid_files=True
    ).to_table()
    assert Counter((each["page"], each["clicks"]) for each in rows.to_pylist()) == Counter(
        {("p0", 30): 2, ("p1", 30): 2}
    )
    assert [record.value for record in records_of(broker, f"{topic}-bad")] == [b"nope"]
    with broker.admin() as admin:
        for group in (topic, f"{topic}.dead-letters"):
            committed = admin.list_group_offsets(group)
            assert sum(each.offset for each in committed.values()) == 122
    assert read_checkpoint(f"{pipeline.checkpoint}/dead-letters") is not None

    # Spark would leave out the first batches of another query without a word.
    assert pipeline.checkpoint is not None
    remove_checkpoint(pipeline.checkpoint)
    with pytest.raises(InvalidConfig, match="has batches of another query"):
        run_to_end(spark, pipeline, tmp_path)
    planned = plan_reset(pipeline, None, None)
    assert planned.groups == (topic, f"{topic}.dead-letters")
    assert planned.sink_logs == (tmp_path / "out" / "_spark_metadata",)
    execute_reset(pipeline, planned)
    assert not planned.sink_logs[0].exists()


def test_stream_table_join(
    spark: SparkSession, broker: Broker, topic: str, load: Load, tmp_path: Path
) -> None:
    """A topic as a table has the last value of each key, and forgets keys whose last value is null."""
    broker.create_topics({topic: 2, f"{topic}-customers": 2, f"{topic}-out": 1})
    with broker.producer() as producer:
        for key, value in (
            (b"1", b'{"city":"Rome"}'),
            (b"2", b'{"city":"Oslo"}'),
            (b"1", b'{"city":"Bonn"}'),
            (b"2", None),
        ):
            producer.send(f"{topic}-customers", value, key=key).result()
    send(broker, topic, [{"id": 1, "customer": "1"}, {"id": 2, "customer": "2"}])
    pipeline = load(
        f"""
        name = "{topic}"
        guarantee = "at-least-once"
        [sources.orders]
        type = "topic"
        topics = "{topic}"
        format = {{ kind = "json", schema = "id BIGINT, customer STRING" }}
        [sources.customers]
        type = "topic"
        topics = "{topic}-customers"
        as_table = true
        latest_per_key = true
        key_format = "string"
        format = {{ kind = "json", schema = "city STRING" }}
        [[transforms]]
        name = "placed"
        sql = "SELECT id, city FROM orders LEFT JOIN customers ON customer = customers._key"
        [sink]
        type = "topic"
        topic = "{topic}-out"
        format = {{ kind = "json", schema = "id BIGINT, city STRING" }}
        """
    )
    run_to_end(spark, pipeline, tmp_path)
    found = values_of(broker, f"{topic}-out")
    assert sorted(found, key=lambda each: each["id"]) == [{"id": 1, "city": "Bonn"}, {"id": 2}]
    with broker.admin() as admin:
        assert set(admin.list_group_offsets(topic)) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}


ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROCESSOR = '''
    """How often a customer has come, kept by Spark from batch to batch."""

    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import LongType, StructField, StructType


    class Visits(StatefulProcessor):
        def init(self, handle):
            self._visits = handle.getValueState("visits", StructType([StructField("count", LongType())]))

        def handleInputRows(self, key, rows, timerValues):
            count = self._visits.get()[0] if self._visits.exists() else 0
            count += sum(len(frame) for frame in rows)
            self._visits.update((count,))
            yield pd.DataFrame({"customer": [key[0]], "visits": [count]})

        def close(self):
            pass


    def visits(orders):
        return orders.groupBy("customer").transformWithStateInPandas(
            statefulProcessor=Visits(),
            outputStructType="customer STRING, visits BIGINT",
            outputMode="update",
            timeMode="None",
        )
'''
STATE_FUNCTION = '''
    """The same by a function of one group and its state."""

    import pandas as pd
    from pyspark.sql.streaming.state import GroupStateTimeout


    def count(key, frames, state):
        total = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((total,))
        yield pd.DataFrame({"customer": [key[0]], "visits": [total]})


    def visits(orders):
        return orders.groupBy("customer").applyInPandasWithState(
            count,
            outputStructType="customer STRING, visits BIGINT",
            stateStructType="total BIGINT",
            outputMode="update",
            timeoutConf=GroupStateTimeout.NoTimeout,
        )
'''


@pytest.mark.parametrize(
    "steps", [PROCESSOR, STATE_FUNCTION], ids=["transformWithState", "applyInPandasWithState"]
)
def test_state_of_a_function(
    spark: SparkSession, broker: Broker, topic: str, load: Load, tmp_path: Path, steps: str
) -> None:
    """State of a module beside the file; it goes on in the second run."""
    if steps is PROCESSOR and not has_protobuf():
        pytest.skip("transformWithStateInPandas needs protobuf: pip install 'protobuf>=6.33.5'")
    broker.create_topics({topic: 1, f"{topic}-out": 1})
    module = "steps_" + topic.replace("-", "_")
    pipeline = load(
        f"""
        name = "{topic}"
        output_mode = "update"
        [spark]
        sql.streaming.stateStore.providerClass = "{ROCKSDB}"
        [sources.orders]
        type = "topic"
        topics = "{topic}"
        format = {{ kind = "json", schema = "customer STRING" }}
        [[transforms]]
        name = "visits"
        function = "{module}:visits"
        [sink]
        type = "topic"
        topic = "{topic}-out"
        format = {{ kind = "json" }}
        """,
        **{module: steps},
    )
    send(broker, topic, [{"customer": name} for name in ("ann", "bob", "ann")])
    run_to_end(spark, pipeline, tmp_path)
    send(broker, topic, [{"customer": "ann"}])
    run_to_end(spark, pipeline, tmp_path)
    found = Counter((each["customer"], each["visits"]) for each in values_of(broker, f"{topic}-out"))
    assert found == Counter([("ann", 2), ("bob", 1), ("ann", 3)])


def test_files_to_a_topic(
    spark: SparkSession, broker: Broker, topic: str, load: Load, tmp_path: Path
) -> None:
    """A source without offsets of topics is exactly once as well; the plan tells all of it beforehand."""
    broker.create_topics({f"{topic}-out": 1})
    (tmp_path / "in").mkdir()
    for number in range(2):
        (tmp_path / "in" / f"{number}.csv").write_text(f"id,name\n{number},ann\n")
    pipeline = load(
        f"""
        name = "{topic}"
        [sources.people]
        type = "files"
        path = "in"
        file_format = "csv"
        schema = "id BIGINT, name STRING"
        max_files = 1
        options = {{ header = true }}
        [sink]
        type = "topic"
        topic = "{topic}-out"
        key = "id"
        format = {{ kind = "json" }}
        """
    )
    plan = plan_of(spark, pipeline, tmp_path)
    assert plan["sources"][0]["columns"] == {"id": "bigint", "name": "string"}
    assert plan["sinks"][0]["columns"] == {"key": "string", "value": "string"}
    assert "StreamingRelation" in plan["queries"][0]["explain"]
    assert "exactly once" in plan_text(plan)

    reports = run_to_end(spark, pipeline, tmp_path)
    assert [each.batch_id for each in reports] == [0, 1]
    assert [each.lag for each in reports] == [None, None]
    assert Counter(record.key for record in records_of(broker, f"{topic}-out")) == Counter([b"0", b"1"])


def test_databases_and_delta(spark: SparkSession, load: Load, tmp_path: Path) -> None:
    """Rows of a growing table into a Delta table; the second run reads on where the first ended."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount INTEGER)")
        shop.executemany("INSERT INTO orders VALUES (?, ?)", [(1, 10), (2, 20)])
        shop.commit()
        pipeline = load(
            f"""
            name = "{tmp_path.name}"
            [sources.orders]
            type = "database"
            url = "sqlite:///{tmp_path}/shop.db"
            table = "orders"
            growing_column = "id"
            [[transforms]]
            name = "doubled"
            sql = "SELECT id, amount * 2 AS amount FROM orders"
            [sink]
            type = "delta"
            path = "out"
            """
        )
        run_to_end(spark, pipeline, tmp_path)
        shop.execute("INSERT INTO orders VALUES (3, 30)")
        shop.commit()
    run_to_end(spark, pipeline, tmp_path)
    found = deltalake.DeltaTable(tmp_path / "out").to_pyarrow_table().to_pylist()
    assert Counter((row["id"], row["amount"]) for row in found) == Counter([(1, 20), (2, 40), (3, 60)])


def test_a_mirror_and_its_log(
    spark: SparkSession, broker: Broker, topic: str, load: Load, tmp_path: Path
) -> None:
    """Copied under another name, then counted in the broker's own directory: a pipeline of a table is one batch."""
    broker.create_topics({topic: 2, f"{topic}-bad": 1})
    with broker.producer() as producer:
        producer.send(topic, b"nope", partition=0)
        producer.send(
            topic, b'{"n":1}', key=b"a", headers=[("h", b"x")], partition=1, timestamp_ms=1_700_000_000_000
        )
    mirror = load(
        f"""
        name = "{topic}"
        [sources.all]
        type = "topic"
        topics = "{topic}"
        [sink]
        type = "mirror"
        rename = "copy.{{topic}}"
        kafka = {{ bootstrap.servers = "{broker.bootstrap}" }}
        """
    )
    (report,) = run_to_end(spark, mirror, tmp_path)
    assert report.lag == 0
    other, record = sorted(records_of(broker, f"copy.{topic}"), key=lambda each: each.partition)
    assert (other.partition, other.value) == (0, b"nope")
    assert (record.partition, record.key, record.value, record.headers) == (
        1,
        b"a",
        b'{"n":1}',
        (("h", b"x"),),
    )
    assert record.timestamp_ms == 1_700_000_000_000
    assert {each.lag for each in lags(mirror, mirror.name)} == {0}

    count = load(
        f"""
        name = "{topic}-count"
        [sources.log]
        type = "log"
        paths = "{broker.directory}"
        topics = "copy.{topic}"
        format = {{ kind = "json", schema = "n BIGINT" }}
        as_table = true
        [[transforms]]
        name = "counted"
        sql = "SELECT _topic AS topic, count(*) AS records, max(n) AS last FROM log GROUP BY _topic"
        [sink]
        type = "files"
        path = "counts"
        file_format = "json"
        [dead_letters]
        topic = "{topic}-bad"
        """
    )
    assert run_to_end(spark, count, tmp_path) == []
    (file,) = (tmp_path / "counts").glob("*.json")
    assert json.loads(file.read_text()) == {"topic": f"copy.{topic}", "records": 1, "last": 1}
    (letter,) = records_of(broker, f"{topic}-bad")
    assert (letter.value, letter.headers[0]) == (
        b"nope",
        ("__barnabas.errors.topic", f"copy.{topic}".encode()),
    )
