"""Options and columns of sinks to topics: what is wrong is told before anything runs."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import pytest

from barnabas.errors import InvalidConfig, InvalidTopicException
from barnabas.spark.topics.sink_columns import SinkColumns, for_producer, sink_columns
from barnabas.spark.topics.sink_options import parse_sink_options, producer_settings

pa = pytest.importorskip("pyarrow", reason="pyarrow is needed: install barnabas[spark]")
types = pytest.importorskip("pyspark.sql.types", reason="pyspark is needed: install barnabas[spark]")

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def schema(text: str) -> Any:
    """A schema out of `name type, …`, without a session."""
    named = {
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        "headers": types.ArrayType(
            types.StructType(
                [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
            )
        ),
    }
    pairs = [each.split() for each in text.split(",")]
    return types.StructType([types.StructField(name, named[kind]) for name, kind in pairs])


def test_options_are_those_of_sparks_kafka_format() -> None:
    options = parse_sink_options(
        {
            **SERVERS,
            "kafka.linger.ms": "5",
            "topic": "out",
            "includeHeaders": "true",
            "checkpointlocation": "/c",
        }
    )
    assert options.topic == "out"
    assert options.producer == {
        "bootstrap.servers": "localhost:9092",
        "linger.ms": "5",
        "client.id": "barnabas-spark",
    }
    assert parse_sink_options(SERVERS).topic is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, r"kafka\.bootstrap\.servers is missing"),
        ({**SERVERS, "topik": "out"}, "no option 'topik'; did you mean topic"),
        ({**SERVERS, "subscribe": "out"}, "subscribe is for reading"),
        ({**SERVERS, "path": "/out"}, "a topic has no path"),
        ({**SERVERS, "topic": " "}, "topic is empty"),
        ({**SERVERS, "kafka.lingr.ms": "5"}, r"did you mean kafka\.linger\.ms"),
        ({**SERVERS, "kafka.linger.ms": "soon"}, r"kafka\.linger\.ms"),
        ({**SERVERS, "kafka.acks": "0"}, "acks=0.*acknowledged"),
        ({**SERVERS, "kafka.transactional.id": "id"}, r"barnabas\.spark\.exactly_once"),
        ({**SERVERS, "kafka.value.serializer": "x"}, "to_json"),
    ],
)
def test_wrong_options_are_told(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        parse_sink_options(options)


def test_settings_with_and_without_the_prefix() -> None:
    assert producer_settings({"bootstrap.servers": "a:1"}) == producer_settings(
        {"kafka.bootstrap.servers": "a:1"}
    )


def test_columns_that_are_taken() -> None:
    columns = sink_columns(
        schema("key string, value binary, headers headers, partition int, timestamp timestamp, other bigint"),
        "out",
        is_topic_for_all=True,
    )
    assert columns == SinkColumns(names=("value", "key", "partition", "headers", "timestamp"), topic="out")
    assert pickle.loads(pickle.dumps(columns)) == columns


def test_a_topic_of_the_sink_and_of_the_rows() -> None:
    both = schema("value string, topic string")
    assert not sink_columns(both, "out", is_topic_for_all=True).by_row
    assert sink_columns(both, "out", is_topic_for_all=False).by_row
    assert sink_columns(both, None, is_topic_for_all=True).by_row


@pytest.mark.parametrize(
    ("columns", "topic", "told"),
    [
        ("key string", "out", "needs a column 'value'.*the columns here are key"),
        ("value bigint", "out", "'value'.*string or binary, and not bigint"),
        ("value string, key int", "out", "'key'.*and not int"),
        ("value string, partition bigint", "out", "'partition' .*int, and not bigint"),
        ("value string, topic binary", "out", "'topic'.*string, and not binary"),
        ("value string, timestamp bigint", "out", "'timestamp'.*and not bigint"),
        ("value string, headers string", "out", "'headers'.*array<struct<key:string,value:binary>>"),
        ("value string", None, "no topic to write to: set the option 'topic'"),
    ],
)
def test_wrong_columns_are_told(columns: str, topic: str | None, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        sink_columns(schema(columns), topic, is_topic_for_all=True)


def test_rows_by_their_topics() -> None:
    batch = pa.RecordBatch.from_pydict({"topic": ["a", None, "b", "a"], "value": ["1", "2", None, "4"]})
    columns = SinkColumns(names=("value", "topic"), topic="rest")
    found = {topic: rows.to_pydict() for topic, rows in for_producer(batch, columns)}
    assert found == {"a": {"value": ["1", "4"]}, "rest": {"value": ["2"]}, "b": {"value": [None]}}
    with pytest.raises(InvalidTopicException, match="null in its column 'topic'"):
        list(for_producer(batch, SinkColumns(names=("value", "topic"), topic=None)))


def test_timestamps_are_milliseconds() -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=datetime.UTC)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["v", "w"]), pa.array([moment, None], pa.timestamp("us", "UTC"))],
        names=["value", "timestamp"],
    )
    [(topic, rows)] = for_producer(batch, SinkColumns(names=("value", "timestamp"), topic="out"))
    assert topic == "out"
    assert rows.to_pydict() == {"value": ["v", "w"], "timestamp_ms": [int(moment.timestamp() * 1000), None]}
