"""The producer against a running broker: what it sends, what it tells, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import barnabas
from barnabas import aio
from barnabas.client.failures import (
    BufferExhausted,
    ClientClosed,
    DeliveryTimedOut,
    RecordTooLarge,
    SerializationError,
    TransactionMisuse,
)
from barnabas.client.producer.futures import SendFuture
from barnabas.client.producer.partitioners import partition_for_key
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.records import OutgoingRecord, RecordMetadata
from barnabas.errors import KafkaError, RequestTimedOut, UnknownTopicOrPartition
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.records.layout import CompressionType
from tests.client.reading import known, read_batches, read_partition, read_values
from tests.client.topics import made
from tests.clients.broker_process import BrokerProcess
from tests.waiting import Deadline, wait_until

WAIT_S = 60


def test_a_record_arrives_with_all_that_it_has(broker: BrokerProcess, producer: Producer, topic: str) -> None:
    future = producer.send(
        made(broker, topic),
        b"value",
        key="clé",
        partition=0,
        timestamp_ms=1_700_000_000_123,
        headers=[("trace", b"1"), ("trace", None), ("more", "text")],  # type: ignore[list-item]
    )
    assert future.result(WAIT_S) == RecordMetadata(topic, 0, 0, 1_700_000_000_123)
    assert future.done()
    assert future.exception() is None
    with broker.client() as client:
        [record] = read_partition(client, topic)
    assert (record.key, record.value) == ("clé".encode(), b"value")
    assert record.timestamp == 1_700_000_000_123
    assert record.headers == (("trace", b"1"), ("trace", None), ("more", b"text"))


def test_records_without_a_timestamp_get_the_time(
    broker: BrokerProcess, producer: Producer, topic: str
) -> None:
    before_ms = time.time_ns() // 1_000_000
    found = producer.send(made(broker, topic), None).result(WAIT_S)
    assert before_ms - 1 <= found.timestamp_ms <= time.time_ns() // 1_000_000 + 1
    assert read_values(broker, topic) == [[None]]


def test_the_order_of_sends_is_the_order_of_offsets(
    broker: BrokerProcess, producer: Producer, topic: str
) -> None:
    made(broker, topic)
    sent = [b"%d" % number for number in range(2_000)]
    futures = [producer.send(topic, value) for value in sent]
    producer.flush(timeout_ms=WAIT_S * 1000)
    assert [future.result(0).offset for future in futures] == list(range(2_000))
    assert read_values(broker, topic) == [sent]


@pytest.mark.slow
def test_keys_go_to_the_partitions_of_java_and_others_to_all(
    broker: BrokerProcess, producer: Producer, topic: str
) -> None:
    made(broker, topic, 5)
    for number in range(100):
        key = b"key-%d" % number
        found = producer.send(topic, b"v", key)
        assert found.result(WAIT_S).partition == partition_for_key(key, 5)
    value = bytes(1_000)
    spread = {
        future.result(WAIT_S).partition for future in [producer.send(topic, value) for _ in range(1_000)]
    }
    assert len(spread) > 1


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressions(broker: BrokerProcess, topic: str, compression: str) -> None:
    made(broker, topic)
    sent = [b"value " * 20 + b"%d" % number for number in range(500)]
    with Producer(bootstrap_servers=broker.address, compression_type=compression, linger_ms=20) as producer:
        producer.send_many(topic, sent).result(WAIT_S)
    with broker.client() as client:
        batches = read_batches(client, topic)
    assert {header.compression for header, _ in batches} == {CompressionType[compression.upper()]}
    assert [record.value for _, records in batches for record in records] == sent


def test_callbacks_get_metadata_or_an_error(broker: BrokerProcess, producer: Producer, topic: str) -> None:
    made(broker, topic)
    told: list[tuple[RecordMetadata | None, KafkaError | None]] = []
    is_done = threading.Event()

    def on_delivery(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        told.append((metadata, error))
        if len(told) == 10:
            is_done.set()

    futures = [producer.send(topic, b"%d" % number, on_delivery=on_delivery) for number in range(10)]
    assert is_done.wait(WAIT_S)
    assert told == [(future.result(WAIT_S), None) for future in futures]
    late: list[object] = []
    futures[0].add_done_callback(late.append)
    assert late == [futures[0]]


def test_a_callback_that_fails_is_told_and_stops_nobody(
    broker: BrokerProcess, producer: Producer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        raise ValueError("a fault of the user's")

    with caplog.at_level(logging.ERROR):
        first = producer.send(made(broker, topic), b"1", on_delivery=fail)
        second = producer.send(topic, b"2")
        assert (first.result(WAIT_S).offset, second.result(WAIT_S).offset) == (0, 1)
        producer.flush(timeout_ms=WAIT_S * 1000)
    assert "a callback of a producer failed" in caplog.text


def test_serializers_and_interceptors(broker: BrokerProcess, topic: str) -> None:
    seen: list[object] = []

    class Stamp:
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            return record._replace(headers=[("by", b"stamp")])

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
            seen.append(metadata)

    class Broken:
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            raise ValueError("a fault of the user's")

    with Producer(
        bootstrap_servers=broker.address,
        value_serializer=lambda value: json.dumps(value).encode(),
        interceptor_classes=[Stamp, Broken()],
    ) as producer:
        found = producer.send(made(broker, topic), {"a": 1}).result(WAIT_S)
    assert seen == [found]
    with broker.client() as client:
        [record] = read_partition(client, topic)
    assert (record.value, record.headers) == (b'{"a": 1}', (("by", b"stamp"),))


def test_own_partitioner_and_round_robin(broker: BrokerProcess, topic: str) -> None:
    made(broker, topic, 3)
    with Producer(
        bootstrap_servers=broker.address, partitioner_class=lambda topic, key, value, count: count - 1
    ) as producer:
        assert producer.send(topic, b"v", b"k").result(WAIT_S).partition == 2
        assert [each.partition for each in producer.send_many(topic, [b"v"] * 3).result(WAIT_S)] == [2, 2, 2]
    with Producer(bootstrap_servers=broker.address, partitioner_class="round-robin") as producer:
        futures = [producer.send(topic, b"v", b"same") for _ in range(4)]
        assert [future.result(WAIT_S).partition for future in futures] == [0, 1, 2, 0]
    with (
        Producer(
            bootstrap_servers=broker.address, partitioner_class=lambda topic, key, value, count: count
        ) as producer,
        pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 2"),
    ):
        producer.send(topic, b"v")


def test_too_large_for_the_topic_is_split_until_it_fits(broker: BrokerProcess, topic: str) -> None:
    made(broker, topic, max_message_bytes="3000")
    sent = [b"%04d" % number + bytes(96) for number in range(500)]
    with Producer(bootstrap_servers=broker.address, batch_size=65_536, linger_ms=20) as producer:
        told: list[int] = []
        singles = [
            producer.send(topic, value, on_delivery=lambda found, error: told.append(found.offset))  # type: ignore[union-attr]
            for value in sent[:100]
        ]
        many = producer.send_many(topic, sent[100:])
        assert [each.offset for each in many.result(WAIT_S)] == list(range(100, 500))
        assert [single.result(WAIT_S).offset for single in singles] == list(range(100))
        assert told == list(range(100))
        with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
            producer.send(topic, bytes(5_000)).result(WAIT_S)
        assert producer.send(topic, b"after").result(WAIT_S).offset == 500
    assert read_values(broker, topic) == [[*sent, b"after"]]


@pytest.mark.slow
def test_memory_is_bounded_and_waits_for_room(broker: BrokerProcess, topic: str) -> None:
    made(broker, topic)
    sent = [b"%06d" % number + bytes(1_000) for number in range(2_000)]
    with Producer(bootstrap_servers=broker.address, buffer_memory=64 * 1024, linger_ms=1_000) as producer:
        for value in sent[:1_000]:
            producer.send(topic, value)
        assert len(producer.send_many(topic, sent[1_000:]).result(WAIT_S)) == 1_000
    assert read_values(broker, topic) == [sent]


def test_an_interrupt_while_the_sender_is_woken_stops_nobody(broker: BrokerProcess, topic: str) -> None:
    made(broker, topic)
    with Producer(bootstrap_servers=broker.address, buffer_memory=4_000, linger_ms=60_000) as producer:
        # Behind this one nothing wakes the sender but what is sent.
        known(producer, topic)
        before = producer.send(topic, b"v")
        producer.flush(timeout_ms=WAIT_S * 1000)
        assert before.result(0).offset == 0
        first = producer.send(topic, bytes(2_000))
        sender = producer._core.sender
        assert sender is not None
        wait_until(lambda: not sender._is_woken)
        post = sender._post
        caller = threading.current_thread()

        def interrupted(call: Callable[[], object]) -> object:
            if threading.current_thread() is caller:
                raise KeyboardInterrupt
            return post(call)

        sender._post = interrupted
        with pytest.raises(KeyboardInterrupt):
            producer.send(topic, bytes(2_000))
        sender._post = post
        assert not first.done()
        assert not producer._core.accumulator.pool.is_exhausted, "nobody waits for memory any more"
        producer.flush(timeout_ms=WAIT_S * 1000)
        assert first.result(0).offset == 1
        assert producer._core.accumulator.pool.available_bytes == 4_000


@pytest.mark.slow
def test_a_broker_that_is_gone_fills_memory_and_raises(broker: BrokerProcess, topic: str) -> None:
    with Producer(bootstrap_servers=broker.address, buffer_memory=100_000, max_block_ms=50) as producer:
        known(producer, made(broker, topic))
        broker.kill()
        try:
            futures: list[SendFuture] = []
            with pytest.raises(BufferExhausted, match=r"buffer\.memory"):
                futures.extend(producer.send(topic, bytes(1_000)) for _ in range(1_000))
            assert 0 < len(futures) <= 100
            with pytest.raises(BufferExhausted, match="0 of 200 were taken"):
                producer.send_many(topic, [bytes(1_000)] * 200)
        finally:
            broker.start()
        assert [future.result(WAIT_S).offset for future in futures] == list(range(len(futures)))


@pytest.mark.slow
def test_what_is_not_delivered_in_time_is_given_up(broker: BrokerProcess, topic: str) -> None:
    with Producer(
        bootstrap_servers=broker.address, request_timeout_ms=200, delivery_timeout_ms=400, linger_ms=0
    ) as producer:
        known(producer, made(broker, topic))
        broker.kill()
        try:
            futures = [producer.send(topic, b"%d" % number) for number in range(10)]
            for future in futures:
                with pytest.raises(DeliveryTimedOut, match=r"delivery\.timeout\.ms"):
                    future.result(WAIT_S)
        finally:
            broker.start()
        # What was given up does not stand in the way of what follows.
        deadline = Deadline()
        while producer.send(topic, b"last").exception(WAIT_S) is not None:
            deadline.check("records are still given up")
    assert read_values(broker, topic)[0][-1] == b"last"


def test_what_a_user_does_wrong_raises_where_he_does_it(
    broker: BrokerProcess, producer: Producer, topic: str
) -> None:
    made(broker, topic)
    with pytest.raises(SerializationError, match="value_serializer"):
        producer.send(topic, 7)
    with pytest.raises(SerializationError, match="key_serializer"):
        producer.send(topic, b"v", key=7)
    with pytest.raises(SerializationError, match="headers are pairs"):
        producer.send(topic, b"v", headers=["name"])  # type: ignore[list-item]
    with pytest.raises(SerializationError, match="UTF-8"):
        producer.send(topic, "\ud800")
    with pytest.raises(SerializationError, match="since 1970"):
        producer.send(topic, b"v", timestamp_ms=-1)
    with pytest.raises(SerializationError, match="since 1970"):
        producer.send_many(topic, [{"value": b"v", "timestamp_ms": -1}])
    with pytest.raises(RecordTooLarge, match=r"max\.request\.size"):
        producer.send(topic, bytes(2 << 20))
    with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 0, and not 4"):
        producer.send(topic, b"v", partition=4)
    with pytest.raises(UnknownTopicOrPartition):
        producer.send(topic, b"v", partition=-1)
    with pytest.raises(KafkaError, match="not the name of a topic"):
        producer.send("no such name", b"v")
    with pytest.raises(TransactionMisuse, match="transactional_id"):
        producer.begin_transaction()
    with (
        Producer(bootstrap_servers=broker.address, value_serializer=lambda value: value.missing) as other,
        pytest.raises(SerializationError, match="missing"),
    ):
        other.send(topic, b"v")
    with pytest.raises(KafkaError, match=r"linger\.ms"):
        Producer(bootstrap_servers=broker.address, lingerms=5)
    assert producer.send(topic, b"good").result(WAIT_S).offset == 0


def test_a_closed_producer_says_so(broker: BrokerProcess, topic: str) -> None:
    producer = Producer(bootstrap_servers=broker.address, linger_ms=60_000)
    future = producer.send(made(broker, topic), b"v")
    assert not future.done()
    producer.close()
    assert future.result(0).offset == 0
    producer.close()
    producer.flush()
    with pytest.raises(ClientClosed, match="closed"):
        producer.send(topic, b"v")
    with pytest.raises(ClientClosed, match="closed"):
        producer.send_many(topic, [b"v"])


def test_who_waits_while_another_thread_closes_is_told_so() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    raised: list[BaseException] = []

    def send() -> None:
        try:
            producer.send("unknown", b"v")
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    wait_until(lambda: "unknown" in producer._core.cluster.tracked)
    producer.close(timeout_ms=0)
    thread.join(WAIT_S)
    assert [type(error) for error in raised] == [ClientClosed]
    assert "while this call was under way" in str(raised[0])


FORK = """
import os, sys
from barnabas import Consumer, Producer
from barnabas.client.failures import ClientClosed

