"""Pipelines that cannot run, or not to the end: each says why in a line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.errors import InvalidConfig, KafkaError, OffsetOutOfRange
from barnabas.model import TopicPartition
from barnabas.spark.failures import SparkFailed
from barnabas.spark.pipeline.checkpoint import remove_checkpoint
from barnabas.testing import Broker
from tests.spark.pipeline.running import Load, records_of, run_to_end, send, values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


AVRO = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'
ONE = """
    name = "{topic}"
    {more}
    [sources.orders]
    type = "topic"
    topics = "{topic}"
    max_records = 1
    format = {{ kind = "json", schema = "id BIGINT" }}
    [[transforms]]
    name = "step"
    {step}
    [sink]
    type = "topic"
    topic = "{topic}-out"
    {sink}
"""


@pytest.mark.parametrize(
    ("step", "sink", "kind", "message"),
    [
        ('sql = "SELECT nope FROM orders"', "", SparkFailed, "`nope` cannot be resolved. Did you mean"),
        (
            'sql = "SELECT 1 FROM oders"',
            "",
            SparkFailed,
            "The table or view `oders` cannot be found. (line 1 pos 14)",
        ),
        ('sql = "SELECT FROM WHERE"', "", SparkFailed, "line 1 pos"),
        ('sql = "SELECT id FROM orders"', "", InvalidConfig, "sink: the rows have no column value, but id"),
        (
            'sql = "SELECT id FROM orders"',
            'format = { kind = "json" }\nkey = "customer"',
            InvalidConfig,
            "sink.key: there is no column customer; there are id",
        ),
        (
            "sql = \"SELECT 'x' AS id FROM orders\"",
            f"format = {{ kind = 'avro', schema = '{AVRO}' }}",
            InvalidConfig,
            "column 'id' is string, the Avro schema has bigint",
        ),
        ('function = "faulty_steps:raises"', "", SparkFailed, "ValueError: so it is"),
        ('function = "faulty_steps:returns"', "", InvalidConfig, "returned int, not a DataFrame"),
        ('function = "faulty_steps:none"', "", InvalidConfig, "has no function none; it has raises, returns"),
    ],
)
def test_what_cannot_be_built_is_told_in_a_line(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    load: Load,
    tmp_path: Path,
    step: str,
    sink: str,
    kind: type[KafkaError],
    message: str,
) -> None:
    text = ONE.format(topic=topic, more="", step=step, sink=sink)
    steps = "def raises(frame):\n    raise ValueError('so it is')\n\ndef returns(frame):\n    return 1\n"
    with pytest.raises(kind) as caught:
        run_to_end(spark, load(text, faulty_steps=steps), tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "SQLSTATE" not in str(caught.value)


def test_what_fails_while_it_runs_is_told_in_a_line(
    spark: SparkSession, broker: Broker, topic: str, load: Load, tmp_path: Path
) -> None:
    """A record that cannot be decoded and goes nowhere; records that are gone; a topic that is not there."""
    step, sink = 'sql = "SELECT id FROM orders"', 'format = { kind = "json" }'
    pipeline = load(ONE.format(topic=topic, more="", step=step, sink=sink))
    with pytest.raises(InvalidConfig, match=f"there is no topic '{topic}'"):
        run_to_end(spark, pipeline, tmp_path)

    broker.create_topics({topic: 1, f"{topic}-out": 1})
    send(broker, topic, [{"id": 1}, b"{nope"])
    with pytest.raises(SparkFailed) as caught:
        run_to_end(spark, pipeline, tmp_path)
    assert str(caught.value).startswith(
        f"a record cannot be decoded: topic {topic} partition 0 offset 1: not JSON"
    )
    assert [each["id"] for each in values_of(broker, f"{topic}-out")] == [1]

    with broker.admin() as admin:
        admin.delete_records({TopicPartition(topic, 0): 2})
    with pytest.raises(OffsetOutOfRange) as lost:
        run_to_end(spark, pipeline, tmp_path)
    assert "failOnDataLoss" in str(lost.value)
    assert "\n" not in str(lost.value)


def test_a_deleted_checkpoint(
    spark: SparkSession, broker: Broker, topic: str, load: Load, tmp_path: Path
) -> None:
    """What is in would be written again: that is refused, unless the file says to go on where the group stands."""
    broker.create_topics({topic: 1, f"{topic}-out": 1, f"{topic}-bad": 1})
    text = f"""
        name = "{topic}"
        output_mode = "update"
        [sources.orders]
        type = "topic"
        topics = "{topic}"
        starting = "STARTING"
        format = {{ kind = "json", schema = "customer STRING" }}
        [[transforms]]
        name = "counted"
        sql = "SELECT customer, count(*) AS orders FROM orders GROUP BY customer"
        [sink]
        type = "topic"
        topic = "{topic}-out"
        format = {{ kind = "json" }}
        [dead_letters]
        topic = "{topic}-bad"
    """
    pipeline = load(text.replace("STARTING", "earliest"))
    send(broker, topic, [{"customer": "ann"}, b"nope"])
    run_to_end(spark, pipeline, tmp_path)
    assert pipeline.checkpoint is not None
    remove_checkpoint(pipeline.checkpoint)
    with pytest.raises(InvalidConfig) as caught:
        run_to_end(spark, pipeline, tmp_path)
    assert "the checkpoint was deleted" in str(caught.value)
    assert "barnabas pipeline reset" in str(caught.value)

    remove_checkpoint(pipeline.checkpoint)
    send(broker, topic, [{"customer": "bob"}])
    run_to_end(spark, load(text.replace("STARTING", "committed")), tmp_path)
    assert values_of(broker, f"{topic}-out") == [
        {"customer": "ann", "orders": 1},
        {"customer": "bob", "orders": 1},
    ]
    assert len(records_of(broker, f"{topic}-bad")) == 1
