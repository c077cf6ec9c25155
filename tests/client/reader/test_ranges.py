from __future__ import annotations

from collections.abc import Iterator

import pytest

import barnabas.client.reader.ranges
from barnabas.client.admin.admin import Admin
from barnabas.client.producer.producer import Producer
from barnabas.client.reader.partition_reader import PartitionReader
from barnabas.client.reader.ranges import read_range
from barnabas.errors import RequestTimedOut, UnknownTopicOrPartition
from barnabas.model import TopicPartition
from tests.client.topics import made
from tests.clients.broker_process import BrokerProcess

TIMEOUT_MS = 10_000


@pytest.fixture
def reader(broker: BrokerProcess) -> Iterator[PartitionReader]:
    # Small fetches, so that a range takes several.
    made_reader = PartitionReader(
        {
            "bootstrap.servers": broker.address,
            "max.partition.fetch.bytes": "1000",
            "fetch.max.bytes": "1000",
            "fetch.max.wait.ms": "20",
        }
    )
    yield made_reader
    made_reader.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the first answers as final: the only broker stays the leader."""
    monkeypatch.setattr(barnabas.client.reader.ranges, "SETTLING_S", 0.05)


@pytest.fixture(scope="module")
def producer(broker: BrokerProcess) -> Iterator[Producer]:
    """Sends batches only when it is told to, so that a test knows what is in each."""
    with Producer(bootstrap_servers=broker.address, linger_ms=60_000) as patient:
        yield patient


def fill(producer: Producer, topic: str, count: int) -> None:
    """Writes batches of ten records."""
    for number in range(count):
        producer.send(topic, f"value-{number:03}".encode(), partition=0, timestamp_ms=1_000 + number)
        if number % 10 == 9:
            producer.flush()
    producer.flush()


def read(
    reader: PartitionReader, topic: str, start_offset: int, end_offset: int, *, topic_id: str | None = None
) -> tuple[list[tuple[int, int]], list[str]]:
    """The offsets of the batches that were read, first and next, and the losses that were reported."""
    losses: list[str] = []
    batches: list[tuple[int, int]] = []
    for fetched in read_range(
        reader,
        TopicPartition(topic, 0),
        start_offset,
        end_offset,
        timeout_ms=TIMEOUT_MS,
        on_data_loss=losses.append,
        topic_id=topic_id,
    ):
        while (header := fetched.next_batch(start_offset)) is not None:
            batches.append((header.base_offset, header.next_offset))
    return batches, losses


def test_a_range_is_read_over_several_fetches(
    broker: BrokerProcess, producer: Producer, reader: PartitionReader, topic: str
) -> None:
    fill(producer, made(broker, topic), 100)
    assert read(reader, topic, 0, 100) == ([(base, base + 10) for base in range(0, 100, 10)], [])
    batches, losses = read(reader, topic, 25, 60)
    assert batches[:4] == [(20, 30), (30, 40), (40, 50), (50, 60)]
    assert losses == []


def test_the_offsets_of_a_log_and_of_times(
    broker: BrokerProcess, producer: Producer, reader: PartitionReader, topic: str
) -> None:
    fill(producer, made(broker, topic), 20)
    partition = TopicPartition(topic, 0)
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.delete_records({partition: 4})
    assert reader.bounds(partition) == (4, 20)
    assert reader.offset_at(partition, 1_007) == 7
    assert reader.offset_at(partition, 9_999) == -1
    with Admin(bootstrap_servers=broker.address) as admin:
        described = admin.describe_topics([topic])[topic]
    assert reader.leader(partition).node == described.partitions[0].leader
    with pytest.raises(UnknownTopicOrPartition):
        reader.bounds(TopicPartition(topic, 1))


@pytest.mark.usefixtures("impatient")
def test_what_is_gone_is_reported(
    broker: BrokerProcess, producer: Producer, reader: PartitionReader, topic: str
) -> None:
    fill(producer, made(broker, topic), 20)
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.delete_records({TopicPartition(topic, 0): 10})
        assert read(reader, topic, 3, 20) == (
            [(10, 20)],
            [f"offsets 3 to 9 of {topic}-0 have expired; its log begins at 10"],
        )
        batches, (loss,) = read(reader, topic, 10, 25)
        assert batches == [(10, 20)]
        assert loss.startswith(f"{topic}-0 ends at offset 20, before the expected end 25")
        topic_id = admin.describe_topics([topic])[topic].topic_id
        admin.delete_topics([topic])
        made(broker, topic)
        batches, (loss,) = read(reader, topic, 10, 20, topic_id=topic_id)
        assert batches == []
        assert "was deleted and created again before offsets 10 to 20" in loss


def test_an_exception_of_the_caller_ends_the_read(
    broker: BrokerProcess, producer: Producer, reader: PartitionReader, topic: str
) -> None:
    fill(producer, made(broker, topic), 20)
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.delete_records({TopicPartition(topic, 0): 10})

    def refuse(message: str) -> None:
        raise ValueError(message)

    reading = read_range(reader, TopicPartition(topic, 0), 0, 20, timeout_ms=TIMEOUT_MS, on_data_loss=refuse)
    with pytest.raises(ValueError, match=r"offsets 0 to 9 of .* have expired"):
        next(reading)


def test_a_range_without_progress_fails_in_time() -> None:
    unreachable = PartitionReader({"bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": "100"})
    try:
        reading = read_range(
            unreachable, TopicPartition("any", 0), 0, 1, timeout_ms=200, on_data_loss=lambda _: None
        )
        with pytest.raises(RequestTimedOut, match="no records of any-0 at offset 0 arrived within 200 ms"):
            next(reading)
    finally:
        unreachable.close()
