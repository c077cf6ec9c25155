"""Calls of the consumer and the admin client that users of other clients look for, and what they say about mistakes."""

from __future__ import annotations

import asyncio
import logging
import queue
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import barnabas
import barnabas.aio
from barnabas.errors import (
    ConsumerWakeup,
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from barnabas.model import TopicPartition
from barnabas.testing import Broker
from tests.client.consumer_servers import SERVERS, WAIT_S, Server, running
from tests.waiting import wait_until, wait_until_async

WAIT_MS = WAIT_S * 1000
DOCUMENT = Path(__file__).parents[3] / "docs" / "CLIENTS.md"


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(request.param, tmp_path_factory.mktemp("calls")) as found:
        yield found


def test_an_iteration_ends_after_its_time_out(server: Server) -> None:
    topic = server.topic()
    settings = {
        "bootstrap.servers": server.address,
        "auto.offset.reset": "earliest",
        "consumer.timeout.ms": 300,
    }
    with barnabas.Producer(bootstrap_servers=server.address) as producer:
        producer.send_many(topic, [b"1", b"2", b"3"]).result(WAIT_S)
    with barnabas.Consumer(settings) as consumer:
        consumer.assign([(topic, 0)])
        # The first record may take longer than the time-out of the iteration.
        assert len(consumer.poll(WAIT_MS)) == 3
        consumer.seek((topic, 0), 0)
        wait_until(lambda: consumer.metrics()["bytes-waiting"] > 0)
        assert [record.value for record in consumer] == [b"1", b"2", b"3"]
        assert list(consumer) == []

    async def read() -> list[Any]:
        async with barnabas.aio.Consumer(settings) as reader:
            reader.assign([(topic, 0)])
            assert len(await reader.poll(WAIT_MS)) == 3
            reader.seek((topic, 0), 0)
            await wait_until_async(lambda: reader.metrics()["bytes-waiting"] > 0)
            return [record.value async for record in reader]

    assert asyncio.run(read()) == [b"1", b"2", b"3"]


def test_wakeup_ends_a_poll_of_another_thread(server: Server) -> None:
    topic = server.topic()
    with barnabas.Consumer(bootstrap_servers=server.address) as consumer:
        consumer.assign([(topic, 0)])
        consumer.wakeup()
        with pytest.raises(ConsumerWakeup):
            consumer.poll(WAIT_MS)
        woken = []

        def wait() -> None:
            try:
                next(consumer)
            except ConsumerWakeup as error:
                woken.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: consumer._core.handover.is_polling)
        consumer.wakeup()
        thread.join(WAIT_S)
        assert len(woken) == 1
        assert consumer.poll(0) == []


def test_wakeup_in_asyncio(server: Server) -> None:
    topic = server.topic()

    async def test() -> None:
        async with barnabas.aio.Consumer(bootstrap_servers=server.address) as consumer:
            consumer.assign([(topic, 0)])
            polling = asyncio.create_task(consumer.poll(WAIT_MS))
            await asyncio.sleep(0)
            await asyncio.to_thread(consumer.wakeup)
            with pytest.raises(ConsumerWakeup):
                await polling

    asyncio.run(test())


def test_seek_to_a_time(server: Server) -> None:
    topic = server.topic(2)
    with barnabas.Producer(bootstrap_servers=server.address) as producer:
        for time_ms in (1_000, 2_000, 3_000):
            producer.send(topic, str(time_ms), partition=0, timestamp_ms=time_ms).result(WAIT_S)
        producer.send(topic, "old", partition=1, timestamp_ms=1_000).result(WAIT_S)
    with barnabas.Consumer(bootstrap_servers=server.address) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        consumer.seek_to_time(1_500)
        assert consumer.position((topic, 0)) == 1
        # No record is that late: the end.
        assert consumer.position((topic, 1)) == 1
        consumer.seek_to_time(0, (topic, 1))
        assert consumer.position((topic, 1)) == 0
        with pytest.raises(InvalidRequest, match="in ms since 1970"):
            consumer.seek_to_time(cast(Any, "yesterday"))


