"""Files as pipelines: what they may say, what they may not, and how they are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.errors import InvalidConfig
from barnabas.spark.pipeline.flows import flows_of
from barnabas.spark.pipeline.load import SINKS_MAX, load_pipeline
from barnabas.spark.pipeline.model import FileSink, FileSource, Pipeline, TopicSink, TopicSource
from barnabas.spark.pipeline.options import reader_options
from barnabas.spark.pipeline.tables import FAULTS_MAX, InvalidPipeline, duration_ms
from tests.spark.pipeline.conftest import Write

WHOLE = """
    name = "orders-by-minute"
    guarantee = "at-least-once"
    output_mode = "update"
    trigger = "1m30s"
    checkpoint = "progress/here"

    [kafka]
    bootstrap.servers = "${CLUSTER}"
    "request.timeout.ms" = 5000

    [spark]
    sql.shuffle.partitions = 4

    [sources.orders]
    type = "topic"
    topics = ["orders", "more-orders"]
    starting = "latest"
    key_format = "string"
    max_records = 1000
    format = { kind = "json", schema_file = "order.ddl" }
    watermark = { column = "at", delay = "10s" }
    options = { maxTriggerDelay = "5s" }

    [sources.customers]
    type = "files"
    path = "customers"
    file_format = "csv"
    as_table = true
    options = { header = true }

    [[transforms]]
    name = "joined"
    sql = "SELECT * FROM orders JOIN customers USING (id)"

    [[transforms]]
    name = "counted"
    function = "steps:count"
    inputs = ["joined", "customers"]

    [sink]
    type = "topic"
    topic = "totals"
    key = "id"
    format = { kind = "json" }
    transaction_timeout = "2m"

    [dead_letters]
    topic = "${LETTERS:-bad-orders}"
"""


def faults_of(path: Path, **environment: str) -> tuple[str, ...]:
    with pytest.raises(InvalidPipeline) as caught:
        load_pipeline(path, environment)
    assert all(line.startswith(f"{path}: ") for line in str(caught.value).splitlines())
    return caught.value.faults


def topic_pipeline(path: Path) -> tuple[Pipeline, TopicSource, TopicSink]:
    pipeline = load_pipeline(path, {"CLUSTER": "here:1"})
    source, sink = pipeline.sources["orders"], pipeline.sink
    assert isinstance(source, TopicSource)
    assert isinstance(sink, TopicSink)
    return pipeline, source, sink


def test_a_whole_file(pipeline_file: Write) -> None:
    path = pipeline_file(WHOLE, steps="def count(joined, customers): ...")
    (path.parent / "order.ddl").write_text("id BIGINT, at TIMESTAMP")
    pipeline, orders, sink = topic_pipeline(path)
    assert pipeline.checkpoint == str(path.parent / "progress" / "here")
    assert pipeline.spark == {"spark.sql.shuffle.partitions": "4"}
    assert pipeline.is_streaming
    assert orders.format is not None
    assert orders.format.schema == "id BIGINT, at TIMESTAMP"
    assert orders.watermark is not None
    assert orders.watermark.delay == 10_000
    assert reader_options(orders) == {
        "kafka.bootstrap.servers": "here:1",
        "kafka.request.timeout.ms": "5000",
        "kafka.isolation.level": "read_committed",
        "subscribe": "orders,more-orders",
        "includeHeaders": "false",
        "failOnDataLoss": "true",
        "startingOffsets": "latest",
        "maxOffsetsPerTrigger": "1000",
        "maxTriggerDelay": "5s",
    }
    customers = pipeline.sources["customers"]
    assert isinstance(customers, FileSource)
    assert customers.path == str(path.parent / "customers")
    assert reader_options(customers) == {"header": "true"}
    assert [each.name for each in pipeline.transforms] == ["joined", "counted"]
    assert sink.kafka["bootstrap.servers"] == "here:1"
    assert sink.transaction_timeout == 120_000
    assert pipeline.dead_letters is not None
    assert pipeline.dead_letters.topic == "bad-orders"


MINIMAL = """
    name = "copy"
    [sources.orders]
    type = "topic"
    topics = "orders"
    [sink]
    type = "files"
    path = "s3a://bucket/orders"
    file_format = "parquet"
