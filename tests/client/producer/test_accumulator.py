"""Batches, their memory and their sequences, without a broker."""

from __future__ import annotations

import asyncio
import random

import pytest
from librt.threading import Lock

from barnabas.client.connections.brokers import Brokers
from barnabas.client.connections.cluster import Cluster
from barnabas.client.producer.accumulator import Accumulator, TopicQueue
from barnabas.client.producer.batches import (
    BATCH_OVERHEAD_BYTES,
    PartitionQueue,
    ProducerBatch,
    record_bound_bytes,
)
from barnabas.client.producer.buffer_pool import BufferPool, Waiter
from barnabas.client.producer.bytes_columns import ListedBytes
from barnabas.client.producer.delivery import Delivery
from barnabas.client.producer.futures import SendFuture, SendManyFuture
from barnabas.client.producer.idempotence import EPOCH_MAX, Idempotence
from barnabas.client.settings import ProducerSettings
from barnabas.errors import (
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    NetworkException,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    UnknownProducerId,
)
from barnabas.model import TopicPartition
from barnabas.records.header import parse_header
from barnabas.records.layout import CompressionType
from barnabas.records.reader import decode_batch

SEEDS = 60


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
    values = ListedBytes([bytes(100)] * 100)
    future = SendManyFuture()
    position = records.append_values(topic, None, values, 0, 1, future, 0)
    assert 0 < position < 100
    assert len(future) == position
    assert records.pool.available_bytes >= 0
    assert records.append_values(topic, None, values, position, 1, future, 0) == position


def test_many_values_use_the_room_that_was_waited_for_though_others_wait() -> None:
    records = accumulator(buffer_bytes=10_000)
    topic = records.set_topic("t", [True])
    bound = record_bound_bytes(None, bytes(5_000), ()) + BATCH_OVERHEAD_BYTES
    first, second = Waiter(bound, lambda: None), Waiter(bound, lambda: None)
    records.pool.wait(first)
    records.pool.wait(second)
    assert (first.is_granted, second.is_granted) == (True, False)
    future = SendManyFuture()
    values = ListedBytes([bytes(5_000), bytes(1)])
    assert records.append_values(topic, None, values, 0, 1, future, bound) == 1, "what is left is for others"
    [batch] = records.incomplete
    assert records.pool.available_bytes == 10_000 - batch.charged_bytes
    assert records.append_values(topic, None, values, 1, 1, future, 0) == 1


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


def test_a_topic_that_is_made_anew_may_have_fewer_partitions() -> None:
    records = accumulator()
    topic = records.set_topic("t", [True] * 3, b"one")
    before = list(topic.partitions)
    topic.sticky = before[2]
    records.set_topic("t", [True], b"one")
    assert topic.partitions == before, "a broker that lags behind says so"
    records.set_topic("t", [True], b"two")
    assert topic.partitions == topic.available == [topic.sticky] == before[:1]
    assert {records.choose(topic, b"%d" % key).partition for key in range(20)} == {0}
    records.set_topic("t", [True] * 4, b"two")
    assert topic.partitions[:3] == before, "sequences go on where they were"
    assert [queue.partition for queue in topic.partitions] == [0, 1, 2, 3]


def test_the_parts_of_a_batch_take_its_place_among_those_that_expire() -> None:
    records = accumulator()
    topic = records.set_topic("t", [True] * 3)
    made = []
    for queue in topic.partitions:
        for _ in range(2):
            batch = records.append(topic, queue, 1_700_000_000_000, None, bytes(100), (), 200)
        made.append(batch)
    older, large, younger = made

    async def split() -> None:
        settings = ProducerSettings(bootstrap_servers="127.0.0.1:1")
        delivery = Delivery(settings, Cluster(settings, Brokers(settings)), records, None)
        records.remove_waiting(large.queue, large)
        large.build(CompressionType.NONE, None, False)
        delivery.refused(large, MessageTooLarge(), None)

    asyncio.run(split())
    assert large.parts is not None
    assert len(large.parts) == 2
    assert list(records.incomplete) == [older, *large.parts, younger]


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
        # Producer id and epoch; and of the last batches these and their sequences.
        self.epoch: tuple[int, int] | None = None
        self.last: list[tuple[tuple[int, int], int, int]] = []

    def append(self, data: bytes) -> KafkaError | None:
        header = parse_header(data)
        if decode_batch(data)[0].value == b"bad":
            return InvalidRecord()
        first, end = header.base_sequence, header.base_sequence + header.record_count
        epoch = (header.producer_id, header.producer_epoch)
        if (epoch, first, end) in self.last:
            return None
        if epoch != self.epoch:
            if first != 0:
                is_unknown = self.epoch is None or self.epoch[0] != header.producer_id
                return UnknownProducerId() if is_unknown else OutOfOrderSequenceNumber()
        elif self.last and self.last[-1][2] != first:
            return OutOfOrderSequenceNumber()
        self.epoch = epoch
        self.last = [*self.last, (epoch, first, end)][-5:]
        self.log += [record.value for record in decode_batch(data)]
        return None