def documented_metrics(kind: str) -> set[str]:
    """The metrics of a kind of client in docs/CLIENTS.md."""
    rows = re.findall(
        r"^\| (\w+) \| (`.*) \|$", DOCUMENT.read_text().partition("## Metrics")[2], re.MULTILINE
    )
    return {name for row, names in rows if row in ("all", kind) for name in re.findall("`(.+?)`", names)}


def test_metrics(server: Server) -> None:
    topic = server.topic()
    with barnabas.Producer(bootstrap_servers=server.address) as producer:
        producer.send_many(topic, [b"x"] * 10).result(WAIT_S)
        figures = producer.metrics()
        assert figures.keys() == documented_metrics("producer")
        assert figures["record-send-total"] == 10
        assert figures["record-error-total"] == 0
        assert figures["connection-count"] >= 1
        assert figures["buffer-available-bytes"] == figures["buffer-total-bytes"] == 32 << 20
        assert figures["record-retry-total"] == 0
        # One value of a byte a record: most of a batch is its header.
        assert 61 < figures["batch-size-avg"] <= figures["batch-size-max"] < 61 + 10 * 16
        assert 0 < figures["record-queue-time-avg"] <= figures["record-queue-time-max"] < WAIT_MS
        assert 0 < figures["request-latency-avg"] <= figures["request-latency-max"] < WAIT_MS
        assert figures["request-total"] >= 3
    with barnabas.Consumer(
        bootstrap_servers=server.address, group_id=f"group-{topic}", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(topic)
        assert len(consumer.poll(WAIT_MS, max_records=4)) == 4
        consumer.commit()
        figures = consumer.metrics()
        assert figures.keys() == documented_metrics("consumer")
        assert figures["records-lag-max"] == 6
        assert figures["assigned-partitions"] == figures["rebalance-total"] == figures["commit-total"] == 1
        assert figures["fetch-total"] >= 1
        assert figures["records-consumed-total"] == 4
        assert 0 < figures["bytes-consumed-total"] <= figures["bytes-fetched-total"]
        for name in ("commit-latency", "fetch-latency", "request-latency"):
            assert 0 < figures[f"{name}-avg"] <= figures[f"{name}-max"] < WAIT_MS, name
    with barnabas.Admin(bootstrap_servers=server.address) as admin:
        admin.list_topics()
        figures = admin.metrics()
        assert figures.keys() == documented_metrics("admin")
        assert figures["connection-creation-total"] >= 1
        assert 0 < figures["request-latency-avg"] <= figures["request-latency-max"] < WAIT_MS


def test_records_are_counted_when_the_caller_has_them(server: Server) -> None:
    topic = server.topic(partitions=1)
    with barnabas.Producer(bootstrap_servers=server.address) as producer:
        producer.send_many(topic, [b"%d" % number for number in range(10)]).result(WAIT_S)

    def consumed() -> tuple[int, int]:
        figures = consumer.metrics()
        return int(figures["records-consumed-total"]), int(figures["bytes-consumed-total"])

    def take(count: int, expected: int) -> None:
        assert len(consumer.poll(WAIT_MS, max_records=count)) == count
        assert consumed()[0] == expected

    with barnabas.Consumer(bootstrap_servers=server.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert consumed() == (0, 0)
        take(3, 3)
        size_bytes = consumed()[1]
        assert size_bytes == consumer.metrics()["bytes-fetched-total"]
        # The rest of the batch waits, is kept during a pause, and is dropped by a seek.
        consumer.pause()
        assert consumer.poll(0) == []
        assert consumed() == (3, size_bytes)
        consumer.resume()
        take(2, 5)
        assert next(consumer).offset == 5
        assert next(consumer).offset == 6
        assert consumed() == (7, size_bytes)
        consumer.seek((topic, 0), 0)
        take(10, 17)
        assert consumed() == (17, 2 * size_bytes)
        for index, poll in enumerate((consumer.poll_batches, consumer.poll_arrow), 2):
            consumer.seek((topic, 0), 0)
            assert len(poll(WAIT_MS)) > 0
            assert consumed() == (10 * index + 7, (index + 1) * size_bytes)


def test_a_subscription_to_a_topic_that_does_not_exist_is_told_and_waited_for(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"later-{server.topic()}"
    told: queue.Queue[KafkaError] = queue.Queue()
    with (
        barnabas.Consumer(
            bootstrap_servers=server.address,
            group_id=f"group-{topic}",
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            metadata_max_age_ms=200,
            on_error=told.put,
        ) as consumer,
        caplog.at_level(logging.WARNING, "barnabas.client"),
    ):
        consumer.subscribe([topic])
        assert consumer.poll(0) == []
        error = told.get(timeout=WAIT_S)
        assert isinstance(error, UnknownTopicOrPartition)
        assert f"topic '{topic}' does not exist: check the name" in str(error)
        assert [each.getMessage() for each in caplog.records].count(str(error)) == 1
        server.topic(name=topic)
        with barnabas.Producer(bootstrap_servers=server.address) as producer:
            producer.send(topic, b"late")
        assert [record.value for record in consumer.poll(WAIT_MS)] == [b"late"]
        assert told.empty()


def test_a_deleted_topic_that_matched_a_pattern_is_no_wrong_name(server: Server) -> None:
    topic = server.topic()
    told: queue.Queue[KafkaError] = queue.Queue()
    with (
        barnabas.Consumer(
            bootstrap_servers=server.address,
            group_id=f"group-{topic}",
            metadata_max_age_ms=100,
            on_error=told.put,
        ) as consumer,
        barnabas.Admin(bootstrap_servers=server.address) as admin,
    ):
        consumer.subscribe(re.compile(f"{topic}.*"))
        wait_until(lambda: consumer.poll(10) == [] and consumer.assignment() == {TopicPartition(topic, 0)})
        admin.delete_topics([topic])
        wait_until(lambda: consumer.poll(10) == [] and consumer.assignment() == set())
        assert told.empty()


def test_an_assigned_partition_that_does_not_exist_is_told_and_waited_for(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    topic = server.topic(partitions=1)
    told: queue.Queue[KafkaError] = queue.Queue()
    with (
        barnabas.Consumer(
            bootstrap_servers=server.address, auto_offset_reset="earliest", on_error=told.put
        ) as consumer,
        caplog.at_level(logging.WARNING, "barnabas.client"),
        barnabas.Admin(bootstrap_servers=server.address) as admin,
    ):
        consumer.assign([(topic, 1)])
        assert consumer.poll(0) == []
        error = told.get(timeout=WAIT_S)
        assert isinstance(error, UnknownTopicOrPartition)
        assert str(error) == (
            f"topic '{topic}' has 1 partition, so there is no partition 1; this consumer waits for it"
        )
        assert [each.getMessage() for each in caplog.records] == [str(error)]
        with pytest.raises(UnknownTopicOrPartition, match="has 1 partition, so there is no partition 1"):
            consumer.position((topic, 1), timeout_ms=WAIT_MS)
        admin.create_partitions({topic: 2})
        with barnabas.Producer(bootstrap_servers=server.address) as producer:
            producer.send(topic, b"late", partition=1)
        assert [record.value for record in consumer.poll(WAIT_MS)] == [b"late"]
        assert told.empty()


def test_a_topic_that_a_consumer_has_created_is_told(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"created-{server.topic()}"
    with (
        barnabas.Consumer(bootstrap_servers=server.address, auto_offset_reset="earliest") as consumer,
        caplog.at_level(logging.WARNING, "barnabas.client"),
    ):
        consumer.assign([(topic, 0)])
        assert consumer.position((topic, 0), timeout_ms=WAIT_MS) == 0
        assert len(consumer.partitions_for(topic)) >= 1
        for record in caplog.records:
            assert record.getMessage() == (
                f"topic '{topic}' does not exist yet: check the name. This consumer has asked the broker to create it,"
                " and the broker does so if auto.create.topics.enable is true; allow.auto.create.topics=false prevents"
                " that"
            )
        assert caplog.records


def test_a_question_creates_no_topic(server: Server) -> None:
    topic = f"asked-{server.topic()}"
    partition = (topic, 0)
    with (
        barnabas.Consumer(bootstrap_servers=server.address) as consumer,
        barnabas.Producer(bootstrap_servers=server.address) as producer,
        barnabas.Admin(bootstrap_servers=server.address) as admin,
    ):
        for ask in (
            lambda: consumer.end_offsets(partition, timeout_ms=WAIT_MS),
            lambda: consumer.beginning_offsets(partition, timeout_ms=WAIT_MS),
            lambda: consumer.offsets_for_times(cast(Any, {partition: 5}), timeout_ms=WAIT_MS),
            lambda: consumer.partitions_for(topic, timeout_ms=WAIT_MS),
            lambda: producer.partitions_for(topic, timeout_ms=WAIT_MS),
        ):
            with pytest.raises(UnknownTopicOrPartition, match=f"topic '{topic}' does not exist: check the"):
                ask()
        # An answer to each client shows that none of them asks for the topic's creation later.
        consumer.topics()
        assert topic not in {each.name for each in admin.list_topics()}
        assert producer.partitions_for(topic, creates=True) >= 1
        assert len(consumer.partitions_for(topic)) >= 1
        there = server.topic(partitions=3)
        for ask_for in (consumer.end_offsets, consumer.beginning_offsets):
            with pytest.raises(UnknownTopicOrPartition, match="has 3 partitions, so there is no partition 9"):
                ask_for((there, 0), (there, 9), timeout_ms=WAIT_MS)
        assert consumer.end_offsets((there, 2)) == {(there, 2): 0}

    async def ask_later() -> None:
        async with (
            barnabas.aio.Consumer(bootstrap_servers=server.address) as reader,
            barnabas.aio.Producer(bootstrap_servers=server.address) as writer,
        ):
            for asked in (
                reader.end_offsets((f"{topic}-later", 0)),
                writer.partitions_for(f"{topic}-later", timeout_ms=WAIT_MS),
            ):
                with pytest.raises(UnknownTopicOrPartition, match=f"topic '{topic}-later' does not exist"):
                    await cast(Any, asked)

    asyncio.run(ask_later())


def test_admin_calls_name_what_is_wrong(server: Server) -> None:
    with barnabas.Admin(bootstrap_servers=server.address) as admin:
        wrong: Any = admin
        topic = f"made-{server.topic()}"
        # Numbers and booleans are as good as texts.
        admin.create_topics(
            topic, configs={"retention.ms": 1000, "preallocate": False, "cleanup.policy": ["compact"]}
        )
        resource = barnabas.ConfigResource(barnabas.ResourceType.TOPIC, topic)
        entries = admin.describe_configs(resource)[resource]
        assert entries["retention.ms"].value == "1000"
        assert entries["cleanup.policy"].value == "compact"
        admin.alter_configs({resource: {"retention.ms": 2000}})
        assert admin.describe_configs(resource)[resource]["retention.ms"].value == "2000"
        with pytest.raises(TypeError, match="topics"):
            wrong.create_topics(configs={"retention.ms": 1000})
        with pytest.raises(InvalidConfig, match=r"retention\.ms=\{\}.*a text, number"):
            wrong.create_topics("other", configs={"retention.ms": {}})
        with pytest.raises(InvalidRequest, match="settings go into configs="):
            wrong.create_topics({"other": {"retention.ms": 1000}})
        with pytest.raises(InvalidRequest, match="no name of a topic"):
            wrong.create_topics([3])
        with pytest.raises(InvalidConfig, match="retention"):
            admin.create_topics("other", configs={"retention.m": 1000})
        with pytest.raises(TopicAlreadyExists, match=topic):
            admin.create_topics(topic)
        with pytest.raises(UnknownTopicOrPartition, match="topic nosuch does not exist"):
            admin.delete_topics("nosuch")
        with pytest.raises(InvalidRequest, match="3 is no name of a topic"):
            wrong.delete_topics(3)
        with pytest.raises(InvalidRequest, match="no name of a topic"):
            wrong.delete_topics([b"bytes"])
        with pytest.raises(InvalidRequest, match="no name of a group"):
            wrong.delete_groups([None])


def test_connections_for_the_group_know_all_brokers() -> None:
    """Else a group whose bootstrap addresses are gone could not find another coordinator."""
    with Broker(brokers=2, topics={"orders": 2}) as broker:
        first, *_ = broker.bootstrap.split(",")
        with barnabas.Consumer(bootstrap_servers=first, group_id="billing") as consumer:
            consumer.subscribe(["orders"])
            wait_until(lambda: consumer.poll(10) == [] and len(consumer.assignment()) == 2)
            groups = consumer._core._group_brokers
            assert groups is not None
            wait_until(lambda: len(groups.nodes) == 2)