"""


def test_defaults(pipeline_file: Write) -> None:
    path = pipeline_file(MINIMAL)
    pipeline = load_pipeline(path, {})
    assert pipeline.guarantee == "exactly-once"
    assert pipeline.kafka == {"bootstrap.servers": "localhost:9092"}
    assert pipeline.checkpoint == str(path.parent / "checkpoints" / "copy")
    assert isinstance(pipeline.sink, FileSink)
    assert pipeline.sink.path == "s3a://bucket/orders"
    assert pipeline.topic_sources["orders"].topics == ("orders",)
    assert load_pipeline(path, {"BARNABAS_BOOTSTRAP": "there:2"}).kafka["bootstrap.servers"] == "there:2"


def test_all_faults_are_told_with_what_is_allowed_and_the_nearest_key(pipeline_file: Write) -> None:
    path = pipeline_file(
        """
        name = "orders by minute"
        guarntee = "exactly-once"
        output_mode = "apend"
        [kafka]
        bootstrap.servers = "${NOBODY}"
        acks = [1]
        [sources.orders]
        type = "topc"
        [sources.customers]
        type = "topic"
        topics = 7
        max_records = 0
        headers = "yes"
        watermark = { column = "at", delay = "soon" }
        [[transforms]]
        name = "x"
        function = "no function"
        [sink]
        type = "files"
        path = "out"
        """
    )
    assert faults_of(path) == (
        (
            "guarntee: there is no such key; did you mean guarantee?; there are name, sources, sink, sinks,"
            " transforms, guarantee, output_mode, trigger, checkpoint, dead_letters, kafka, spark"
        ),
        "name: 'orders by minute' is not allowed; it takes letters, digits, dots, dashes and underscores",
        (
            'sources.orders.type: \'topc\' is not allowed; it takes "topic", "log", "files" or "database"; did you mean'
            " topic?"
        ),
        "sources.customers.topics[0]: 7 is not allowed; it takes a text",
        "sources.customers.headers: 'yes' is not allowed; it takes true or false",
        "sources.customers.max_records: 0 is not allowed; it takes a number above 0",
        (
            'sources.customers.watermark.delay: \'soon\' is not allowed; it takes a duration such as "500ms", "10s" or'
            ' "1h30m"'
        ),
        'sink.file_format: is missing; it takes "json", "csv" or "parquet": The format of the files.',
        "transforms[0].function: 'no function' is not allowed; it takes module:function",
        'output_mode: \'apend\' is not allowed; it takes "append", "update" or "complete"; did you mean append?',
        "kafka.bootstrap.servers: the environment has no NOBODY: set it, or write ${NOBODY:-other} for a default",
        "kafka.acks: [1] is not allowed; it takes a text, a number, or true or false",
    )


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ('trigger = "5 x"', "trigger: '5 x' is not allowed"),
        ('sources.o-r = {type = "topic", topics = "a"}', "sources.o-r: 'o-r' is not allowed; a name in SQL"),
        ('sources.ORDERS = {type = "topic", topics = "a"}', "sources.orders: 'orders' is there already"),
        ('sources.b = {type = "topic", topics = "a"}', "transforms: is missing: there are 2 sources"),
        ('sources.b = {type = "topic"}', "sources.b: say what to read with one of topics and pattern"),
        (
            'sources.b = {type = "topic", topics = "a", latest_per_key = true}',
            "sources.b.latest_per_key: is for tables",
        ),
        (
            'sources.b = {type = "topic", topics = "a", as_table = true, max_records = 1}',
            "sources.b.max_records: is for streams",
        ),
        (
            'sources.b = {type = "topic", topics = "a", options = {subscrib = "a"}}',
            "sources.b: ",
        ),
        (
            'sources.b = {type = "topic", topics = "a", format = {kind = "json"}}',
            "sources.b.format.schema: is missing",
        ),
        (
            'sources.b = {type = "topic", topics = "a", format = {kind = "string", schema = "x"}}',
            "sources.b.format.schema: string has none; json and avro have",
        ),
        (
            'sources.b = {type = "topic", topics = "a", format = {kind = "avro", registry = "http://r"}}',
            "sources.b.format.subject: is missing",
        ),
        (
            'sources.b = {type = "topic", topics = "a", format = {kind = "avro", schema_file = "none.avsc"}}',
            "sources.b.format.schema_file: ",
        ),
        (
            'sources.b = {type = "files", path = "a", file_format = "json"}',
            "sources.b.schema: is missing: a stream of",
        ),
        (
            'sources.b = {type = "database", url = "sqlite:///x"}',
            "sources.b: say what to read with one of table and",
        ),
        (
            'sources.b = {type = "database", url = "sqlite:///x", table = "t"}',
            "sources.b.growing_column: is missing: a stream",
        ),
        ('transforms = [{name = "x"}]', "transforms[0]: say what to do with one of sql and function"),
        (
            'transforms = [{name = "x", sql = "a", inputs = ["orders"]}]',
            "transforms[0].inputs: is for functions",
        ),
        (
            'transforms = [{name = "x", function = "a:b", inputs = ["order"]}]',
            "transforms[0].inputs[0]: 'order' is no source and no earlier step; did you mean orders?; there are orders",
        ),
        (
            'transforms = [{name = "x", function = "no_such_module:f"}]',
            "transforms[0].function: there is no module no_such_module in ",
        ),
        ('transforms = [{name = "orders", sql = "a"}]', "transforms[0].name: 'orders' is there already"),
        ("dead_letters = {drop = true}", "dead_letters: no source has a format"),
        (
            'dead_letters = {drop = true, topic = "a"}',
            "dead_letters: say what to do with one of topic and drop",
        ),
        ('dead_letters = {topic = "orders"}', "dead_letters.topic: 'orders' is what sources.orders reads"),
    ],
)
def test_what_keys_may_not_say_together(pipeline_file: Write, more: str, fault: str) -> None:
    path = pipeline_file(f"{more}\n{MINIMAL}")
    assert [told for told in faults_of(path) if told.startswith(fault)]


@pytest.mark.parametrize(
    ("sink", "fault"),
    [
        ('{type = "topic", topic = "orders"}', "sink.topic: 'orders' is what the pipeline reads"),
        ('{type = "topic", format = {kind = "json"}}', "sink.topic: is missing"),
        ('{type = "delta", path = "a", mode = "upsert"}', 'sink.keys: are what mode = "upsert" needs'),
        ('{type = "database", url = "a", table = "b", keys = ["c"]}', "sink.keys: are what mode"),
        ('{type = "mirror", kafka = {acks = "all"}}', "sink.kafka.bootstrap.servers: is missing"),
    ],
)
def test_sinks(pipeline_file: Write, sink: str, fault: str) -> None:
    path = pipeline_file(f'name = "x"\nsink = {sink}\nsources.orders = {{type = "topic", topics = "orders"}}')
    (told,) = faults_of(path)
    assert told.startswith(fault)


@pytest.mark.parametrize(
    ("sinks", "fault"),
    [
        ("", "sink: say where the rows go with one [sink], or with a table [sinks.NAME] for each of several"),
        (
            'sink = {type = "delta", path = "a"}\nsinks.b = {type = "delta", path = "b"}',
            "sink: say where the rows go with one [sink]",
        ),
        ('sinks.b-c = {type = "delta", path = "a"}', "sinks.b-c: 'b-c' is not allowed; a name takes letters"),
        (
            'sinks.b = {type = "delta", path = "a", from = "order"}',
            "sinks.b.from: 'order' is no source and no step; did you mean orders?; there are orders",
        ),
        (
            'sinks.b = {type = "topic", topic = "orders"}',
            "sinks.b.topic: 'orders' is what the pipeline reads",
        ),
        ('sinks.b = {type = "delta", path = "a", keys = ["k"]}', "sinks.b.keys: are what mode"),
        (
            'sinks.b = {type = "mirror", kafka = {bootstrap.servers = "there:1"}}',
            "sinks.b: a mirror is a pipeline of its own, with [sink]",
        ),
        (
            (
                'sinks.a = {type = "files", path = "a", file_format = "json"}\n'
                'sinks.b = {type = "files", path = "a", file_format = "json"}'
            ),
            "sinks.b.path: sinks.a writes there",
        ),
        (
            "\n".join(f'sinks.s{number} = {{type = "delta", path = "a"}}' for number in range(SINKS_MAX + 1)),
            f"sinks: there are {SINKS_MAX + 1}; the limit is {SINKS_MAX}",
        ),
    ],
)
def test_several_sinks(pipeline_file: Write, sinks: str, fault: str) -> None:
    path = pipeline_file(f'name = "x"\n{sinks}\nsources.orders = {{type = "topic", topics = "orders"}}')
    (told,) = faults_of(path)
    assert told.startswith(fault)


def test_sinks_with_the_same_rows_share_a_query(pipeline_file: Write) -> None:
    path = pipeline_file(
        """
        name = "x"
        checkpoint = "/c"
        sources.a = { type = "topic", topics = "a" }
        sources.b = { type = "topic", topics = "b" }
        [sinks.one]
        type = "topic"
        from = "a"
        topic = "one"
        kafka = { acks = "all" }
        [sinks.two]
        type = "files"
        from = "b"
        path = "two"
        file_format = "json"
        [sinks.three]
        type = "delta"
        from = "a"
        path = "three"
        """
    )
    pipeline = load_pipeline(path, {"BARNABAS_BOOTSTRAP": "here:1"})
    one = pipeline.sinks["one"]
    assert isinstance(one, TopicSink)
    assert one.kafka == {"bootstrap.servers": "here:1", "acks": "all"}
    assert [
        (flow.name, flow.checkpoint, [(each.key, each.group) for each in flow.outputs])
        for flow in flows_of(pipeline)
    ] == [
        ("x.a", "/c/rows/a", [("sinks.one", "x.one"), ("sinks.three", "x.three")]),
        ("x.b.two", "/c/files/two", [("sinks.two", "x.two")]),
    ]


def test_a_mirror_takes_topics_as_they_are(pipeline_file: Write) -> None:
    text = """
        name = "x"
        sink = {{type = "mirror", kafka = {{bootstrap.servers = "there:1"}}}}
        sources.orders = {{type = "topic", topics = "orders"{more}}}
    """
    assert load_pipeline(pipeline_file(text.format(more="")), {}).name == "x"
    (told,) = faults_of(pipeline_file(text.format(more=', format = {kind = "string"}')))
    assert told.startswith("sink: a mirror takes one source of topics as they are")


def test_tables_alone_cannot_be_exactly_once_in_a_topic(pipeline_file: Write) -> None:
    text = """
        name = "x"
        {more}
        sink = {{type = "topic", topic = "t", format = {{kind = "json"}}}}
        sources.files = {{type = "files", path = "in", file_format = "json", as_table = true}}
    """
    (told,) = faults_of(pipeline_file(text.format(more="")))
    assert told.startswith('guarantee: a pipeline of tables alone can only be "at-least-once"')
    assert not load_pipeline(pipeline_file(text.format(more='guarantee = "at-least-once"')), {}).is_streaming


def test_what_is_no_toml(pipeline_file: Write, tmp_path: Path) -> None:
    (told,) = faults_of(pipeline_file("name = "))
    assert told.startswith("this is no TOML: Invalid value")
    (tmp_path / "bytes.toml").write_bytes(b"name = '\xff'")
    assert faults_of(tmp_path / "bytes.toml")[0].startswith("this is no TOML: 'utf-8' codec can't decode")
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 21))
    assert faults_of(tmp_path / "large.toml") == ("the file has more than 1048576 bytes",)
    (told,) = faults_of(pipeline_file("name = " + "[" * 50_000))
    assert "nested too deeply" in told
    assert faults_of(pipeline_file(f"{MINIMAL}\n[kafka]\n{'a.' * 30}b = 1"))[0].startswith("kafka.a.a.")
    with pytest.raises(FileNotFoundError):
        load_pipeline(tmp_path / "none.toml")


def test_faults_have_a_bound(pipeline_file: Write) -> None:
    path = pipeline_file("\n".join(f"key{number} = 1" for number in range(FAULTS_MAX + 7)))
    with pytest.raises(InvalidConfig) as caught:
        load_pipeline(path, {})
    assert str(caught.value).count("\n") == FAULTS_MAX
    assert str(caught.value).endswith("and 9 more")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500), ("10s", 10_000), ("1h30m", 5_400_000), ("0s", 0), ("1.5s", 1_500), ("1d", 86_400_000)],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "10", "s", "10 parsecs", "-1s", "10s later"])
def test_what_is_no_duration(text: str) -> None:
    assert duration_ms(text) is None


def test_dollars(pipeline_file: Write) -> None:
    path = pipeline_file(
        MINIMAL + '[[transforms]]\nname = \'x\'\nsql = \'SELECT "$${a}", "${B}", "${C:-}", "$5"\''
    )
    assert load_pipeline(path, {"B": "b"}).transforms[0].sql == 'SELECT "${a}", "b", "", "$5"'


def test_a_file_is_read_without_spark(pipeline_file: Write) -> None:
    code = (
        "import sys, barnabas.spark.pipeline.load as load, barnabas.spark.pipeline.status;"
        f"load.load_pipeline({str(pipeline_file(MINIMAL))!r});"
        "print(sorted({'pyspark', 'pyarrow', 'pandas', 'py4j'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True, env=os.environ
    )
    assert done.stdout == "[]\n"