bootstrap = sys.argv[1]
topic = sys.argv[2]
producer = Producer(bootstrap_servers=bootstrap, linger_ms=60_000)
producer.send(topic, b"of the parent")
consumer = Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
consumer.assign([(topic, 0)])
child = os.fork()
if child == 0:
    told = []
    for call in (
        lambda: producer.send(topic, b"lost"),
        lambda: producer.send_many(topic, [b"lost"]),
        lambda: producer.partitions_for("unknown"),
        lambda: consumer.poll(0),
        lambda: consumer.topics(),
    ):
        try:
            call()
        except ClientClosed as error:
            told.append("forked" in str(error))
    producer.flush()
    producer.close()
    consumer.close()
    with Producer(bootstrap_servers=bootstrap) as own:
        own.send(topic, b"of the child").result(60)
    os._exit(0 if told == [True] * 5 else 1)
status = os.waitpid(child, 0)[1]
producer.close()
consumer.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_process_is_told_to_make_its_own(broker: BrokerProcess, topic: str) -> None:
    made(broker, topic)
    # Later Pythons warn of any fork beside threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, broker.address, topic]
    ended = subprocess.run(command, capture_output=True, timeout=2 * WAIT_S, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    assert read_values(broker, topic) == [[b"of the child", b"of the parent"]]


def test_close_in_a_callback_and_without_time(broker: BrokerProcess, topic: str) -> None:
    made(broker, topic)
    producer = Producer(bootstrap_servers=broker.address)
    is_closed = threading.Event()

    def close(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        producer.close()
        is_closed.set()

    producer.send(topic, b"v", on_delivery=close)
    assert is_closed.wait(WAIT_S)
    hasty = Producer(bootstrap_servers=broker.address, linger_ms=60_000)
    hasty.partitions_for(topic)
    broker_is_asked_for_nothing = hasty.send(topic, b"never")
    hasty.close(timeout_ms=0)
    assert broker_is_asked_for_nothing.done()


@pytest.mark.slow
def test_flush_does_not_wait_for_ever(broker: BrokerProcess, topic: str) -> None:
    with Producer(bootstrap_servers=broker.address, linger_ms=60_000) as producer:
        future = producer.send(made(broker, topic), b"v")
        with pytest.raises(TimeoutError):
            future.result(0.01)
        producer.flush(timeout_ms=WAIT_S * 1000)
        assert future.done()
        broker.kill()
        try:
            producer.send(topic, b"w")
            with pytest.raises(RequestTimedOut):
                producer.flush(timeout_ms=50)
        finally:
            broker.start()


def test_acks(broker: BrokerProcess, topic: str) -> None:
    made(broker, topic)
    with Producer(bootstrap_servers=broker.address, acks=0) as producer:
        assert producer.send(topic, b"0").result(WAIT_S).offset == -1
        # The answer to a request behind it on the same connection: it has been handled.
        producer.flush(timeout_ms=WAIT_S * 1000)
    with Producer(
        bootstrap_servers=broker.address, acks=1, max_in_flight_requests_per_connection=1
    ) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(100)]
        assert futures[-1].result(WAIT_S).offset >= 99


def test_threads_share_a_producer(broker: BrokerProcess, producer: Producer, topic: str) -> None:
    made(broker, topic)

    def work(name: int) -> None:
        for number in range(500):
            producer.send(topic, b"%d %d" % (name, number))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush(timeout_ms=WAIT_S * 1000)
    [values] = read_values(broker, topic)
    for name in range(4):
        mine = [value for value in values if value is not None and value.startswith(b"%d " % name)]
        assert mine == [b"%d %d" % (name, number) for number in range(500)]


def test_partitions_that_are_added_are_used(broker: BrokerProcess, producer: Producer, topic: str) -> None:
    producer.send(made(broker, topic), b"v").result(WAIT_S)
    with broker.client() as client:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=3, assignments=None)], timeout_ms=30_000
        )
        assert client.ask("CreatePartitions", 3, request).results[0].error_code == 0
    assert producer.send(topic, b"v", partition=2).result(WAIT_S).partition == 2


