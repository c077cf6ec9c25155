"""What the source does with a broker, without Spark: plans on the driver, reads in tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan

import barnabas.client.reader.ranges
import barnabas.spark.topics.fetch
import barnabas.spark.topics.reading
from barnabas.client.consumer.fetched import Fetched
from barnabas.errors import InvalidConfig
from barnabas.model import TopicPartition
from barnabas.spark.topics.directory import BrokerUnreachable, DataLost
from barnabas.spark.topics.fetch import reader_of
from barnabas.spark.topics.options import parse_options
from barnabas.spark.topics.plan import OffsetRange
from barnabas.spark.topics.reading import read_range
from barnabas.spark.topics.schema import spark_schema
from barnabas.spark.topics.source import TopicReader
from barnabas.testing import Broker, free_port
from tests.spark.topic_reading import BASE_MS, bounds, expire, fill, given, places, reader, rows
from tests.waiting import Deadline


def test_a_batch_reads_all_there_is(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 3})
    fill(broker, topic, [20, 0, 5])
    found = rows(reader(broker, topic))
    assert places(found) == [(0, number) for number in range(20)] + [(2, number) for number in range(5)]
    assert [row["value"] for row in found[:3]] == [b"0-0", b"0-1", b"0-2"]
    assert found[1]["timestamp"] == datetime.fromtimestamp(BASE_MS / 1_000 + 1, UTC)
    assert {row["topic"] for row in found} == {topic}
    assert "headers" not in found[0]


def test_fetched_bytes_are_not_copied_before_they_are_columns(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topics({topic: 1})
    fill(broker, topic, [5])
    seen: list[tuple[Fetched, memoryview]] = []

    def fetch(*arguments: Any, **settings: Any) -> Iterator[Fetched]:
        for fetched in barnabas.spark.topics.fetch.fetch_range(*arguments, **settings):
            assert isinstance(fetched.data, memoryview)
            seen.append((fetched, fetched.data))
            yield fetched

    monkeypatch.setattr(barnabas.spark.topics.reading, "fetch_range", fetch)
    assert [row["value"] for row in rows(reader(broker, topic))] == [b"0-%d" % number for number in range(5)]
    assert [fetched.as_bytes() is data.obj for fetched, data in seen] == [True]


def test_an_empty_topic_has_no_tasks(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 2})
    made = reader(broker, topic)
    assert made.partitions() == []
    assert rows(made) == []


def test_topics_by_name_pattern_and_partition(broker: Broker, topic: str) -> None:
    first, second = f"{topic}-x", f"{topic}-y"
    broker.create_topics({first: 2, second: 1})
    fill(broker, first, [2, 2])
    fill(broker, second, [1])
    assert len(rows(reader(broker, f"{first},{second}"))) == 5
    pattern = {**given(broker, ""), "subscribePattern": f"{topic}-[xz]"}
    del pattern["subscribe"]
    schema = spark_schema(include_headers=False)
    assert len(rows(TopicReader(parse_options(pattern), schema))) == 4
    pattern["subscribePattern"] = topic
    assert rows(TopicReader(parse_options(pattern), schema)) == []
    assigned = {**pattern, "assign": f'{{"{first}":[1]}}'}
    del assigned["subscribePattern"]
    assert places(rows(TopicReader(parse_options(assigned), schema))) == [(1, 0), (1, 1)]
    assigned["assign"] = f'{{"{first}":[7]}}'
    with pytest.raises(InvalidConfig, match=f"assign: topic '{first}' has no partition 7"):
        TopicReader(parse_options(assigned), schema).partitions()


def test_a_missing_topic_is_told_of_on_the_driver(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 1})
    with pytest.raises(
        InvalidConfig, match="subscribe: there is no topic 'nowhere'; create it, or correct the name"
    ):
        reader(broker, f"{topic},nowhere").partitions()


def test_an_unreachable_broker_is_told_of_on_the_driver(broker: Broker, topic: str) -> None:
    port = free_port()
    options = {
        "kafka.bootstrap.servers": f"127.0.0.1:{port}",
        "subscribe": topic,
        "kafka.default.api.timeout.ms": "300",
    }
    made = TopicReader(parse_options(options), spark_schema(include_headers=False))
    with pytest.raises(
        BrokerUnreachable, match=f"kafka.bootstrap.servers=127.0.0.1:{port}: .*correct the address"
    ):
        made.partitions()


def test_offsets_of_beginning_and_end(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 2})
    fill(broker, topic, [10, 10])
    found = rows(
        reader(
            broker,
            topic,
            startingOffsets=f'{{"{topic}":{{"0":3,"1":-2}}}}',
            endingOffsets=f'{{"{topic}":{{"0":-1,"1":4}}}}',
        )
    )
    assert places(found) == [(0, number) for number in range(3, 10)] + [(1, number) for number in range(4)]
    with pytest.raises(
        InvalidConfig, match=f"must name all partitions that are read, and no others; {topic}-1"
    ):
        reader(broker, topic, startingOffsets=f'{{"{topic}":{{"0":3}}}}').partitions()


def test_times_of_beginning_and_end(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 1})
    fill(broker, topic, [10])
    made = reader(broker, topic, startingTimestamp=BASE_MS + 2_500, endingTimestamp=BASE_MS + 5_000)
    assert places(rows(made)) == [(0, 3), (0, 4)]
    made = reader(broker, topic, startingOffsetsByTimestamp=f'{{"{topic}":{{"0":{BASE_MS + 9_000}}}}}')
    assert places(rows(made)) == [(0, 9)]
    late = BASE_MS + 60_000
    assert places(rows(reader(broker, topic, endingTimestamp=late))) == [(0, number) for number in range(10)]
    with pytest.raises(InvalidConfig, match=f"no record at or after {late}; choose an earlier time"):
        reader(broker, topic, startingTimestamp=late).partitions()
    made = reader(broker, topic, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert rows(made) == []


def test_large_ranges_are_split(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topics({topic: 1})
    fill(broker, topic, [100])
    assert len(reader(broker, topic, minPartitions=4).partitions()) == 4
    assert len(reader(broker, topic, maxRecordsPerPartition=30).partitions()) == 4
    assert len(reader(broker, topic).partitions()) == 1
    made = reader(broker, topic, minPartitions=7)
    assert places(rows(made)) == [(0, number) for number in range(100)]


def test_filters_reach_the_plan(broker: Broker, topic: str) -> None:
    other = f"{topic}-other"
    broker.create_topics({topic: 2, other: 1})
    fill(broker, topic, [10, 10])
    fill(broker, other, [10])
    made = reader(broker, f"{topic},{other}")
    left = made.pushFilters(
        [
            EqualTo(("topic",), topic),
            In(("partition",), (1, 5)),
            GreaterThanOrEqual(("offset",), 2),
            LessThan(("offset",), 8),
            GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(BASE_MS / 1_000 + 4, UTC)),
            LessThan(("timestamp",), datetime.fromtimestamp(BASE_MS / 1_000 + 7, UTC)),
            value := EqualTo(("value",), b"1-5"),
        ]
    )
    assert left == [value]
    assert bounds(made.partitions()) == [(1, 4, 8)]
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows(made)] == [
        (topic, 1, 4),
        (topic, 1, 5),
        (topic, 1, 6),
    ]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_range_spans_fetches_and_ends_within_a_batch(
    broker: Broker, topic: str, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topics({topic: 1})
    with broker.producer(compression_type=compression) as producer:
        for start in range(0, 1_000, 50):
            producer.send_many(
                topic, [b"%0100d" % number for number in range(start, start + 50)], partition=0
            )
            producer.flush()
    # Small columns, small fetches: many of each.
    monkeypatch.setattr(barnabas.spark.topics.reading, "COLUMNS_BYTES", 10_000)
    made = reader(
        broker,
        topic,
        startingOffsets=f'{{"{topic}":{{"0":13}}}}',
        endingOffsets=f'{{"{topic}":{{"0":987}}}}',
        kafka__max__partition__fetch__bytes=2_000,
        kafka__fetch__max__bytes=2_000,
    )
    (partition,) = made.partitions()
    batches = list(made.read(partition))
    assert len(batches) > 5
    table = pa.Table.from_batches(batches)
    assert table.column("offset").to_pylist() == list(range(13, 987))
    assert table.column("value")[0].as_py() == b"%0100d" % 13


def test_committed_records_alone_if_asked_for(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 1})
    with broker.producer(transactional_id=topic) as producer:
        producer.init_transactions()
        for number, is_good in enumerate([True, False, True, False]):
            producer.begin_transaction()
            producer.send(topic, value=b"%d" % number, partition=0)
            producer.flush()
            if is_good:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        committed = reader(broker, topic, kafka__isolation__level="read_committed")
        assert [row["value"] for row in rows(committed)] == [b"0", b"2"]
        assert [row["value"] for row in rows(reader(broker, topic))] == [b"0", b"1", b"2", b"3"]
        # What a transaction has not decided is not there yet: the end is the last stable offset.
        producer.begin_transaction()
        producer.send(topic, value=b"open", partition=0)
        producer.flush()
        assert [row["value"] for row in rows(committed)] == [b"0", b"2"]
        assert bounds(committed.partitions()) == [(0, 0, 8)]
        producer.abort_transaction()


@pytest.mark.slow
def test_offsets_that_a_cleaner_has_removed_are_no_loss(topic: str) -> None:
    with Broker(log_cleaner_backoff_ms=20) as own, own.admin() as admin:
        configs = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
        admin.create_topics({topic: 1}, configs=configs)
        with own.producer() as producer:
            for number in range(300):
                producer.send(topic, value=b"%d" % number, key=b"%d" % (number % 7), partition=0)
                producer.flush()
        deadline = Deadline(120)
        while len(whole := rows(reader(own, topic))) > 100:
            deadline.check(f"the cleaner has left {len(whole)} records")
            time.sleep(0.05)
        parts = rows(reader(own, topic, maxRecordsPerPartition=3))
        # The cleaner may have gone on meanwhile, and never removes the last record of a key.
        assert set(places(parts)) <= set(places(whole))
        assert {row["key"]: row["value"] for row in parts} == {
            b"%d" % (n % 7): b"%d" % n for n in range(293, 300)
        }


def test_offsets_that_have_expired(broker: Broker, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    broker.create_topics({topic: 1})
    fill(broker, topic, [10])
    options = {"startingOffsets": f'{{"{topic}":{{"0":2}}}}', "endingOffsets": f'{{"{topic}":{{"0":8}}}}'}
    strict, lenient = (reader(broker, topic, failOnDataLoss=value, **options) for value in ("true", "false"))
    planned = strict.partitions()
    expire(broker, topic, 5)
    with pytest.raises(
        DataLost, match=r"startingOffsets: offset 2 of .* has expired.* set failOnDataLoss=false"
    ):
        strict.partitions()
    assert places(rows(lenient)) == [(0, 5), (0, 6), (0, 7)]
    # They may also expire after the plan.
    with pytest.raises(DataLost, match=r"offsets 2 to 4 of .* have expired; its log begins at 5"):
        list(strict.read(planned[0]))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        (batch,) = lenient.read(planned[0])
    assert batch.column("offset").to_pylist() == [5, 6, 7]
    assert "offsets 2 to 4" in caplog.text
    expire(broker, topic, 10)
    assert list(lenient.read(planned[0])) == []


def test_offsets_that_do_not_exist(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 1})
    fill(broker, topic, [10])
    options = {"endingOffsets": f'{{"{topic}":{{"0":15}}}}'}
    with pytest.raises(DataLost, match=r"endingOffsets: offset 15 of .* does not exist; its log ends at 10"):
        reader(broker, topic, **options).partitions()
    assert len(rows(reader(broker, topic, failOnDataLoss="false", **options))) == 10


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What brokers say is so after a moment, on one that has no other leader."""
    monkeypatch.setattr(barnabas.client.reader.ranges, "SETTLING_S", 0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_log_that_is_shorter_than_planned(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 1})
    fill(broker, topic, [10])
    options = parse_options(given(broker, topic, kafka__fetch__max__wait__ms=20))
    lenient = parse_options(given(broker, topic, kafka__fetch__max__wait__ms=20, failOnDataLoss="false"))
    schema = spark_schema(include_headers=False)
    for start in (5, 10, 12):
        beyond = OffsetRange(TopicPartition(topic, 0), start, 15)
        with pytest.raises(DataLost, match="ends at offset 10, before"):
            list(read_range(options, schema, beyond))
        found = [row for batch in read_range(lenient, schema, beyond) for row in batch.to_pylist()]
        assert [row["offset"] for row in found] == list(range(start, 10))


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_topic_that_is_deleted_or_created_again_after_the_plan(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 1})
    fill(broker, topic, [10])
    strict, lenient = reader(broker, topic), reader(broker, topic, failOnDataLoss="false")
    (planned,) = strict.partitions()
    assert len(list(strict.read(planned))) == 1
    with broker.admin() as admin:
        admin.delete_topics(topic)
        for is_anew in (False, True):
            if is_anew:
                admin.create_topics({topic: 1})
                fill(broker, topic, [20])
            with pytest.raises(DataLost, match="was deleted"):
                list(strict.read(planned))
            assert list(lenient.read(planned)) == []
    assert len(rows(strict)) == 20


