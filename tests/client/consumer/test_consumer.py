"""The consumer with partitions assigned by hand, against our broker and Apache Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import barnabas
from barnabas.client.consumer.intake import DeserializationError
from barnabas.client.failures import ClientClosed
from barnabas.client.subscription import ConsumerError, NoOffsetForPartition
from barnabas.config.definition import InvalidSetting, UnknownSetting
from barnabas.errors import (
    InvalidConfig,
    InvalidGroupId,
    InvalidTopicException,
    OffsetOutOfRange,
    RequestTimedOut,
)
from barnabas.model import TopicPartition
from barnabas.records.layout import TimestampType
from tests.client.consumer_servers import SERVERS, WAIT_S, Server, numbered, read, running, values
from tests.waiting import Deadline, wait_until


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(request.param, tmp_path_factory.mktemp("consumer")) as found:
        yield found


def test_records_come_whole_and_in_order(server: Server) -> None:
    topic = server.topic(3)
    with barnabas.Producer(bootstrap_servers=server.address) as producer:
        for number in range(300):
            producer.send(
                topic,
                b"value-%d" % number if number % 7 else None,
                key=b"key-%d" % number if number % 5 else None,
                partition=number % 3,
                timestamp_ms=1_600_000_000_000 + number,
                headers=[("h", b"%d" % number), ("h", None)] if number % 4 == 0 else None,
            )
        producer.flush(timeout_ms=WAIT_S * 1000)
    with server.consumer() as consumer:
        consumer.assign((topic, number) for number in range(3))
        records = read(consumer, 300)
        assert consumer.poll(0) == []
    for partition in range(3):
        part = [record for record in records if record.partition == partition]
        assert [record.offset for record in part] == list(range(100))
        for record in part:
            number = 3 * record.offset + partition
            assert record.topic == topic
            assert record.value == (b"value-%d" % number if number % 7 else None)
            assert record.key == (b"key-%d" % number if number % 5 else None)
            assert record.timestamp_ms == 1_600_000_000_000 + number
            assert record.timestamp_type is TimestampType.CREATE_TIME
            assert record.headers == ((("h", b"%d" % number), ("h", None)) if number % 4 == 0 else ())
            assert record.leader_epoch >= 0


def test_a_poll_gives_no_more_than_asked_for(server: Server) -> None:
    topic = server.topic()
    server.produce(topic, numbered(25))
    with server.consumer(max_poll_records=10) as consumer:
        consumer.assign([(topic, 0)])
        assert len(consumer.poll(WAIT_S * 1000)) == 10
        assert consumer.position((topic, 0)) == 10
        assert values(consumer.poll(WAIT_S * 1000, max_records=3)) == numbered(3, 10)
        assert values(read(consumer, 12)) == numbered(12, 13)
        assert consumer.position((topic, 0)) == 25


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records(server: Server, compression: str) -> None:
    topic = server.topic()
    sent = [b"the same again %d" % (number % 9) for number in range(400)]
    server.produce(topic, sent, compression_type=compression, linger_ms=20)
    with server.consumer() as consumer:
        consumer.assign([(topic, 0)])
        assert values(read(consumer, 400)) == sent
        consumer.seek((topic, 0), 123)
        assert values(read(consumer, 277)) == sent[123:]


@pytest.mark.slow
def test_seeking(server: Server) -> None:
    topic = server.topic(2)
    server.produce(topic, numbered(10))
    server.produce(topic, numbered(5), partition=1)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with server.consumer(auto_offset_reset="latest") as consumer:
        consumer.assign([first, second])
        assert consumer.position(first) == 10
        assert consumer.beginning_offsets() == {first: 0, second: 0}
        assert consumer.end_offsets(first, second) == {first: 10, second: 5}
        consumer.seek(first, 7)
        assert values(read(consumer, 3)) == numbered(3, 7)
        consumer.seek_to_beginning(second)
        assert values(read(consumer, 5)) == numbered(5)
        consumer.seek_to_beginning()
        assert len(read(consumer, 15)) == 15
        consumer.seek_to_end(first)
        consumer.seek(second, barnabas.OffsetAndMetadata(4))
        assert values(read(consumer, 1)) == [b"4"]
        assert consumer.position(first) == 10
        assert consumer.lag(first) == 0
        consumer.seek(first, 4)
        assert consumer.lag(first) == 6


@pytest.mark.slow
def test_offsets_for_times(server: Server) -> None:
    topic = server.topic(2)
    with barnabas.Producer(bootstrap_servers=server.address) as producer:
        for number in range(5):
            producer.send(topic, b"x", partition=0, timestamp_ms=1_000 * number + 1).result(WAIT_S)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with server.consumer() as consumer:
        found = consumer.offsets_for_times({first: 2_000, second: 0})
        at_first = found[first]
        assert at_first is not None
        assert (at_first.offset, at_first.timestamp_ms) == (2, 2_001)
        assert found[second] is None
        assert consumer.offsets_for_times({first: 5_000}) == {first: None}


def test_pausing(server: Server) -> None:
    topic = server.topic(2)
    server.produce(topic, numbered(20))
    server.produce(topic, numbered(20), partition=1)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with server.consumer(max_poll_records=4) as consumer:
        consumer.assign([first, second])
        seen = read_some(consumer)
        consumer.pause(first)
        assert consumer.paused() == {first}
        # What was fetched before the pause waits; the rest comes from the other partition alone.
        taken: list[barnabas.ConsumerRecord] = []
        while sum(record.partition == 1 for record in (*seen, *taken)) < 20:
            taken += consumer.poll(WAIT_S * 1000)
        assert {record.partition for record in taken} == {1}
        assert consumer.poll(0) == []
        consumer.resume()
        assert consumer.paused() == set()
        left = 20 - sum(record.partition == 0 for record in seen)
        records = [*seen, *read(consumer, left)]
    assert values([record for record in records if record.partition == 0]) == numbered(20)


def read_some(consumer: barnabas.Consumer) -> list[barnabas.ConsumerRecord]:
    records = consumer.poll(WAIT_S * 1000)
    assert records
    return records


def test_raw_batches_and_records_take_turns(server: Server) -> None:
    topic = server.topic()
    for start in range(0, 40, 10):
        server.produce(topic, numbered(10, start), linger_ms=50)
    with server.consumer() as consumer:
        consumer.assign([(topic, 0)])
        got = values(consumer.poll(WAIT_S * 1000, max_records=3))
        assert got == numbered(3)
        deadline = Deadline()
        while len(got) < 40 and not deadline.is_over:
            for batch in consumer.poll_batches(100):
                assert batch.topic == topic
                assert batch.header.size_bytes == len(batch.data)
                got += [record.value or b"" for record in batch.records()]
            assert consumer.position((topic, 0)) == len(got)
        assert got == numbered(40)


def test_arrow_record_batches(server: Server) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is needed for record batches: install barnabas[arrow]")
    topic = server.topic(2)
    with barnabas.Producer(bootstrap_servers=server.address) as producer:
        for number in range(50):
            headers = [("h", b"%d" % number)] if number % 10 == 0 else None
            producer.send(
                topic,
                b"%d" % number,
                key=b"k",
                partition=number % 2,
                timestamp_ms=1_000 + number,
                headers=headers,
            )
        producer.flush(timeout_ms=WAIT_S * 1000)
    rows: list[dict[str, Any]] = []
    with server.consumer() as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        rows += [{"value": value} for value in values(consumer.poll(WAIT_S * 1000, max_records=3))]
        deadline = Deadline()
        while len(rows) < 50 and not deadline.is_over:
            made = consumer.poll_arrow(100)
            made.validate(full=True)
            rows += made.to_pylist()
        assert consumer.poll_arrow(0).num_rows == 0
        assert consumer.position((topic, 0)) == consumer.position((topic, 1)) == 25
    assert sorted((row["value"] for row in rows), key=int) == numbered(50)
    for row in rows[3:]:
        number = int(row["value"])
        assert (row["topic"], row["partition"], row["offset"]) == (topic, number % 2, number // 2)
        assert row["timestamp"].timestamp() == 1 + number / 1_000
        expected = [{"key": "h", "value": b"%d" % number}] if number % 10 == 0 else []
        assert (row["key"], row["headers"]) == (b"k", expected)


def test_iterating_goes_on_where_it_stopped(server: Server) -> None:
    topic = server.topic()
    server.produce(topic, numbered(30))
    with server.consumer(max_poll_records=7) as consumer:
        consumer.assign([(topic, 0)])
        got = []
        for record in consumer:
            got.append(record.value)
            assert consumer.position((topic, 0)) == record.offset + 1
            if len(got) in (3, 17, 20):
                break
        for record in consumer:
            got.append(record.value)
            if len(got) == 17:
                break
        got += values(consumer.poll(WAIT_S * 1000, max_records=2))
        assert got == numbered(19)
        assert next(consumer).value == b"19"
        consumer.seek((topic, 0), 28)
        assert next(consumer).value == b"28"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "first"), [("earliest", 0), ("latest", 10), ("by_duration:PT1H", 6), ("by_duration:PT1S", 10)]
)
def test_where_reading_begins(server: Server, policy: str, first: int) -> None:
    topic = server.topic(message_timestamp_type="CreateTime")
    now_ms = time.time_ns() // 1_000_000
    with barnabas.Producer(bootstrap_servers=server.address) as producer:
        for number in range(10):
            age_ms = 2 * 3_600_000 if number < 6 else 1_800_000
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=now_ms - age_ms)
        producer.flush(timeout_ms=WAIT_S * 1000)
    with server.consumer(auto_offset_reset=policy) as consumer:
        consumer.assign([(topic, 0)])
        assert consumer.position((topic, 0)) == first
        server.produce(topic, [b"10"])
        assert values(read(consumer, 11 - first)) == numbered(11 - first, first)


def test_none_leaves_it_to_the_caller(server: Server) -> None:
    topic = server.topic()
    server.produce(topic, numbered(3))
    with server.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(NoOffsetForPartition, match=r"seek\(\)"):
            consumer.poll(WAIT_S * 1000)
        with pytest.raises(NoOffsetForPartition):
            consumer.position((topic, 0))
        consumer.seek((topic, 0), 1)
        assert values(read(consumer, 2)) == numbered(2, 1)
        consumer.seek((topic, 0), 100)
        with pytest.raises(OffsetOutOfRange, match=r"offset 100 of .*auto\.offset\.reset=none"):
            consumer.poll(WAIT_S * 1000)
        consumer.seek_to_beginning((topic, 0))
        assert values(read(consumer, 3)) == numbered(3)


@pytest.mark.slow
def test_an_offset_that_is_gone_is_reset(server: Server) -> None:
    topic = server.topic()
    server.produce(topic, numbered(10))
    server.admin.delete_records({TopicPartition(topic, 0): 4})
    with server.consumer() as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 2)
        assert values(read(consumer, 6)) == numbered(6, 4)
        assert consumer.beginning_offsets((topic, 0)) == {TopicPartition(topic, 0): 4}


def test_only_committed_transactions_are_read(server: Server) -> None:
    topic = server.topic()
    server.produce(topic, [b"before"])
    settings = {"bootstrap_servers": server.address, "transactional_id": f"of-{topic}"}
    with barnabas.Producer(settings) as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            for step in range(3):
                producer.send(topic, b"%d-%d" % (number, step), partition=0)
            producer.flush(timeout_ms=WAIT_S * 1000)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0)
        producer.flush(timeout_ms=WAIT_S * 1000)
        committed = [b"before", *(b"%d-%d" % (number, step) for number in (0, 2) for step in range(3))]
        with server.consumer(isolation_level="read_committed") as consumer:
            consumer.assign([(topic, 0)])
            assert values(read(consumer, 7)) == committed
            assert consumer.poll(50) == []
            # Markers and aborted records are behind us, the open transaction is not.
            end_offset = consumer.end_offsets((topic, 0))[TopicPartition(topic, 0)]
            assert consumer.position((topic, 0)) == end_offset
            consumer.seek_to_beginning()
            batches = [
                record.value for batch in consumer.poll_batches(WAIT_S * 1000) for record in batch.records()
            ]
            assert batches == committed
        with server.consumer() as consumer:
            consumer.assign([(topic, 0)])
            assert len(read(consumer, 14)) == 14
        producer.abort_transaction()


@pytest.mark.slow
def test_a_poll_that_waits_is_woken_by_a_record(server: Server) -> None:
    topic = server.topic()
    with server.consumer(fetch_max_wait_ms=500) as consumer:
        consumer.assign([(topic, 0)])
        assert consumer.position((topic, 0)) == 0
        writer = threading.Timer(0.2, server.produce, (topic, [b"late"]))
        writer.start()
        assert values(consumer.poll(WAIT_S * 1000)) == [b"late"]
        writer.join()


@pytest.mark.slow
def test_a_topic_that_is_made_later_is_read(server: Server) -> None:
    with server.consumer(allow_auto_create_topics=False) as consumer:
        consumer.assign([("made-later", 0)])
        assert consumer.poll(50) == []
        server.topic(name="made-later")
        server.produce("made-later", numbered(2))
        assert values(read(consumer, 2)) == numbered(2)


def test_a_partition_that_is_not_there_keeps_nobody_else_waiting(server: Server) -> None:
    topic = server.topic()
    server.produce(topic, numbered(3))
    with server.consumer() as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        assert values(read(consumer, 3)) == numbered(3)
        consumer.seek_to_beginning((topic, 0))
        assert values(read(consumer, 3)) == numbered(3)


def test_a_partition_that_seeks_does_not_wait_behind_a_long_fetch_of_others(server: Server) -> None:
    topic = server.topic(2)
    server.produce(topic, numbered(1))
    sought, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    # Without data, the broker holds a fetch for longer than this test waits.
    with server.consumer(auto_offset_reset="latest", fetch_max_wait_ms=2 * WAIT_S * 1000) as consumer:
        consumer.assign([sought, other])
        assert consumer.position(sought) == 1
        assert consumer.position(other) == 0
        # The next fetch is of both.
        server.produce(topic, [b"before"], partition=1)
        assert values(read(consumer, 1)) == [b"before"]
        wait_until(lambda: consumer.metrics()["requests-in-flight"] == 1)
        consumer.seek_to_beginning(sought)
        # The broker answers the question for the offset behind the fetch that it holds.
        wait_until(lambda: consumer.metrics()["requests-in-flight"] == 2)
        server.produce(topic, [b"other"], partition=1)
        assert sorted(values(read(consumer, 2))) == [b"0", b"other"]


@pytest.mark.slow
def test_many_partitions_and_small_fetches(server: Server) -> None:
    topic = server.topic(8)
    with barnabas.Producer(bootstrap_servers=server.address, batch_size=500) as producer:
        for number in range(1_600):
            producer.send(topic, b"%d" % number + bytes(100), partition=number % 8)
        producer.flush(timeout_ms=WAIT_S * 1000)
    with server.consumer(max_partition_fetch_bytes=2_000, fetch_max_bytes=5_000) as consumer:
        consumer.assign((topic, number) for number in range(8))
        records = read(consumer, 1_600)
    for partition in range(8):
        assert [record.offset for record in records if record.partition == partition] == list(range(200))


@pytest.mark.slow
def test_deserializers_and_what_they_cannot_read(server: Server) -> None:
    topic = server.topic()
    server.produce(topic, [b"1", b"2", b"x", b"4"])

    class Upper:
        def deserialize(self, topic: str, data: bytes) -> str:
            return f"{topic}/{data!r}"

    with server.consumer(value_deserializer=int, key_deserializer=Upper()) as consumer:
        consumer.assign([(topic, 0)])
        assert [record.value for record in read_until(consumer, 2)] == [1, 2]
        for _ in range(2):
            with pytest.raises(DeserializationError, match=f"offset 2 of {topic}-0: ValueError") as failed:
                consumer.poll(WAIT_S * 1000)
        assert (failed.value.partition, failed.value.offset) == ((topic, 0), 2)
        assert consumer.position((topic, 0)) == 2
        consumer.seek((topic, 0), 3)
        assert [record.value for record in read(consumer, 1)] == [4]


def test_an_interrupt_in_a_poll_loses_nothing(server: Server) -> None:
    topic = server.topic()
    server.produce(topic, numbered(20))
    seen = 0

    def interrupted(data: bytes) -> bytes:
        nonlocal seen
        seen += 1
        if seen == 15:
            raise KeyboardInterrupt
        return data

    records = []

    def read_on() -> None:
        while True:
            records.extend(consumer.poll(WAIT_S * 1000))

    group = f"interrupted-{topic}"
    with server.consumer(group_id=group, value_deserializer=interrupted) as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(KeyboardInterrupt):
            read_on()
        assert consumer.position((topic, 0)) == len(records)
    with server.consumer(group_id=group) as later:
        later.assign([(topic, 0)])
        assert later.position((topic, 0)) == len(records)


def read_until(consumer: barnabas.Consumer, count: int) -> list[barnabas.ConsumerRecord]:
    records: list[barnabas.ConsumerRecord] = []
    while len(records) < count:
        records += consumer.poll(WAIT_S * 1000)
    return records


@pytest.mark.slow
def test_interceptors_see_records_and_commits(server: Server) -> None:
    topic = server.topic()
    server.produce(topic, numbered(4))
    seen: list[Any] = []

    class Even(barnabas.ConsumerInterceptor):
        def on_consume(self, records: list[barnabas.ConsumerRecord]) -> list[barnabas.ConsumerRecord]:
            return [record for record in records if record.offset % 2 == 0]

        def on_commit(self, offsets: Any) -> None:
            seen.append(dict(offsets))

        def close(self) -> None:
            seen.append("closed")

    group = f"group-of-{topic}"
    with server.consumer(group_id=group, enable_auto_commit=False, interceptor_classes=Even) as consumer:
        consumer.assign([(topic, 0)])
        got: list[bytes] = []
        while consumer.position((topic, 0)) < 4:
            got += values(consumer.poll(WAIT_S * 1000))
        assert got == [b"0", b"2"]
        consumer.commit()
    assert seen == [{(topic, 0): barnabas.OffsetAndMetadata(4, leader_epoch=0)}, "closed"]


def test_offsets_are_committed_and_found_again(server: Server) -> None:
    topic = server.topic(2)
    server.produce(topic, numbered(10))
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    group = f"group-of-{topic}"
    with server.consumer(group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([first, second])
        assert consumer.committed() == {first: None, second: None}
        read(consumer, 10)
        consumer.commit({first: 3})
        assert consumer.committed(first) == {first: barnabas.OffsetAndMetadata(3)}
        told: list[Any] = []
        future = consumer.commit_async(
            {first: barnabas.OffsetAndMetadata(6, "six")}, lambda *what: told.append(what)
        )
        future.result(WAIT_S)
        consumer.poll(0)
        assert told == [({first: barnabas.OffsetAndMetadata(6, "six")}, None)]
    with server.consumer(group_id=group) as consumer:
        consumer.assign([first])
        assert values(read(consumer, 4)) == numbered(4, 6)
        consumer.poll(0)
    # Closing has committed how far it was read.
    with server.consumer(group_id=group) as consumer:
        assert consumer.committed(first) == {first: barnabas.OffsetAndMetadata(10, leader_epoch=0)}


@pytest.mark.slow
def test_topics_and_partitions(server: Server) -> None:
    topic = server.topic(3)
    with server.consumer(allow_auto_create_topics=False) as consumer:
        assert [each.partition for each in consumer.partitions_for(topic)] == [0, 1, 2]
        assert len(consumer.topics()[topic].partitions) == 3
        with pytest.raises(RequestTimedOut, match="missing"):
            consumer.end_offsets(("missing", 0), timeout_ms=200)
        with pytest.raises(RequestTimedOut, match="has 3 partitions"):
            consumer.end_offsets((topic, 3), timeout_ms=200)


def test_errors_are_told_where_they_are_made(server: Server) -> None:
    topic = server.topic()
    with server.consumer() as consumer:
        with pytest.raises(ConsumerError, match=r"subscribe\(\) or assign\(\) first"):
            consumer.poll()
        with pytest.raises(InvalidGroupId, match=r"set group\.id"):
            consumer.subscribe(topic)
        with pytest.raises(InvalidGroupId, match=r"set group\.id"):
            consumer.commit()
        with pytest.raises(ConsumerError, match=r"without group\.id"):
            consumer.group_metadata()
        with pytest.raises(ConsumerError, match="is no partition"):
            consumer.assign([topic])  # type: ignore[list-item]
        with pytest.raises(InvalidTopicException, match="a topic"):
            consumer.assign([("no such topic!", 0)])
        consumer.assign([(topic, 0)])
        with pytest.raises(ConsumerError, match=r"-1.*seek_to_end"):
            consumer.seek((topic, 0), -1)
        with pytest.raises(ConsumerError, match="not assigned"):
            consumer.seek((topic, 1), 0)
        with pytest.raises(ConsumerError, match="max_records=0"):
            consumer.poll(max_records=0)
        with pytest.raises(ConsumerError, match="no time"):
            consumer.offsets_for_times({TopicPartition(topic, 0): -1})
    with pytest.raises(ClientClosed, match="closed"):
        consumer.poll()
    with pytest.raises(ClientClosed, match="closed"):
        consumer.end_offsets((topic, 0))
    consumer.close()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"group_ids": "g"}, UnknownSetting, r"group\.id"),
        ({"auto_offset_reset": "first"}, InvalidSetting, "by_duration"),
        ({"enable_auto_commit": True}, InvalidConfig, r"needs a group\.id"),
        ({"group_instance_id": "i"}, InvalidConfig, r"needs a group\.id"),
        ({"group_id": "g", "heartbeat_interval_ms": 50_000}, InvalidConfig, "must be below"),
        (
            {"group_id": "g", "group_protocol": "consumer", "session_timeout_ms": 1},
            InvalidConfig,
            "leave it out",
        ),
        ({"group_id": "g", "group_remote_assignor": "uniform"}, InvalidConfig, r"group\.protocol=consumer"),
        ({"group_id": "g", "partition_assignment_strategy": "fair"}, InvalidConfig, "cooperative-sticky"),
        ({"value_deserializer": 3}, InvalidConfig, "function"),
        ({"interceptor_classes": [object()]}, InvalidConfig, "interceptor"),
        ({"isolation_level": "dirty"}, InvalidSetting, "read_committed"),
        ({"max_poll_records": 0}, InvalidSetting, "Value must be at least 1"),
    ],
)
def test_wrong_settings(settings: dict[str, object], error: type[Exception], message: str) -> None:
    threads = threading.active_count()
    with pytest.raises(error, match=message):
        barnabas.Consumer(bootstrap_servers="127.0.0.1:1", **settings)
    assert threading.active_count() == threads


def test_a_broker_that_is_not_there() -> None:
    with barnabas.Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
        consumer.subscribe("t")
        assert consumer.poll(50) == []
        with pytest.raises(RequestTimedOut, match="cannot be reached"):
            consumer.end_offsets(("t", 0), timeout_ms=100)
        with pytest.raises(RequestTimedOut, match="committed offsets of group g"):
            consumer.committed(("t", 0), timeout_ms=100)
