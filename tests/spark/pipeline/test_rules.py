"""Records that cannot be decoded, below plans that Spark rearranges: their outcome never depends on the SQL.

Plans are made from seeds; a failure prints the SQL. All run in one session over topics that are written once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.failures import SparkFailed, told
from barnabas.spark.pipeline.frames import FrameBuilder
from barnabas.spark.pipeline.load import load_pipeline
from barnabas.spark.pipeline.rules import left_unread, with_checks
from barnabas.testing import Broker
from tests.spark.pipeline.conftest import Write
from tests.spark.pipeline.running import records_of, run_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEEDS = range(24)
GOOD = [
    {"customer": customer, "amount": amount, "at": "2026-01-01T00:00:00Z"}
    for customer in ("ann", "bob")
    for amount in range(1, 6)
]
# One that is not JSON, and one with a field that no step reads and an amount that none may divide by.
NOT_JSON = b"not json"
WRONG_FIELD = {"customer": "ann", "amount": 0, "at": "never"}
SOURCE = """
    name = "rules"
    [sources.orders]
    {reads}
    as_table = true
    format = {{ {format} }}
    [sink]
    type = "files"
    path = "out"
    file_format = "json"
    {more}
"""
JSON = 'kind = "json", schema = "customer STRING, amount BIGINT, at TIMESTAMP"'
Build = Callable[..., FrameBuilder]


# As long as the broker: parallel runs come back to this module while the same broker still runs.
@pytest.fixture(scope="session")
def topics(broker: Broker) -> dict[str, str]:
    """Topics of two partitions: bad records are in the second one, behind good ones."""
    names = {"good": "rules-good", "not JSON": "rules-not-json", "wrong field": "rules-wrong-field"}
    broker.create_topics(dict.fromkeys(names.values(), 2))
    bad: dict[str, list[bytes]] = {
        "good": [],
        "not JSON": [NOT_JSON],
        "wrong field": [json.dumps(WRONG_FIELD).encode()],
    }
    with broker.producer() as producer:
        for kind, topic in names.items():
            for number, value in enumerate([*(json.dumps(each).encode() for each in GOOD), *bad[kind]]):
                producer.send(topic, value, partition=1 if value in bad[kind] else number % 2)
    return names


@pytest.fixture(scope="module")
def build(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Build:
    def call(topic: str, more: str = "", *, kind: str = JSON, directory: Path | None = None) -> FrameBuilder:
        path = tmp_path_factory.mktemp("rules") / "pipeline.toml"
        reads = 'type = "topic"' if directory is None else f'type = "log"\npaths = "{directory}"'
        path.write_text(SOURCE.format(reads=f'{reads}\ntopics = "{topic}"', format=kind, more=more))
        pipeline = load_pipeline(path, {"BARNABAS_BOOTSTRAP": broker.bootstrap})
        builder = FrameBuilder(spark, pipeline, path.parent)
        builder.build()
        return builder

    return call


def result_of(builder: FrameBuilder, sql: str) -> DataFrame:
    """What a pipeline makes of SQL over its sources."""
    result = builder.spark.sql(sql)
    unread = left_unread(builder.spark, result, builder.ruled)
    return with_checks(result, [builder.ruled[name] for name in unread])


def failure_of(builder: FrameBuilder, sql: str) -> str | None:
    try:
        result_of(builder, sql).write.format("noop").mode("overwrite").save()
    except Exception as error:
        return str(told(error))
    return None


# Written by hand: each is a way in which Spark moves, prunes or leaves out something.
WAYS = {
    "a filter": "SELECT customer FROM orders WHERE amount > 1",
    "a filter on the record": "SELECT customer FROM orders WHERE _offset < 1 AND _partition = 0",
    "no column": "SELECT 1 AS one FROM orders WHERE amount > 1",
    "a count": "SELECT count(*) AS n FROM orders",
    "never true": "SELECT customer FROM orders WHERE 1 = 0",
    "never true by logic": "SELECT customer FROM orders WHERE amount > 1 AND NOT amount > 1",
    "a limit": "SELECT customer FROM orders LIMIT 1",
    "no rows": "SELECT customer FROM orders LIMIT 0",
    "an empty side": """SELECT customer FROM orders JOIN
        (SELECT id AS k FROM range(10) WHERE id * rand() > 100) AS t ON amount = k""",
    "an empty first side": """SELECT customer FROM (SELECT id AS k FROM range(10) WHERE id * rand() > 100) AS t
        JOIN orders ON amount = k""",
    "a side that is not needed": "SELECT DISTINCT r.id FROM range(3) AS r LEFT JOIN orders ON r.id = amount",
    "exists": "SELECT id FROM range(3) WHERE EXISTS (SELECT * FROM orders WHERE amount > 1)",
    "a subquery": "SELECT (SELECT max(amount) FROM orders) AS most",
    "not in": "SELECT customer FROM orders WHERE amount NOT IN (SELECT id FROM range(3))",
    "groups": "SELECT customer, sum(amount) AS s FROM orders GROUP BY customer HAVING customer = 'ann'",
    "first of each": """SELECT customer FROM (SELECT *, row_number() OVER
        (PARTITION BY customer ORDER BY amount) AS place FROM orders) WHERE place = 1 AND customer = 'bob'""",
    "the top": "SELECT customer FROM orders ORDER BY amount LIMIT 1",
    "exploded": "SELECT c FROM orders LATERAL VIEW explode(split(customer, '')) t AS c WHERE amount > 1",
    "a common table": "WITH o AS (SELECT * FROM orders WHERE amount > 2) SELECT a.customer FROM o AS a, o AS b",
}

# Those that read none of the field that is wrong, or nothing at all.
UNREAD_FIELD = ("a filter", "no column", "a count", "a limit", "groups")


class Plans:
    """SQL made from a seed: relations of `customer` and `amount`, each made of smaller ones."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.has_limit = False

    def relation(self, depth: int) -> str:
        if depth == 0:
            return "SELECT customer, amount FROM orders"
        one = f"({self.relation(depth - 1)})"
        kinds = (
            "filter",
            "project",
            "group",
            "distinct",
            "join",
            "outer",
            "semi",
            "union",
            "window",
            "limit",
        )
        kind = self._random.choice(kinds)
        if kind == "filter":
            return f"SELECT customer, amount FROM {one} WHERE {self._condition()}"
        if kind == "project":
            return f"SELECT upper(customer) AS customer, 100 div amount AS amount FROM {one}"
        if kind == "group":
            return f"SELECT customer, max(amount) AS amount FROM {one} GROUP BY customer"
        if kind == "distinct":
            return f"SELECT DISTINCT customer, amount FROM {one}"
        if kind == "window":
            ranked = f"SELECT *, rank() OVER (PARTITION BY customer ORDER BY amount) AS place FROM {one}"
            return f"SELECT customer, amount FROM ({ranked}) WHERE place < {self._random.randint(1, 4)}"
        if kind == "limit":
            self.has_limit = True
            return f"SELECT customer, amount FROM {one} LIMIT {self._random.randint(0, 3)}"
        other = f"({self._random.choice((self.relation(depth - 1), self._few()))})"
        if kind == "union":
            return f"SELECT customer, amount FROM {one} UNION ALL SELECT customer, amount FROM {other}"
        if kind == "semi":
            how = self._random.choice(("IN", "NOT IN"))
            return f"SELECT customer, amount FROM {one} WHERE amount {how} (SELECT amount FROM {other})"
        join = "JOIN" if kind == "join" else self._random.choice(("LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        on = self._random.choice(("a.amount = b.amount", "a.amount = b.amount AND a.customer = b.customer"))
        return f"SELECT a.customer, b.amount FROM {one} AS a {join} {other} AS b ON {on}"

    def _few(self) -> str:
        few = f"SELECT 'ann' AS customer, id + 1 AS amount FROM range({self._random.randint(0, 4)})"
        return self._random.choice((few, f"{few} WHERE id * rand() > 100"))

    def _condition(self) -> str:
        return self._random.choice(
            (
                "amount > 2",
                "100 / amount > 30",
                "customer = 'ann'",
                "customer LIKE 'a%' AND amount < 4",
                "amount IS NOT NULL OR customer IS NULL",
                "amount IS NULL",
                "length(customer) = 3",
                "1 = 0",
                "amount < 3 AND amount > 4",
            )
        )


@pytest.mark.parametrize("kind", ["not JSON", "wrong field"])
def test_a_bad_record_fails_every_plan(build: Build, topics: dict[str, str], kind: str) -> None:
    builder = build(topics[kind])
    plans = dict(WAYS) if kind == "not JSON" else {name: WAYS[name] for name in UNREAD_FIELD}
    plans |= {
        f"seed {seed}": Plans(seed).relation(1 + seed % 3)
        for seed in SEEDS
        if seed % 2 == (kind == "not JSON")
    }
    expected = f"a record cannot be decoded: topic {topics[kind]} partition 1 offset 5: "
    outcomes = {name: failure_of(builder, sql) for name, sql in plans.items()}
    wrong = {
        name: (plans[name], outcome)
        for name, outcome in outcomes.items()
        if outcome is None or not outcome.startswith(expected)
    }
    assert wrong == {}


def test_bad_records_that_are_dropped_change_no_result(build: Build, topics: dict[str, str]) -> None:
    """With drop = true a plan gives what it gives without the bad records: no condition even sees them."""
    dirty = build(topics["wrong field"], "[dead_letters]\n    drop = true")
    clean = build(topics["good"])
    for seed in range(100, 112):
        plans = Plans(seed)
        sql = plans.relation(1 + seed % 3)
        found, expected = (result_of(each, sql).collect() for each in (dirty, clean))
        if plans.has_limit:
            continue
        assert Counter(map(tuple, found)) == Counter(map(tuple, expected)), sql


def test_good_records_fail_no_plan(build: Build, topics: dict[str, str]) -> None:
    """Sources that are read beside the result add no rows to it."""
    builder = build(topics["good"])
    for name in ("a limit", "an empty side", "exists", "a count", "a subquery"):
        result = result_of(builder, WAYS[name])
        assert len(result.collect()) == len(builder.spark.sql(WAYS[name]).collect()), name
    assert left_unread(builder.spark, builder.spark.sql(WAYS["a filter"]), builder.ruled) == []
    assert left_unread(builder.spark, builder.spark.sql(WAYS["a limit"]), builder.ruled) == ["orders"]
    assert left_unread(builder.spark, builder.spark.range(3), builder.ruled) == []


AVRO = '{"type":"record","name":"r","fields":[{"name":"amount","type":"long"}]}'


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (f"kind = 'avro', schema = '{AVRO}'", b"\x02", b"\x02\x02"),
        (f"kind = 'avro', schema = '{AVRO}', registry = 'REGISTRY'", b"\0\0\0\0\1\2", b"\0\0\0\0\7\2"),
        ("kind = 'json', schema = 'amount BIGINT', registry = 'REGISTRY'", b'\0\0\0\0\1{"amount":1}', b"{}"),
        ("kind = 'string'", b"text", b"\xff"),
        ("kind = 'bytes'", b"data", None),
    ],
    ids=["avro", "avro in a registry", "json in a registry", "string", "bytes"],
)
def test_all_formats(
    build: Build, broker: Broker, topic: str, tmp_path: Path, kind: str, good: bytes, bad: bytes | None
) -> None:
    (tmp_path / "1.avsc").write_text(AVRO)
    broker.create_topics({topic: 1})
    with broker.producer() as producer:
        for value in (good, bad):
            producer.send(topic, value).result()
    builder = build(topic, kind=kind.replace("REGISTRY", str(tmp_path)))
    for sql in ("SELECT 1 AS one FROM orders WHERE _offset < 1", "SELECT _key FROM orders LIMIT 1"):
        told_of = failure_of(builder, sql)
        assert told_of is not None, sql
        assert told_of.startswith(f"a record cannot be decoded: topic {topic} partition 0 offset 1: ")


