"""Producers that run while something happens to a cluster, and write down what was confirmed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import confluent_kafka
from aiokafka import AIOKafkaProducer

from barnabas.client.producer.records import RecordMetadata
from barnabas.model import TopicPartition
from tests.cluster.clusters import Cluster
from tests.peers.kafka_peer import V3, jars
from tests.waiting import wait_until

# These bound a wait on a busy machine; they are not what is expected.
WAIT_S: Final = 120
PAUSE_S: Final = 0.005
BETWEEN: Final = 30
# The tool does not try again by itself.
RETRIES_MAX: Final = (1 << 31) - 1


class Load:
    """What a producer has sent and what was confirmed: values by partition, in the order of sending."""

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic = topic
        self.partitions = partitions
        self.sent: dict[int, list[str]] = defaultdict(list)
        self.confirmed: dict[int, dict[str, int]] = defaultdict(dict)

    @property
    def confirmed_count(self) -> int:
        return sum(map(len, self.confirmed.values()))

    def wait_for_more(self, count: int = BETWEEN) -> None:
        """Waits until so many more records have been confirmed."""
        wanted = self.confirmed_count + count
        wait_until(
            lambda: self.confirmed_count >= wanted, f"{count} more records confirmed", timeout_s=WAIT_S
        )

    def wait_for_more_of(self, partition: int) -> None:
        wanted = len(self.confirmed[partition]) + 1
        wait_until(
            lambda: len(self.confirmed[partition]) >= wanted,
            f"a record of partition {partition} confirmed",
            timeout_s=WAIT_S,
        )

    def check(self, found: Mapping[int, list[tuple[int, str]]]) -> None:
        """Every confirmed record is where it was confirmed, none was invented, and the order of sending is kept."""
        for partition in range(self.partitions):
            by_offset = dict(found[partition])
            values = [value for _, value in found[partition]]
            for value, offset in self.confirmed[partition].items():
                assert by_offset.get(offset) == value, f"{value} is not at {offset} of partition {partition}"
            sent = {value: number for number, value in enumerate(self.sent[partition])}
            assert sent.keys() >= set(values), f"partition {partition} has values that nobody has sent"
            numbers = [sent[value] for value in values]
            assert numbers == sorted(set(numbers)), f"partition {partition} is reordered or has duplicates"


class ThreadLoad(Load):
    """A client in a thread of this process, with acks=all and idempotence: records to all partitions in turn."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__(topic, partitions)
        self.cluster = cluster
        self.is_over = threading.Event()
        self.failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name=type(self).__name__)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_over.set()
        self._thread.join()
        assert not self.failures, self.failures

    @property
    def confirmed_count(self) -> int:
        assert not self.failures, self.failures
        return super().confirmed_count

    def produce(self) -> None:
        """Sends what `next_record` returns until it is over, and waits for all answers."""
        raise NotImplementedError

    def next_record(self) -> tuple[int, str]:
        """A partition, and a value that is new."""
        number = sum(map(len, self.sent.values()))
        partition, value = number % self.partitions, str(number)
        self.sent[partition].append(value)
        return partition, value

    def confirm(self, partition: int, value: str, offset: int) -> None:
        self.confirmed[partition][value] = offset

    def _run(self) -> None:
        try:
            self.produce()
        except BaseException as error:
            self.failures.append(error)


class OwnLoad(ThreadLoad):
    def produce(self) -> None:
        with self.cluster.producer(acks="all", linger_ms=0) as producer:
            while not self.is_over.wait(PAUSE_S):
                partition, value = self.next_record()
                on_delivery = partial(self._on_delivery, value)
                producer.send(self.topic, value.encode(), partition=partition, on_delivery=on_delivery)
            producer.flush(timeout_ms=WAIT_S * 1000)

    def _on_delivery(self, value: str, metadata: RecordMetadata | None, error: Exception | None) -> None:
        if metadata is None:
            self.failures.append(error or AssertionError("neither a position nor an error"))
        else:
            self.confirm(metadata.partition, value, metadata.offset)