def test_a_topic_is_made_where_the_broker_does_so(
    broker: BrokerProcess, producer: Producer, topic: str
) -> None:
    assert producer.send(topic, b"v").result(WAIT_S).topic == topic
    assert producer.partitions_for(topic) == 3


WRONG_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"topic": b"bytes"}, r"topic: str object expected; got bytes|named by text, and not by b'bytes'"),
    ({"partition": "0"}, "partition: int or None object expected; got str"),
    ({"partition": 1.0}, "partition: int or None object expected; got float"),
    ({"timestamp_ms": 1_700_000_000.5}, "timestamp_ms: int or None object expected; got float"),
    ({"timestamp_ms": "now"}, "timestamp_ms: int or None object expected; got str"),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG_ARGUMENTS, ids=lambda each: str(each)[:30])
def test_an_argument_of_another_type_is_named(
    broker: BrokerProcess, producer: Producer, topic: str, wrong: dict[str, Any], words: str
) -> None:
    """Compiled code checks types itself, and `setup.py` adds the name; elsewhere the code does it."""
    made(broker, topic)
    with pytest.raises((TypeError, UnknownTopicOrPartition), match=words):
        producer.send(**{"topic": topic, "value": b"v", **wrong})
    with pytest.raises((TypeError, UnknownTopicOrPartition), match=words):
        producer.send_many(**{"topic": topic, "records": [b"v"], **wrong})

    async def test() -> None:
        async with aio.Producer(bootstrap_servers=broker.address) as other:
            with pytest.raises((TypeError, UnknownTopicOrPartition), match=words):
                await other.send(**{"topic": topic, "value": b"v", **wrong})

    asyncio.run(test())


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ([("t", 0)], r"offsets takes a mapping, such as {\('orders', 0\): 5}, and not \[\('t', 0\)\]"),
        ({"t": 5}, r"offsets takes TopicPartition\('orders', 0\) or \('orders', 0\), and not 't'"),
        ({("t", 0): -1}, r"offsets, for \('t', 0\), takes an offset of 0 or more, and not -1"),
    ],
)
def test_wrong_offsets_of_a_transaction_are_named(broker: BrokerProcess, offsets: Any, words: str) -> None:
    with (
        Producer(bootstrap_servers=broker.address, transactional_id="wrong-offsets") as producer,
        pytest.raises((TypeError, ValueError), match=words),
        producer.transaction(),
    ):
        producer.send_offsets_to_transaction(offsets, "g")