def test_log_directories(build: Build, broker: Broker, topics: dict[str, str]) -> None:
    builder = build(topics["not JSON"], directory=broker.directory)
    for name in ("a filter", "a filter on the record", "a limit"):
        assert "partition 1 offset 5: not JSON" in str(failure_of(builder, WAYS[name])), name


STREAM = """
    name = "{topic}"
    output_mode = "{mode}"
    guarantee = "at-least-once"
    [sources.orders]
    type = "topic"
    topics = "rules-not-json"
    format = {{ kind = "json", schema = "customer STRING, amount BIGINT" }}
    [sources.customers]
    type = "topic"
    topics = "{topic}"
    as_table = true
    format = {{ kind = "json", schema = "customer STRING" }}
    [[transforms]]
    name = "step"
    sql = "{sql}"
    [sink]
    type = "topic"
    topic = "{topic}-out"
    format = {{ kind = "json" }}
    {more}
"""
STREAMS = [
    ("append", "SELECT customer FROM orders WHERE amount > 1"),
    ("append", "SELECT customer FROM orders WHERE _partition = 0"),
    ("append", "SELECT orders.customer FROM customers JOIN orders ON orders.customer = customers.customer"),
    ("append", "SELECT customer FROM orders LIMIT 1"),
    ("complete", "SELECT count(*) AS n FROM orders JOIN customers ON orders.customer = customers.customer"),
]


