"""Batches, their memory and their sequences, without a broker."""

from __future__ import annotations

import random

import pytest
from librt.threading import Lock

from barnabas.client.accumulator import Accumulator, TopicQueue
from barnabas.client.batches import PartitionQueue, ProducerBatch, record_bound_bytes
from barnabas.client.buffer_pool import BufferPool, Waiter
from barnabas.client.futures import SendFuture, SendManyFuture
from barnabas.client.idempotence import Idempotence
from barnabas.errors import KafkaError, NetworkException, OutOfOrderSequenceNumber, UnknownProducerId
from barnabas.model import TopicPartition
from barnabas.records.header import parse_header
from barnabas.records.layout import CompressionType
from barnabas.records.reader import decode_batch


def accumulator(buffer_bytes: int = 1 << 20) -> Accumulator:
    return Accumulator(
        buffer_bytes=buffer_bytes, batch_bytes=1_000, max_batch_bytes=10_000, chooser=random.Random(1)
    )


def append(records: Accumulator, topic: TopicQueue, value: bytes, key: bytes | None = None) -> ProducerBatch:
    bound = record_bound_bytes(key, value, ())
    return records.append(topic, records.choose(topic, key), 1_700_000_000_000, key, value, (), bound)


def test_a_batch_grows_beyond_its_size_until_it_is_taken() -> None:
    records = accumulator()
    topic = records.set_topic("t", [True])
    for number in range(50):
        append(records, topic, bytes(100) + b"%d" % number)
    [queue] = topic.partitions
    assert len(queue.batches) == 1
    assert queue.batches[0].size_bytes > 5_000
    for _ in range(100):
        append(records, topic, bytes(100))
    assert len(queue.batches) == 2
    assert queue.batches[0].is_closed
    assert queue.batches[0].size_bytes <= 10_000


def test_batches_are_those_of_the_protocol() -> None:
    records = accumulator()
    topic = records.set_topic("t", [True])
    queue = topic.partitions[0]
    records.append(topic, queue, 1_700_000_000_005, b"k", b"v", (("h", None),), 100)
    batch = records.append(topic, queue, 1_700_000_000_001, None, None, (), 100)
    records.remove_waiting(queue, batch)
    batch.set_producer(7, 3, 41)
    data = batch.build(CompressionType.ZSTD, None, True)
    header = parse_header(data)
    assert header.size_bytes == len(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 41)
    assert header.is_transactional
    assert (header.max_timestamp, header.record_count) == (1_700_000_000_005, 2)
    found = decode_batch(data)
    assert [(each.key, each.value, each.headers) for each in found] == [
        (b"k", b"v", (("h", None),)),
        (None, None, ()),
    ]
    batch.set_producer(7, 4, 0)
    again = parse_header(batch.build(CompressionType.ZSTD, None, True))
    assert (again.producer_epoch, again.base_sequence, again.attributes) == (4, 0, header.attributes)


def test_memory_is_charged_and_freed() -> None:
    records = accumulator(buffer_bytes=100_000)
    topic = records.set_topic("t", [True, True])
    for number in range(100):
        append(records, topic, bytes(number))
    taken = 100_000 - records.pool.available_bytes
    assert taken == sum(batch.charged_bytes for batch in records.incomplete)
    for batch in list(records.incomplete):
        records.remove_waiting(batch.queue, batch)
        records.pool.free(batch.charged_bytes)
    assert records.pool.available_bytes == 100_000
    assert not records.active


def test_many_values_stop_where_there_is_no_room() -> None:
    records = accumulator(buffer_bytes=5_000)
    topic = records.set_topic("t", [True])
    values: list[bytes | None] = [bytes(100)] * 100
    future = SendManyFuture()
    position = records.append_values(topic, None, values, 0, 1, future)
    assert 0 < position < 100
    assert len(future) == position
    assert records.pool.available_bytes >= 0
    assert records.append_values(topic, None, values, position, 1, future) == position


def test_records_without_a_key_change_partitions_by_the_batch() -> None:
    records = accumulator()
    topic = records.set_topic("t", [True, False, True, True])
    changes = 0
    last = -1
    for _ in range(1_000):
        partition = append(records, topic, bytes(100)).queue.partition
        assert partition != 1, "it has no leader"
        changes += partition != last
        last = partition
    assert 50 < changes < 200
    waiting = [queue.waiting_bytes for queue in topic.partitions]
    assert min(waiting[0], waiting[2], waiting[3]) > max(waiting) // 2
    records.set_topic("t", [False] * 5)
    assert len(topic.partitions) == len(topic.available) == 5