class Simulation:
    """One partition: batches go out up to five at a time; connections break before or behind the broker's log.

    With faults, a batch may also be refused for good, given up wherever it is, or the broker may forget the producer.
    """

    def __init__(self, seed: int, *, has_faults: bool) -> None:
        self.chooser = random.Random(seed)
        self.has_faults = has_faults
        self.broker = ModelBroker()
        self.sequences = Idempotence(is_transactional=False)
        # Some run out of epochs soon, and get another id.
        self.sequences.set_producer(1, self.chooser.choice([0, EPOCH_MAX - 1]))
        self.queue = PartitionQueue(TopicPartition("t", 0), Lock(), 10_000)
        self.wire: list[ProducerBatch] = []
        self.open: list[ProducerBatch] = []
        self.sent: list[bytes] = []
        # The caller was told that nobody knows whether they are stored.
        self.given_up: set[bytes] = set()
        self.values: dict[ProducerBatch, list[bytes]] = {}

    def run(self) -> None:
        steps = 0
        while steps < 300 or self.queue.batches or self.wire:
            steps += 1
            assert steps < 5_000, "it does not come to an end"
            action = self.chooser.random()
            if action < 0.3:
                if steps < 300:
                    self.append()
            elif action < 0.65:
                self.take()
            elif action < 0.9:
                if self.wire:
                    self.answer()
            elif action < 0.96:
                if self.wire:
                    self.cut()
            elif self.has_faults and self.open and steps < 300:
                self.give_up(self.chooser.choice(self.open))

    def append(self) -> None:
        batch = ProducerBatch(self.queue, 0.0)
        batch.is_closed = True
        self.values[batch] = []
        is_bad = self.has_faults and self.chooser.random() < 0.05
        for _ in range(self.chooser.randrange(1, 4)):
            self.sent.append(b"bad" if is_bad else b"%d" % len(self.sent))
            self.values[batch].append(self.sent[-1])
            batch.append(0, None, self.sent[-1], ())
        self.queue.batches.append(batch)
        self.open.append(batch)

    def take(self) -> None:
        assert self.sequences.resolve() is None
        if not self.sequences.has_producer_id:
            self.sequences.set_producer(self.chooser.randrange(2, 1 << 40), 0)
        waiting = self.queue.batches
        if waiting and len(self.wire) < 5 and self.sequences.may_take(self.queue, waiting[0]):
            batch = waiting.popleft()
            self.sequences.take(self.queue, batch)
            batch.sent_topic_id = batch.build(CompressionType.NONE, None, False)
            batch.is_on_the_wire = True
            self.wire.append(batch)

    def answer(self) -> None:
        batch = self.wire.pop(0)
        self.told(batch, self.broker.append(batch.sent_topic_id))

    def cut(self) -> None:
        """Some of what is under way has been stored, in order, and nobody is told."""
        stored = self.chooser.randrange(len(self.wire) + 1)
        for batch in self.wire[:stored]:
            self.broker.append(batch.sent_topic_id)
        broken, self.wire = self.wire, []
        for batch in broken:
            self.told(batch, NetworkException())

    def told(self, batch: ProducerBatch, error: KafkaError | None) -> None:
        batch.is_on_the_wire = False
        if error is None:
            self.sequences.acknowledged(batch, len(self.broker.log) - 1)
            self.done(batch)
        elif batch.is_done:
            self.sequences.forget(batch)
        elif self.sequences.may_retry(batch, error, -1 if self.chooser.random() < 0.5 else 0):
            batch.attempts += 1
            self.queue.put_back(batch)
        else:
            assert isinstance(error, InvalidRecord)
            self.sequences.failed(batch, error, may_renumber=True)
            self.done(batch)

    def give_up(self, batch: ProducerBatch) -> None:
        self.given_up.update(self.values[batch])
        has_been_sent = batch.has_sequence
        if batch in self.queue.batches:
            self.queue.batches.remove(batch)
        if not batch.is_on_the_wire:
            self.sequences.failed(batch, RequestTimedOut(), may_renumber=False)
        if has_been_sent:
            self.sequences.mark_unresolved(batch)
        self.done(batch)

    def done(self, batch: ProducerBatch) -> None:
        batch.is_done = True
        if batch in self.open:
            self.open.remove(batch)


@pytest.mark.parametrize("has_faults", [False, True])
def test_sequences_lose_nothing_double_nothing_and_keep_order(has_faults: bool) -> None:
    for seed in range(SEEDS):
        simulation = Simulation(seed, has_faults=has_faults)
        simulation.run()
        log = simulation.broker.log
        certain = [each for each in simulation.sent if each not in simulation.given_up and each != b"bad"]
        assert [each for each in log if each not in simulation.given_up] == certain, f"seed {seed}"
        assert len(set(log)) == len(log), f"seed {seed}: twice"
        assert not simulation.queue.in_flight, f"seed {seed}"