@pytest.mark.parametrize(("mode", "sql"), STREAMS)
def test_a_bad_record_stops_every_stream(
    spark: SparkSession,
    broker: Broker,
    topics: dict[str, str],
    topic: str,
    pipeline_file: Write,
    tmp_path: Path,
    mode: str,
    sql: str,
) -> None:
    """And what went wrong is the same in the next run: the batch is not done. The table is empty."""
    broker.create_topics({topic: 1, f"{topic}-out": 1})
    text = STREAM.format(topic=topic, mode=mode, sql=sql, more="")
    pipeline = load_pipeline(pipeline_file(text), {"BARNABAS_BOOTSTRAP": broker.bootstrap})
    for _ in range(2):
        with pytest.raises(SparkFailed, match="topic rules-not-json partition 1 offset 5: not JSON"):
            run_to_end(spark, pipeline, tmp_path)


def test_dead_letters_do_not_depend_on_the_sql(
    spark: SparkSession,
    broker: Broker,
    topics: dict[str, str],
    topic: str,
    pipeline_file: Write,
    tmp_path: Path,
) -> None:
    for number, (mode, sql) in enumerate(STREAMS):
        name = f"{topic}-{number}"
        broker.create_topics({name: 1, f"{name}-out": 1, f"{name}-bad": 1})
        text = STREAM.format(topic=name, mode=mode, sql=sql, more=f'[dead_letters]\n    topic = "{name}-bad"')
        run_to_end(
            spark, load_pipeline(pipeline_file(text), {"BARNABAS_BOOTSTRAP": broker.bootstrap}), tmp_path
        )
        (letter,) = records_of(broker, f"{name}-bad")
        assert letter.value == NOT_JSON, sql
        assert dict(letter.headers)["__barnabas.errors.offset"] == b"5", sql


