"""Many records by one call, as lists and as Arrow columns, against a running broker."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import barnabas
from barnabas.client.failures import (
    SerializationError,
)
from barnabas.client.producer.bytes_columns import arrow_bytes, binary_values
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.records import RecordMetadata
from barnabas.errors import KafkaError, UnknownTopicOrPartition
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.client.reading import known, read_partition, read_values
from tests.client.topics import made
from tests.clients.broker_process import BrokerProcess
from tests.waiting import Deadline

WAIT_S = 60


def test_many_values(broker: BrokerProcess, producer: Producer, topic: str) -> None:
    made(broker, topic)
    sent: list[bytes | None] = [b"%d" % number for number in range(5_000)]
    sent[7] = None
    future = producer.send_many(topic, sent)
    found = future.result(WAIT_S)
    assert len(future) == 5_000
    assert [each.offset for each in found] == list(range(5_000))
    assert read_values(broker, topic) == [sent]
    assert producer.send_many(topic, []).result(WAIT_S) == []


def test_many_in_all_forms(broker: BrokerProcess, producer: Producer, topic: str) -> None:
    made(broker, topic, 2)
    producer.send_many(topic, ["text", b"bytes"], partition=0).result(WAIT_S)
    producer.send_many(topic, [(b"k", b"v"), ("k", None, {"h": b"1"})], partition=0).result(WAIT_S)
    told = producer.send_many(
        topic, [{"value": b"d", "partition": 1, "timestamp_ms": 5, "headers": [("x", None)]}, {"key": b"k"}]
    ).result(WAIT_S)
    assert told[0] == RecordMetadata(topic, 1, 0, 5)
    producer.send_many(topic, [b"a", b"b"], keys=[b"1", None], partition=0, headers={"all": b"1"}).result(
        WAIT_S
    )
    with broker.client() as client:
        first = read_partition(client, topic, 0)
        second = read_partition(client, topic, 1)
    shown = [(record.key, record.value, record.headers) for record in first]
    assert shown[:4] == [
        (None, b"text", ()),
        (None, b"bytes", ()),
        (b"k", b"v", ()),
        (b"k", None, (("h", b"1"),)),
    ]
    assert shown[-2:] == [(b"1", b"a", (("all", b"1"),)), (None, b"b", (("all", b"1"),))]
    assert (second[0].value, second[0].timestamp, second[0].headers) == (b"d", 5, (("x", None),))


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([b"good", 7], "value_serializer"),
        ([(b"k",)], "tuple"),
        ([{"vallue": b"v"}], "vallue"),
        ([{"value": b"v", "partition": 9}], "partitions 0 to 0"),
        (b"bytes", "list of values"),
        (None, "list of values"),
        ([b"good", bytes(2 << 20)], r"max\.request\.size"),
    ],
)
def test_one_bad_record_of_many_stops_all(
    broker: BrokerProcess, producer: Producer, topic: str, records: object, says: str
) -> None:
    made(broker, topic)
    with pytest.raises(KafkaError, match=says):
        producer.send_many(topic, records)
    producer.flush(timeout_ms=WAIT_S * 1000)
    assert read_values(broker, topic) == [[]]


@pytest.mark.parametrize("key", [None, b"k"])
def test_many_from_several_threads_take_turns_where_only_one_has_room(
    broker: BrokerProcess, topic: str, key: bytes | None
) -> None:
    made(broker, topic)
    records = [(key, bytes(60_000))] * 3 if key else [bytes(60_000)] * 3
    with Producer(bootstrap_servers=broker.address, buffer_memory=100_000) as producer:
        known(producer, topic)
        threads = [
            threading.Thread(target=producer.send_many, args=(topic, records), daemon=True) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        producer.flush(timeout_ms=WAIT_S * 1000)
        assert producer._core.accumulator.pool.available_bytes == 100_000
    assert len(read_values(broker, topic)[0]) == 9


def test_a_partitioner_that_fails_keeps_no_memory(broker: BrokerProcess, topic: str) -> None:
    made(broker, topic)
    calls = []

    def partition(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        calls.append(value)
        if len(calls) == 2:
            raise ZeroDivisionError
        return 0

    with Producer(
        bootstrap_servers=broker.address, buffer_memory=100_000, partitioner_class=partition
    ) as producer:
        with pytest.raises(ZeroDivisionError):
            producer.send_many(topic, [bytes(60_000)] * 2)
        producer.flush(timeout_ms=WAIT_S * 1000)
        assert producer._core.accumulator.pool.available_bytes == 100_000
        assert read_values(broker, topic) == [[]]


def test_partitions_that_are_added_are_used_by_many(
    broker: BrokerProcess, producer: Producer, topic: str
) -> None:
    producer.send(made(broker, topic), b"v").result(WAIT_S)
    with broker.client() as client:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=2, assignments=None)], timeout_ms=30_000
        )
        assert client.ask("CreatePartitions", 3, request).results[0].error_code == 0
    records = [{"value": b"v", "partition": partition} for partition in (1, 0)]
    assert [each.partition for each in producer.send_many(topic, records).result(WAIT_S)] == [1, 0]
    for wrong in (2, -1):
        with pytest.raises(UnknownTopicOrPartition, match=f"partitions 0 to 1, and not {wrong}"):
            producer.send_many(topic, [{"value": b"v", "partition": wrong}])


def test_a_topic_that_is_made_anew_with_fewer_partitions(broker: BrokerProcess, topic: str) -> None:
    with (
        Producer(bootstrap_servers=broker.address) as producer,
        barnabas.Admin(bootstrap_servers=broker.address) as admin,
    ):
        admin.create_topics({topic: 3})
        producer.send_many(topic, [(b"%d" % number, b"v") for number in range(20)]).result(WAIT_S)
        admin.delete_topics(topic)
        admin.create_topics({topic: 1})
        deadline = Deadline()
        while producer.partitions_for(topic) > 1:
            deadline.check("the producer sees one partition")
            # A partition that is not known has the producer ask again.
            with pytest.raises(UnknownTopicOrPartition):
                producer.send(topic, b"v", partition=7)
        sent = [(b"%d" % number, b"w") for number in range(20)]
        found = producer.send_many(topic, sent).result(WAIT_S)
        assert {each.partition for each in found} == {0}


def test_arrow_columns(broker: BrokerProcess, producer: Producer, topic: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is needed for Arrow columns")
    made(broker, topic)
    values = [b"%d" % number for number in range(1_000)]
    producer.send_many(topic, pa.array(values)).result(WAIT_S)
    table = pa.table({"key": ["a", "b"], "value": [b"1", None], "timestamp_ms": [5, 6]})
    producer.send_many(topic, table).result(WAIT_S)
    with broker.client() as client:
        records = read_partition(client, topic)
    assert [record.value for record in records] == [*values, b"1", None]
    assert [(record.key, record.timestamp) for record in records[-2:]] == [(b"a", 5), (b"b", 6)]
    with pytest.raises(SerializationError, match="Arrow columns are value"):
        producer.send_many(topic, pa.table({"vallue": [b"1"]}))
    with pytest.raises(SerializationError, match="whole numbers, and not of double"):
        producer.send_many(topic, pa.table({"value": [b"1"], "partition": [0.0]}))


def test_arrow_headers(broker: BrokerProcess, producer: Producer, topic: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is needed for Arrow columns")
    made(broker, topic)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    given = [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        None,
        [],
        [{"key": "c", "value": b""}],
    ]
    table = pa.table(
        {"value": [b"w", b"x", None, b"z"], "headers": pa.chunked_array([given[:1], given[1:]], type=kind)}
    )
    producer.send_many(topic, table).result(WAIT_S)
    producer.send_many(topic, table.slice(1)).result(WAIT_S)
    with broker.client() as client:
        records = read_partition(client, topic)
    wanted = [(b"w", (("a", b"1"), ("b", None))), (b"x", ()), (None, ()), (b"z", (("c", b""),))]
    assert [(record.value, record.headers) for record in records] == [*wanted, *wanted[1:]]
    nameless = pa.table({"value": [b"1"], "headers": pa.array([[{"key": None, "value": b"1"}]], type=kind)})
    with pytest.raises(SerializationError, match="headers are pairs"):
        producer.send_many(topic, nameless)


def test_values_of_arrow_arrays() -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is needed for Arrow columns")
    values = [None if number % 7 == 3 else b"x" * (number % 5) for number in range(100)]
    for kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string()):
        array = pa.array(values, pa.binary()).cast(kind)
        assert binary_values(array) == values
        for start, count in ((0, 1), (3, 40), (9, 91), (50, 0)):
            assert binary_values(array.slice(start, count)) == values[start : start + count]
        parts = pa.chunked_array([array.slice(5), array.slice(0, 5)])
        assert binary_values(parts) == values[5:] + values[:5]
        joined = arrow_bytes(parts)
        assert joined is not None
        assert [joined.at(number) for number in range(joined.count)] == values[5:] + values[:5]
        nothing = arrow_bytes(pa.chunked_array([], array.type))
        assert nothing is not None
        assert nothing.count == 0
    assert binary_values(pa.array([], pa.binary())) == []
    assert binary_values(pa.array([b"", b""])) == [b"", b""]
    assert binary_values(pa.array([1, None])) == [1, None]


def test_the_order_of_many_is_kept_over_partitions_and_batches(broker: BrokerProcess, topic: str) -> None:
    """Each is told where it has gone, whatever the partition of its neighbour, and however often room is waited for."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is needed for Arrow columns")
    made(broker, topic, 3)
    count = 3_000
    keys = [None if number % 10 == 0 else b"%d" % (number % 50) for number in range(count)]
    values = [b"%d" % number + bytes(number % 300) for number in range(count)]
    given: list[Any] = [
        list(zip(keys, values, strict=True)),
        pa.table({"key": keys, "value": values}),
        pa.table({"key": pa.chunked_array([keys[:7], keys[7:]], pa.large_binary()), "value": values}),
        pa.table({"key": keys, "value": values, "timestamp_ms": [number % 3 for number in range(count)]}),
    ]
    with Producer(bootstrap_servers=broker.address, buffer_memory=100_000, batch_size=1_000) as producer:
        told = [producer.send_many(topic, records).result(WAIT_S) for records in given]
    with broker.client() as client:
        written = {
            (partition, int(record.offset)): (record.key, record.value, record.timestamp)
            for partition in range(3)
            for record in read_partition(client, topic, partition)
        }
    assert len(written) == count * len(given)
    for number, found in enumerate(told):
        assert [written[each.partition, each.offset][:2] for each in found] == list(
            zip(keys, values, strict=True)
        )
        assert [written[each.partition, each.offset][2] for each in found] == [
            each.timestamp_ms for each in found
        ]
        for partition in range(3):
            offsets = [each.offset for each in found if each.partition == partition]
            assert offsets == sorted(offsets), f"call {number}"
    assert [each.timestamp_ms for each in told[-1]] == [number % 3 for number in range(count)]