def test_public_names() -> None:
    assert barnabas.Producer is Producer
    assert barnabas.RecordMetadata is RecordMetadata


def test_a_producer_may_be_derived_from(broker: BrokerProcess, topic: str) -> None:
    class Shouting(Producer):
        def send(self, topic: str, value: object = None, *others: Any, **named: Any) -> SendFuture:
            return super().send(topic, str(value).upper(), *others, **named)

    with Shouting(bootstrap_servers=broker.address) as producer:
        producer.send(made(broker, topic), "hello").result(WAIT_S)
    assert read_values(broker, topic) == [[b"HELLO"]]


def test_asyncio(broker: BrokerProcess, topic: str) -> None:
    made(broker, topic)

    async def run() -> None:
        async with asyncio.timeout(WAIT_S), aio.Producer(bootstrap_servers=broker.address) as producer:
            first = await producer.send(topic, "one")
            assert (await first).offset == 0
            futures = [await producer.send(topic, b"%d" % number) for number in range(1_000)]
            found = await asyncio.gather(*futures)
            assert [each.offset for each in found] == list(range(1, 1_001))
            many = await producer.send_many(topic, [b"v"] * 5_000)
            assert len(await many) == 5_000
            assert (await producer.send_and_wait(topic, b"w", b"k")).offset == 6_001
            assert await producer.partitions_for(topic) == 1
            with pytest.raises(SerializationError):
                await producer.send(topic, 7)
            with pytest.raises(UnknownTopicOrPartition):
                await producer.send(topic, b"v", partition=1)
            await producer.send(topic, b"last")
            await producer.flush(timeout_ms=WAIT_S * 1000)
        with pytest.raises(ClientClosed):
            await producer.send(topic, b"v")

    asyncio.run(run())
    assert len(read_values(broker, topic)[0]) == 6_003


def test_asyncio_waits_for_room(broker: BrokerProcess, topic: str) -> None:
    made(broker, topic)

    async def run() -> None:
        async with (
            asyncio.timeout(WAIT_S),
            aio.Producer(
                bootstrap_servers=broker.address, buffer_memory=64 * 1024, linger_ms=1_000
            ) as producer,
        ):
            for number in range(500):
                await producer.send(topic, b"%04d" % number + bytes(1_000))
            await producer.send_many(topic, [bytes(1_000)] * 500)
            await asyncio.gather(*(producer.send_many(topic, [bytes(40_000)] * 2) for _ in range(3)))

    asyncio.run(run())
    assert len(read_values(broker, topic)[0]) == 1_006