@pytest.mark.parametrize(
    ("file_format", "good", "bad"),
    [("json", '{"id":1,"name":"ann"}', '{"id":"x","name":"bob"}'), ("csv", "1,ann", "x,bob")],
)
@pytest.mark.parametrize("as_table", [False, True])
def test_bad_lines_of_files(
    spark: SparkSession,
    pipeline_file: Write,
    tmp_path: Path,
    file_format: str,
    good: str,
    bad: str,
    as_table: bool,
) -> None:
    """They stop the pipeline, whether their columns are read or not, unless the options say otherwise."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "lines").write_text(f"{good}\n{bad}\n")
    text = """
        name = "{name}"
        [sources.people]
        type = "files"
        path = "in"
        file_format = "{format}"
        schema = "id BIGINT, name STRING"
        as_table = {as_table}
        {options}
        [[transforms]]
        name = "step"
        sql = "SELECT name FROM people WHERE name = 'ann' LIMIT 1"
        [sink]
        type = "files"
        path = "out-{name}"
        file_format = "json"
    """
    filled = {"format": file_format, "as_table": str(as_table).lower()}
    pipeline = load_pipeline(pipeline_file(text.format(name="strict", options="", **filled)))
    with pytest.raises(SparkFailed, match=r"(?i)malformed"):
        run_to_end(spark, pipeline, tmp_path)
    lenient = 'options = { mode = "PERMISSIVE" }'
    pipeline = load_pipeline(pipeline_file(text.format(name="lenient", options=lenient, **filled)))
    run_to_end(spark, pipeline, tmp_path)