class ConfluentLoad(ThreadLoad):
    def produce(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )
        while not self.is_over.is_set():
            partition, value = self.next_record()
            producer.produce(
                self.topic, value.encode(), partition=partition, on_delivery=partial(self._on_delivery, value)
            )
            producer.poll(PAUSE_S)
        left = producer.flush(WAIT_S)
        assert left == 0, f"{left} records without an answer"

    def _on_delivery(
        self, value: str, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            self.failures.append(AssertionError(f"{value} failed: {error}"))
        else:
            self.confirm(partition, value, offset)


class AiokafkaLoad(ThreadLoad):
    def produce(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self.cluster.bootstrap,
            enable_idempotence=True,
            request_timeout_ms=WAIT_S * 1000,
            retry_backoff_ms=50,
        ) as producer:
            while not self.is_over.is_set():
                partition, value = self.next_record()
                sent = await producer.send(self.topic, value.encode(), partition=partition)
                sent.add_done_callback(partial(self._on_done, value))
                await asyncio.sleep(PAUSE_S)
            await producer.flush()

    def _on_done(self, value: str, sent: asyncio.Future[Any]) -> None:
        if sent.cancelled() or sent.exception() is not None:
            self.failures.append(AssertionError(f"{value} failed: {sent}"))
        else:
            self.confirm(sent.result().partition, value, sent.result().offset)


class JavaLoad(Load):
    """Apache Kafka's VerifiableProducer, with acks=all and idempotence."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int, folder: Path) -> None:
        super().__init__(topic, partitions)
        self._cluster = cluster
        self._folder = folder
        self._output = folder / "verifiable-producer.out"
        self._process: subprocess.Popen[bytes] | None = None
        self._read_bytes = 0
        # It says at its end how many records it has sent: the numbers from 0 on.
        self._sent_count = 0

    def __enter__(self) -> Self:
        settings = self._folder / "producer.properties"
        settings.write_text(f"enable.idempotence=true\nretries={RETRIES_MAX}\n")
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *("java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{jars(V3)}/*"),
                    "org.apache.kafka.tools.VerifiableProducer",
                    *("--topic", self.topic, "--bootstrap-server", self._cluster.bootstrap),
                    *("--throughput", "200", "--acks", "-1", "--producer.config", str(settings)),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(WAIT_S)
        self._read()

    @property
    def confirmed_count(self) -> int:
        assert self._process is not None
        assert self._process.poll() is None, self._output.read_text()[-4000:]
        self._read()
        return super().confirmed_count

    def _read(self) -> None:
        with self._output.open("rb") as output:
            output.seek(self._read_bytes)
            lines = output.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            if not line.startswith(b"{"):
                continue
            told = json.loads(line)
            assert told["name"] != "producer_send_error", told
            if told["name"] == "tool_data":
                self._sent_count = told["sent"]
            elif told["name"] == "producer_send_success":
                self.confirmed[told["partition"]][told["value"]] = told["offset"]

    def check(self, found: Mapping[int, list[tuple[int, str]]]) -> None:
        """It sends the numbers in order, and does not say to which partition before they are confirmed."""
        values = [value for records in found.values() for _, value in records]
        assert len(set(values)) == len(values), "a value is in two partitions"
        assert set(values) <= set(map(str, range(self._sent_count))), "there are values that nobody has sent"
        for partition, records in found.items():
            numbers = [int(value) for _, value in records]
            assert numbers == sorted(set(numbers)), f"partition {partition} is reordered or has duplicates"
            by_offset = dict(records)
            for value, offset in self.confirmed[partition].items():
                assert by_offset.get(offset) == value, f"{value} is not at {offset} of partition {partition}"


def read_topic(cluster: Cluster, topic: str, partitions: int) -> dict[int, list[tuple[int, str]]]:
    """All records of a topic: offset and value, by partition."""
    found: dict[int, list[tuple[int, str]]] = {}
    with cluster.consumer() as consumer:
        consumer.assign((topic, partition) for partition in range(partitions))
        ends = consumer.end_offsets(*(TopicPartition(topic, each) for each in range(partitions)))
        for partition in range(partitions):
            found[partition] = []
        while any(
            (found[at.partition][-1][0] + 1 if found[at.partition] else 0) < end for at, end in ends.items()
        ):
            for record in consumer.poll(WAIT_S * 1_000):
                assert record.value is not None
                found[record.partition].append((record.offset, record.value.decode()))
    return found
