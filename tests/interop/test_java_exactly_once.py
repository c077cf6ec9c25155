"""Exactly once by Kafka's own test programs: the transactional copier and the smoke test of Kafka Streams."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import pytest

from tests.broker.record_requests import create_topic
from tests.clients.broker_process import BrokerProcess
from tests.histories.final_state import read_final_state
from tests.interop.programs import available, java, run, streams_test
from tests.peers.kafka_peer import V3, V4
from tests.waiting import Deadline

# This bounds a wait on a busy machine; it is not what is expected.
WAIT_S: Final = 420
MESSAGES: Final = 4_000
PARTITIONS: Final = 2

SMOKE_TOPICS: Final = (
    *("data", "fk", "echo", "min", "min-suppressed", "min-raw", "max", "sum", "sws-raw", "sws-suppressed"),
    *("dif", "cnt", "avg", "wcnt", "tagg"),
)
SMOKE_PARTITIONS: Final = 5


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("interop") / "data", {"group.initial.rebalance.delay.ms": "0"}
    ) as running:
        yield running
        assert "Traceback" not in running.log_file.read_text(), running.log_text()
        assert running.stop() == 0


class Program:
    """A program beside others; what it says goes to a file."""

    def __init__(self, command: list[str], output: Path) -> None:
        self._output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def said(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        deadline = Deadline(WAIT_S)
        while text not in self.said():
            assert self._process.poll() is None, f"it ended without {text!r}:\n{self.said()[-4000:]}"
            deadline.check(lambda: f"no {text!r}:\n{self.said()[-4000:]}")
            time.sleep(0.1)

    def wait(self) -> str:
        assert self._process.wait(WAIT_S) == 0, self.said()[-4000:]
        return self.said()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.parametrize("version", [V3, V4])
@pytest.mark.parametrize("mode", ["simple", "group"])
def test_transactional_copier(broker: BrokerProcess, tmp_path: Path, version: str, mode: str) -> None:
    """Two copiers abort at random; one of them is killed and goes on. What they copy is there once."""
    source, target = f"source-{version}-{mode}", f"target-{version}-{mode}"
    with broker.client() as client:
        create_topic(client, source, PARTITIONS)
        create_topic(client, target, PARTITIONS)
    tool = "org.apache.kafka.tools."
    run(
        [
            *available(lambda: java(version, f"{tool}VerifiableProducer")),
            *("--bootstrap-server", broker.address, "--topic", source, "--max-messages", str(MESSAGES)),
        ]
    )

    def copier(number: int, name: str) -> Program:
        command = [
            *available(lambda: java(version, f"{tool}TransactionalMessageCopier")),
            *("--broker-list", broker.address, "--input-topic", source, "--output-topic", target),
            *("--input-partition", str(number), "--transactional-id", f"{target}-{number}"),
            *("--consumer-group", f"{target}-{number if mode == 'simple' else 'all'}"),
            *("--transaction-size", "50", "--enable-random-aborts", "--transaction-timeout", "60000"),
        ]
        if mode == "group":
            # Each copies until it is stopped; which partitions it has is the group's matter.
            command += ["--group-mode", "--use-group-metadata", "--max-messages", "-1"]
        return Program(command, tmp_path / name)

    with ExitStack() as stack:
        copiers = [stack.enter_context(copier(number, f"copier-{number}")) for number in range(PARTITIONS)]
        copiers[0].wait_for('"totalProcessed"')
        copiers[0].kill()
        copiers[0] = stack.enter_context(copier(0, "copier-again"))
        check_copied(broker, tmp_path, version, target)
        if mode == "simple":
            for each in copiers:
                each.wait()
        with broker.client() as client:
            logs = read_final_state(client, {target: PARTITIONS}, []).logs.values()
        visible = [value for log in logs for offset, value in log.records if offset in log.committed]
        assert sorted(map(int, visible)) == list(range(MESSAGES))


def check_copied(broker: BrokerProcess, folder: Path, version: str, topic: str) -> None:
    """Consumes as many as there are to be: each number came exactly once."""
    config = folder / "consumer.properties"
    config.write_text("isolation.level=read_committed\n")
    command = [
        *available(lambda: java(version, "org.apache.kafka.tools.VerifiableConsumer")),
        *("--bootstrap-server", broker.address, "--topic", topic, "--group-id", f"check-{topic}"),
        *("--verbose", "--max-messages", str(MESSAGES), "--consumer.config", str(config)),
        *("--reset-policy", "earliest"),
    ]
    said = Program(command, folder / "consumer").wait()
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    values = sorted(int(event["value"]) for event in events if event["name"] == "record_data")
    assert values == list(range(MESSAGES))
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert commits
    assert all(event["success"] for event in commits)


def test_streams_smoke_test(broker: BrokerProcess, tmp_path: Path) -> None:
    """The driver makes records for a minute and a half, and at last finds exactly what they add up to.

    One processor is killed and another one takes over, with what the group and the transactions of the first know.
    """
    with broker.client() as client:
        for topic in SMOKE_TOPICS:
            create_topic(client, topic, SMOKE_PARTITIONS)
    main_class = "org.apache.kafka.streams.tests.StreamsSmokeTest"

    def program(name: str, command: str) -> Program:
        config = tmp_path / f"{name}.properties"
        config.write_text(
            f"bootstrap.servers={broker.address}\nprocessing.guarantee=exactly_once_v2\n"
            f"state.dir={tmp_path / name}-state\nsession.timeout.ms=10000\n"
        )
        words = available(lambda: streams_test(V4, main_class))
        return Program([*words, str(config), command], tmp_path / f"{name}.out")

    with ExitStack() as stack:
        first = stack.enter_context(program("first", "process"))
        first.wait_for("REBALANCING -> RUNNING")
        driver = stack.enter_context(program("driver", "run"))
        first.wait_for("processed")
        second = stack.enter_context(program("second", "process"))
        second.wait_for("processed")
        first.kill()
        said = driver.wait()
        assert "ALL-RECORDS-DELIVERED" in said, said[-4000:]
        assert "SUCCESS" in said, said[-4000:]
        assert "PROCESSED-MORE-THAN-GENERATED" not in said
