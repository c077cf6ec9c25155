"""One log directory that Apache Kafka 3.9.1 and Barnabas use in turn, each after the other's orderly end or crash.

The topic has one replica, so nothing heals what one of them misunderstands in the files of the other.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from barnabas.client.admin.results import NewTopic
from barnabas.log.checkpoints import parse_epochs, parse_offsets
from barnabas.model import TopicPartition
from barnabas.records.reader import iterate_batches
from tests.cluster.mixed import BARNABAS, KAFKA, EitherBroker, MixedCluster, Software, mixed_cluster
from tests.peers.zookeeper_peer import ZooKeeperServer
from tests.waiting import Deadline, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

IS_SOAK: Final = os.environ.get("BARNABAS_SOAK") == "1"
TOPIC: Final = "orders"
AT: Final = TopicPartition(TOPIC, 0)
GROUP: Final = "readers"
COUNT: Final = 60
SETTINGS: Final = {
    # Checkpoints are soon on the disk, so that a crash has something to mislead with.
    "log.initial.task.delay.ms": 100,
    "log.flush.offset.checkpoint.interval.ms": 200,
    "log.flush.start.offset.checkpoint.interval.ms": 200,
    "replica.high.watermark.checkpoint.interval.ms": 200,
    "log.segment.bytes": 4_096,
    "zookeeper.session.timeout.ms": 3_000,
}
ORDERLY, CRASH = "stop", "crash"


class Directory:
    """What must be in the log directory, whoever has written it."""

    def __init__(self, brokers: MixedCluster) -> None:
        self._brokers = brokers
        self._broker = brokers.either(1)
        self._values: list[tuple[int, bytes]] = []
        self._start_offset = 0
        self._number = 0

    def use(self) -> None:
        """Records, an aborted and a committed transaction, offsets of a group, and records deleted."""
        self._number += 1
        with self._brokers.producer(acks="all") as producer:
            for each in range(COUNT):
                value = b"%d-%d " % (self._number, each) + bytes(100)
                delivered = producer.send(TOPIC, value, partition=0).result(60)
                self._values.append((delivered.offset, value))
        with self._brokers.producer(transactional_id="id") as producer:
            for commits in (False, True):
                producer.begin_transaction()
                value = b"%d-%s" % (self._number, str(commits).encode())
                delivered = producer.send(TOPIC, value, partition=0).result(60)
                producer.send_offsets_to_transaction({AT: delivered.offset}, GROUP)
                if commits:
                    producer.commit_transaction()
                    self._values.append((delivered.offset, value))
                else:
                    producer.abort_transaction()
        self._start_offset = self._values[-COUNT // 2][0]
        with self._brokers.admin() as admin:
            admin.delete_records({AT: self._start_offset})
        wait_until(
            lambda: self._checkpoint("log-start-offset-checkpoint").get(AT) == self._start_offset,
            lambda: self._checkpoint("log-start-offset-checkpoint"),
        )

    def check(self) -> None:
        expected = [each for each in self._values if each[0] >= self._start_offset]
        assert self._read() == expected
        with self._brokers.admin() as admin:
            assert admin.list_group_offsets(GROUP)[AT].offset == self._values[-1][0]
        wait_until(self._has_the_epochs, self._shown_epochs)

    def _read(self) -> list[tuple[int, bytes | None]]:
        found: list[tuple[int, bytes | None]] = []
        deadline = Deadline()
        with self._brokers.consumer(isolation_level="read_committed") as consumer:
            consumer.assign([AT])
            while not found or found[-1][0] < self._values[-1][0]:
                deadline.check(f"{len(found)} records, the last at {found[-1:]}")
                found += [(record.offset, record.value) for record in consumer.poll(500)]
        return found

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        path = self._broker.directory / name
        return dict(parse_offsets(path.read_bytes(), str(path)))

    def _epochs(self) -> dict[int, int]:
        path = self._broker.directory / f"{TOPIC}-0" / "leader-epoch-checkpoint"
        return {epoch: offset for epoch, offset in parse_epochs(path.read_bytes(), str(path)) if epoch >= 0}

    def _epochs_of_records(self) -> dict[int, int]:
        """As records have them; one that is in part deleted begins at the start of the log."""
        found: dict[int, int] = {}
        for path in sorted((self._broker.directory / f"{TOPIC}-0").glob("*.log")):
            for header, _ in iterate_batches(path.read_bytes()):
                if header.last_offset >= self._start_offset:
                    offset = max(header.base_offset, self._start_offset)
                    found.setdefault(header.partition_leader_epoch, offset)
        return found

    def _has_the_epochs(self) -> bool:
        """A leader that has not written anything yet has an epoch that the records do not have."""
        found, expected = self._epochs(), self._epochs_of_records()
        return {epoch: offset for epoch, offset in found.items() if epoch in expected} == expected

    def _shown_epochs(self) -> str:
        return f"{self._epochs()}, and the records have {self._epochs_of_records()}"


def end(broker: EitherBroker, how: str, brokers: MixedCluster) -> None:
    if how == ORDERLY:
        assert broker.stop() == 0, broker.log_text()[-4000:]
    else:
        broker.kill()
    wait_until(lambda: brokers.broker_epoch(1) is None, "the session has ended")


# The rolling migration has the orderly way too.
@pytest.mark.parametrize("how", [ORDERLY, CRASH] if IS_SOAK else [CRASH])
def test_in_turn(tmp_path: Path, zookeeper: ZooKeeperServer, how: str) -> None:
    with mixed_cluster({1: KAFKA}, tmp_path, zookeeper, SETTINGS) as brokers:
        broker = brokers.either(1)
        with brokers.admin() as admin:
            admin.create_topics([NewTopic(name=TOPIC, partitions=1)])
        directory = Directory(brokers)
        directory.use()
        order: list[Software] = [BARNABAS, KAFKA, BARNABAS]
        for software in order:
            recreate(brokers)
            end(broker, how, brokers)
            broker.software = software
            broker.start()
            wait_until(lambda: broker.partition(TOPIC) is not None and not broker.out_of_sync())
            assert read_recreated(brokers)
            directory.check()
            directory.use()
            directory.check()


def recreate(brokers: MixedCluster) -> None:
    """A topic of the same name as one that the other software has had, with other records."""
    with brokers.admin() as admin:
        if brokers.tree.exists("/brokers/topics/again"):
            admin.delete_topics(["again"])
            for path in ("/brokers/topics/again", "/admin/delete_topics/again"):
                wait_until(lambda path=path: not brokers.tree.exists(path))  # type: ignore[misc]
        admin.create_topics(["again"])
    with brokers.producer(acks="all") as producer:
        producer.send("again", b"value").result(60)


def read_recreated(brokers: MixedCluster) -> bool:
    deadline = Deadline()
    with brokers.consumer() as consumer:
        consumer.assign([("again", 0)])
        while True:
            found = consumer.poll(500)
            if found:
                return [record.offset for record in found] == [0]
            deadline.check("the record of the topic that was created again")