def test_tasks_of_a_process_share_connections(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 2})
    fill(broker, topic, [10, 10])
    made = reader(broker, topic)
    first, second = made.partitions()
    client = reader_of(made._options.kafka)
    # A task that stops in the middle, as that of a query with a limit, leaves its connection in order.
    stopped = made.read(first)
    next(stopped)
    stopped.close()  # type: ignore[attr-defined]
    assert [len(batch) for batch in made.read(second)] == [10]
    assert reader_of(made._options.kafka) is client
    assert len(barnabas.spark.topics.fetch._readers) == 1


def test_clients_of_a_process_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barnabas.spark.topics.fetch, "READERS_MAX", 2)
    settings = [{"bootstrap.servers": broker.bootstrap, "client.id": name} for name in "abc"]
    first = reader_of(settings[0])
    reader_of(settings[1])
    assert reader_of(settings[0]) is first
    reader_of(settings[2])
    assert reader_of(settings[0]) is first
    assert len(barnabas.spark.topics.fetch._readers) == 2


@pytest.mark.slow
def test_a_broker_that_comes_back_is_gone_on_with(topic: str) -> None:
    with Broker(topics={topic: 1}) as own:
        fill(own, topic, [1_000])
        made = reader(own, topic, kafka__max__partition__fetch__bytes=1_000, kafka__fetch__max__bytes=1_000)
        (planned,) = made.partitions()
        reading = made.read(planned)
        found = next(reading).column("offset").to_pylist()
        own.restart()
        for batch in reading:
            found += batch.column("offset").to_pylist()
        assert found == list(range(1_000))


@pytest.mark.slow
def test_what_does_not_get_on_fails_in_time(topic: str) -> None:
    with Broker(topics={topic: 1}) as own:
        fill(own, topic, [10])
        made = reader(own, topic, kafkaConsumer__pollTimeoutMs=200, kafka__request__timeout__ms=200)
        (planned,) = made.partitions()
        own.kill()
        with pytest.raises(
            Exception, match=r"within 200 ms: NETWORK_EXCEPTION.* raise kafkaConsumer.pollTimeoutMs"
        ):
            list(made.read(planned))