def test_who_waits_longest_for_memory_gets_it_first() -> None:
    pool = BufferPool(100)
    pool.available_bytes -= 100
    told: list[str] = []
    large = Waiter(80, lambda: told.append("large"))
    small = Waiter(10, lambda: told.append("small"))
    pool.wait(large)
    pool.wait(small)
    assert pool.is_exhausted
    pool.free(50)
    assert told == []
    assert not pool.has_room(10), "whoever came later waits behind"
    pool.free(50)
    assert told == ["large", "small"]
    assert pool.available_bytes == 10
    pool.give_up(small)
    assert pool.available_bytes == 20
    third = Waiter(50, lambda: told.append("third"))
    pool.wait(third)
    pool.give_up(third)
    assert not pool.is_exhausted
    assert told == ["large", "small"]


def test_a_batch_that_was_split_tells_of_its_parts() -> None:
    queue = PartitionQueue(TopicPartition("t", 0), Lock(), 10_000)
    batch = ProducerBatch(queue, 0.0)
    for number in range(10):
        batch.append(number, None, b"%d" % number, ())
    future = SendFuture(batch, 7, 7)
    many = SendManyFuture()
    many.add(batch, 2, 8, 5)
    batch.is_closed = True
    batch.build(CompressionType.NONE, None, False)
    parts = batch.split(100)
    assert sum(part.record_count for part in parts) == 10
    assert len(parts) > 1
    batch.parts = parts
    assert not future.done()
    for offset, part in enumerate(parts):
        part.is_done = True
        part.base_offset = 100 * offset
    told = many.result(0)
    assert len(told) == 8
    assert future.result(0) in [each._replace(timestamp_ms=7) for each in told]
    first = parts[0].record_count
    assert told[0].offset == (2 if first > 2 else 100 + 2 - first)


class ModelBroker:
    """One partition of a broker, as far as idempotent producers are concerned."""

    def __init__(self) -> None:
        self.log: list[bytes | None] = []
        self.epoch = -1
        self.last: list[tuple[int, int, int]] = []

    def forget(self) -> None:
        """What it knows of the producer is gone, as after retention."""
        self.epoch = -1
        self.last = []

    def append(self, data: bytes) -> KafkaError | None:
        header = parse_header(data)
        first, end = header.base_sequence, header.base_sequence + header.record_count
        if any(each == (header.producer_epoch, first, end) for each in self.last):
            return None
        if header.producer_epoch != self.epoch:
            if first != 0:
                return UnknownProducerId() if self.epoch == -1 else OutOfOrderSequenceNumber()
        elif self.last and self.last[-1][2] != first:
            return OutOfOrderSequenceNumber()
        self.epoch = header.producer_epoch
        self.last = [*self.last, (header.producer_epoch, first, end)][-5:]
        self.log += [record.value for record in decode_batch(data)]
        return None


@pytest.mark.parametrize("seed", range(60))
def test_sequences_lose_nothing_double_nothing_and_keep_order(seed: int) -> None:
    """Batches go out up to five at a time; connections break before or behind the broker's log, at random."""
    chooser = random.Random(seed)
    broker = ModelBroker()
    sequences = Idempotence(is_transactional=False)
    sequences.set_producer(1, 0)
    queue = PartitionQueue(TopicPartition("t", 0), Lock(), 10_000)
    wire: list[ProducerBatch] = []
    sent: list[bytes] = []
    steps = 0

    def refuse(batch: ProducerBatch, error: KafkaError) -> None:
        assert sequences.may_retry(batch, error, -1 if chooser.random() < 0.5 else 0)
        batch.attempts += 1
        queue.put_back(batch)

    while steps < 400 or queue.batches or wire:
        steps += 1
        assert steps < 5_000, "it does not come to an end"
        action = chooser.random()
        if action < 0.3 and steps < 400:
            batch = ProducerBatch(queue, 0.0)
            batch.is_closed = True
            for _ in range(chooser.randrange(1, 4)):
                sent.append(b"%d" % len(sent))
                batch.append(0, None, sent[-1], ())
            queue.batches.append(batch)
            queue.waiting_bytes += batch.size_bytes
        elif action < 0.7:
            assert sequences.resolve() is None
            if queue.batches and len(wire) < 5 and sequences.may_take(queue, queue.batches[0]):
                batch = queue.batches.popleft()
                sequences.take(queue, batch)
                batch.build(CompressionType.NONE, None, False)
                wire.append(batch)
        elif action < 0.93 and wire:
            batch = wire.pop(0)
            assert batch.encoded is not None
            error = broker.append(batch.encoded)
            if error is None:
                sequences.acknowledged(batch, len(broker.log) - 1)
            else:
                refuse(batch, error)
        elif wire:
            # The connection breaks: some of what is under way has been stored, in order, and nobody is told.
            stored = chooser.randrange(len(wire) + 1)
            for batch in wire[:stored]:
                assert batch.encoded is not None
                broker.append(batch.encoded)
            broken, wire = wire, []
            for batch in broken:
                refuse(batch, NetworkException())
    assert broker.log == sent
    assert not queue.in_flight
