"""SIGKILL of the processes of a host with several brokers, under load: nothing that was acknowledged is missing.

One after the other, a broker, the process that has the store, or the supervisor is killed, at random moments from a
seed. Brokers and store come back by themselves. After the supervisor's end all others end too, and the next start waits
for them. Clients produce, create topics, commit offsets and run transactions meanwhile. `make soak` kills 100 brokers,
100 stores and 100 supervisors; FAULTS_HOST_KILLS sets another number.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from barnabas.errors import (
    CoordinatorLoadInProgress,
    KafkaError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from barnabas.testing import Broker
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import fetch
from tests.faults.host_clients import LEDGER, LEDGER_PARTITIONS, Committer, Transactor
from tests.faults.producers import (
    ConfluentProducer,
    LoadProducer,
    RawProducer,
    wait_for_load,
)
from tests.faults.test_kill import FETCH_BYTES, Reader, check
from tests.waiting import Deadline

TOPIC: Final = "load"
BROKERS: Final = 3
PARTITIONS: Final = 6
SEED: Final = 7
IN_SOAK: Final = os.environ.get("BARNABAS_SOAK") == "1"
# Of brokers, of the store and of the supervisor, each. Else a sample: every broker once, the store once.
KILLS: Final = int(os.environ.get("FAULTS_HOST_KILLS", "100" if IN_SOAK else "0"))
WAIT_S: Final = 120
RETRY_S: Final = 0.02
# What a leader answers while it takes its roles again.
PASSING: Final = frozenset(
    each.code
    for each in (
        CoordinatorLoadInProgress,
        LeaderNotAvailable,
        NotLeaderOrFollower,
        RequestTimedOut,
        UnknownTopicOrPartition,
    )
)


class Target(NamedTuple):
    port: int
    address: str


class Acknowledged(NamedTuple):
    records: dict[str, dict[int, int]]
    topics: set[str]
    offsets: Counter[str]


class HostReader(Reader):
    """What lies in the partitions, of which each is read from its leader."""

    def __init__(self, leaders: dict[int, Target]) -> None:
        super().__init__()
        self._leaders = leaders

    def read_all(self) -> None:
        for partition in self._leaders:
            deadline = Deadline(WAIT_S)
            while not self._read_partition(partition):
                deadline.check(f"partition {partition} has no leader")
                time.sleep(RETRY_S)

    def _read_partition(self, partition: int) -> bool:
        """Returns whether the leader has answered up to its high watermark."""
        records = self.records[partition]
        with contextlib.suppress(OSError), RawClient(self._leaders[partition].port) as client:
            while True:
                found = fetch(client, TOPIC, len(records), partition=partition, max_bytes=FETCH_BYTES)
                if found.error_code in PASSING:
                    return False
                assert found.error_code == 0, found
                if len(records) >= found.high_watermark:
                    assert len(records) == found.high_watermark, "records that were read have gone"
                    return True
                self._take(records, bytes(found.records))
        return False


class TopicMaker:
    """Creates one topic after the other; those that were confirmed have to be there after any kill."""

    def __init__(self, broker: Broker) -> None:
        self.confirmed: list[str] = []
        self._broker = broker
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topics")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        with self._broker.admin(request_timeout_ms=5_000) as admin:
            while not self._is_over.wait(0.1):
                name = f"made-{number}"
                number += 1
                with contextlib.suppress(KafkaError):
                    admin.create_topics({name: BROKERS})
                    self.confirmed.append(name)


class Load:
    """Brokers under load, and what is known of every record."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        with broker.admin() as admin:
            described = admin.describe_topics(TOPIC)[TOPIC]
        leaders = {each.partition: each.leader for each in described.partitions}
        assert sorted(filter(None, leaders.values())) == [1, 1, 2, 2], "the topic is spread over the brokers"
        self._targets = {
            partition: Target(broker.port + (leader or 0), broker.bootstrap)
            for partition, leader in leaders.items()
        }
        self._producers: list[LoadProducer] = []
        for partition, target in self._targets.items():
            for name, acks, idempotent in (("acks-1", 1, False), ("idempotent", -1, True)):
                self._producers.append(
                    RawProducer(
                        target,
                        f"{name}-{partition}",
                        TOPIC,
                        partition,
                        acks=acks,
                        idempotent=idempotent,
                        in_flight_max=1 if idempotent else 5,
                        passing_errors=PASSING,
                    )
                )
        self._producers.append(ConfluentProducer(self._targets[0], "confluent", TOPIC, 0))
        self._topics = TopicMaker(broker)
        self._reader = HostReader(self._targets)
        self._committer = Committer(broker, TOPIC)
        self._transactor = Transactor(broker)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        for producer in self._producers:
            producer.start()
        others = (self._topics, self._committer, self._transactor)
        for client in others:
            client.start()
        try:
            yield
            self.wait(10)
        finally:
            for client in others:
                client.stop()
            for producer in self._producers:
                producer.stop()
        for producer in self._producers:
            producer.check_alive()
        self.check(self.acknowledged())
        self._reader = HostReader(self._targets)
        self.check(self.acknowledged())
        self._transactor.check()

    def wait(self, count: int = 1) -> None:
        wait_for_load(self._producers, count, WAIT_S)

    def acknowledged(self) -> Acknowledged:
        return Acknowledged(
            {each.name: dict(each.acknowledged) for each in self._producers},
            set(self._topics.confirmed),
            self._committer.confirmed.copy(),
        )

    def check(self, acknowledged: Acknowledged) -> None:
        records, topics, offsets = acknowledged
        self._reader.read_all()
        check(self._producers, self._reader, records)
        self._committer.check(offsets)
        with self.broker.admin() as admin:
            assert topics <= {each.name for each in admin.list_topics()}


