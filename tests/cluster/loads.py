"""Producers that run while something happens to a cluster, and write down what was confirmed."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from barnabas.client.producer.records import RecordMetadata
from barnabas.model import TopicPartition
from tests.cluster.clusters import Cluster
from tests.peers.kafka_peer import V3, jars
from tests.waiting import wait_until

# These bound a wait on a busy machine; they are not what is expected.
WAIT_S: Final = 120
PAUSE_S: Final = 0.002
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


class OwnLoad(Load):
    """Our producer, with acks=all and idempotence, one record after the other to all partitions in turn."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__(topic, partitions)
        self._cluster = cluster
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self.failures: list[BaseException] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        assert not self.failures, self.failures

    def _run(self) -> None:
        try:
            with self._cluster.producer(acks="all", linger_ms=0) as producer:
                number = 0
                while not self._is_over.wait(PAUSE_S):
                    partition, value = number % self.partitions, str(number)
                    self.sent[partition].append(value)
                    producer.send(
                        self.topic,
                        value.encode(),
                        partition=partition,
                        on_delivery=partial(self._on_delivery, value),
                    )
                    number += 1
                producer.flush(WAIT_S)
        except BaseException as error:
            self.failures.append(error)

    def _on_delivery(self, value: str, metadata: RecordMetadata | None, error: Exception | None) -> None:
        if metadata is None:
            self.failures.append(error or AssertionError("neither a position nor an error"))
        else:
            self.confirmed[metadata.partition][value] = metadata.offset


class JavaLoad(Load):
    """Apache Kafka's VerifiableProducer, with acks=all and idempotence."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int, folder: Path) -> None:
        super().__init__(topic, partitions)
        self._cluster = cluster
        self._folder = folder
        self._output = folder / "verifiable-producer.out"
        self._process: subprocess.Popen[bytes] | None = None
        self._read_bytes = 0

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
            if told["name"] == "producer_send_success":
                self.confirmed[told["partition"]][told["value"]] = told["offset"]

    def check(self, found: Mapping[int, list[tuple[int, str]]]) -> None:
        """It sends the numbers in order, and does not say to which partition before they are confirmed."""
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
