"""Drivers as processes, and the servers that they are run against."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.producer.producer import Producer
from barnabas.testing import Broker
from tests.client.consumer_servers import OURS, KafkaProcess
from tests.peers.kafka_peer import PeerUnavailable
from tests.spark.kill_matrix.driver import GO, HELD, Job, to_text
from tests.spark.sink_reading import committed_values
from tests.waiting import Deadline

ROOT: Final = Path(__file__).parents[3]
# A JVM on a busy machine: these bound a wait, they are not what is expected.
DRIVER_TIMEOUT_S: Final = 400
POLL_S: Final = 0.02
# A transaction that is too old is looked for so often.
CLEANUP_INTERVAL: Final = ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500")


class Server:
    """A broker that may be killed: ours, or Apache Kafka's."""

    def __init__(self, process: Broker | KafkaProcess) -> None:
        self._process = process

    @property
    def bootstrap(self) -> str:
        process = self._process
        return process.bootstrap if isinstance(process, Broker) else process.address

    def restart(self) -> None:
        """Kills the broker and starts it again on the same port and data."""
        self._process.kill()
        self._process.start()


@contextlib.contextmanager
def running_server(kind: str, folder: Path) -> Iterator[Server]:
    """The broker of that kind; skips, loudly, where a real Kafka is not to be had."""
    if kind == OURS:
        settings: dict[str, Any] = {CLEANUP_INTERVAL[0].replace(".", "_"): CLEANUP_INTERVAL[1]}
        with Broker(**settings) as broker:
            yield Server(broker)
        return
    try:
        kafka = KafkaProcess(folder / "kafka", kind)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with kafka._properties.open("a") as properties:
        properties.write("=".join(CLEANUP_INTERVAL) + "\n")
    kafka.start()
    try:
        yield Server(kafka)
    finally:
        kafka.kill()


class Driver:
    """A driver that was started; it and its JVM are a group of processes of their own."""

    def __init__(self, *jobs: Job) -> None:
        self._folder = Path(jobs[0].folder)
        self._output = self._folder / f"driver-{len(list(self._folder.glob('driver-*')))}.out"
        paths = [str(ROOT), *(each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each)]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.kill_matrix.driver", to_text(jobs)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )

    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def signal(self, number: int) -> None:
        os.killpg(self._process.pid, number)

    def wait(self) -> int:
        """The exit status, when it has ended."""
        return self._process.wait(DRIVER_TIMEOUT_S)

    def wait_until_held(self) -> None:
        deadline = Deadline(DRIVER_TIMEOUT_S)
        while not (self._folder / HELD).exists():
            assert self._process.poll() is None, self.output()[-4000:]
            deadline.check(lambda: self.output()[-4000:])
            time.sleep(POLL_S)

    def go_on(self) -> None:
        (self._folder / GO).touch()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self._process.wait(DRIVER_TIMEOUT_S)


@contextlib.contextmanager
def started(*jobs: Job) -> Iterator[Driver]:
    driver = Driver(*jobs)
    try:
        yield driver
    finally:
        driver.close()


def ended(*jobs: Job) -> tuple[int, str]:
    """Runs a driver to its end, whatever that is: its exit status and what it has said."""
    with started(*jobs) as driver:
        return driver.wait(), driver.output()


def feed(server: Server, topic: str, values: range, partition: int | None = None) -> list[str]:
    """Unique values, by a key that many have; what was fed."""
    with Producer(bootstrap_servers=server.bootstrap) as producer:
        for number in values:
            producer.send(topic, str(number), key=str(number % 13), partition=partition)
        producer.flush()
    return [str(number) for number in values]


def create(server: Server, **topics: int) -> None:
    with Admin(bootstrap_servers=server.bootstrap) as admin:
        admin.create_topics(topics)


def check_equal(server: Server, topic: str, wanted: list[str]) -> None:
    """What was fed is in the topic, each once."""
    found = Counter(committed_values(server.bootstrap, topic))
    expected = Counter(wanted)
    lost, surplus = expected - found, found - expected
    assert not lost, f"{lost.total()} records were lost: {list(lost)[:10]}"
    assert not surplus, f"{surplus.total()} records are there again: {list(surplus)[:10]}"