def pid_of(broker: Broker, victim: int) -> int | None:
    """A broker's process, if it is ready; after the last broker comes the store."""
    return broker.pids.get(victim) if victim < BROKERS else broker.store_pid


def kill_one(broker: Broker, victim: int) -> int:
    pid = pid_of(broker, victim)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def wait_for_another(broker: Broker, victim: int, killed: int) -> None:
    deadline = Deadline(WAIT_S)
    while pid_of(broker, victim) in (killed, None):
        deadline.check("the process was not started again")
        time.sleep(RETRY_S)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(
        brokers=BROKERS,
        topics={TOPIC: PARTITIONS, LEDGER: LEDGER_PARTITIONS},
        offsets_topic_num_partitions=BROKERS,
        transaction_state_log_num_partitions=BROKERS,
        directory=tmp_path / "data",
        log_flush_offset_checkpoint_interval_ms=300,
        log_initial_task_delay_ms=100,
        log_segment_bytes=1 << 20,
    ) as running:
        yield running
        assert "Traceback" not in running.log()


def victims() -> list[int]:
    """Brokers in turn, and the store, which follows them, as often."""
    if not KILLS:
        return [*range(BROKERS), BROKERS]
    return [victim for number in range(KILLS) for victim in (number % BROKERS, BROKERS)]


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_a_broker_or_the_store_is_killed(broker: Broker) -> None:
    rng = random.Random(SEED)
    load = Load(broker)
    with load.running():
        for victim in victims():
            load.wait()
            time.sleep(rng.uniform(0, 0.4))
            killed = kill_one(broker, victim)
            acknowledged = load.acknowledged()
            wait_for_another(broker, victim, killed)
            load.check(acknowledged)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_supervisor_is_killed(broker: Broker) -> None:
    rng = random.Random(SEED)
    load = Load(broker)
    with load.running():
        for _ in range(KILLS or 2):
            load.wait()
            time.sleep(rng.uniform(0, 0.4))
            broker.kill_supervisor()
            acknowledged = load.acknowledged()
            # The brokers of the last one may still be ending.
            broker.start()
            load.check(acknowledged)
