"""Data directories with every kind of side file in them, damage to one, and all that a broker answers about them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any, Final

from barnabas.log import names
from barnabas.log.checkpoints import read_offsets
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.tools.inspection import AbortedFilter
from barnabas.model import TopicPartition
from barnabas.protocol.messages.init_producer_id_request import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.records.header import iterate_headers
from barnabas.records.reader import decode_batch
from tests.broker.group_requests import commit, fetch_offsets, wait_for_coordinator
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, fetch, produce
from tests.broker.running import RunningBroker
from tests.broker.transaction_requests import (
    add_partitions,
    delete_records,
    describe_producers,
    end_transaction,
    init_producer,
    produce_in_transaction,
)
from tests.clients.broker_process import BrokerProcess
from tests.waiting import wait_until

SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "3000",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.segment.bytes": "2000",
    "transaction.max.timeout.ms": "86400000",
    "log.index.interval.bytes": "200",
    # They are as large as that while a segment is written to, and copied again and again.
    "log.index.size.max.bytes": "4096",
}
FILLING: Final = {
    **SETTINGS,
    "log.initial.task.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.cleaner.backoff.ms": "200",
}
# What the cleaner leaves depends on when it runs.
ASKING: Final = {**SETTINGS, "log.cleaner.enable": "false"}
TOPICS: Final[dict[str, dict[str, Any]]] = {
    "plain": {"segment_bytes": "2500"},
    "idempotent": {"segment_bytes": "2500"},
    "transactions": {"segment_bytes": "2500"},
    "compacted": {"segment_bytes": "2500", "cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"},
    "small": {},
}
PARTITIONS: Final = [
    *((topic, 0) for topic in TOPICS),
    ("__consumer_offsets", 0),
    ("__consumer_offsets", 1),
    ("__transaction_state", 0),
]
GROUPS: Final = [f"group-{number}" for number in range(6)]
TRANSACTIONAL_ID: Final = "transaction"
BATCHES: Final = 40
RECORDS_A_BATCH: Final = 3
SEQUENCES_A_PHASE: Final = BATCHES * RECORDS_A_BATCH
FETCH_BYTES: Final = 700
EPOCHS: Final = range(8)
READ_COMMITTED: Final = 1

Answers = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A directory as a broker left it, and what has to be known to go on writing."""

    path: Path
    producer_id: int
    phases: int
    first_timestamp: int
    answers: Answers
    answers_after_restart: Answers
    answers_without_mark: Answers
    """Those of a broker that does not know of the clean stop: leaders have another epoch."""


class Filler:
    """Fills a directory by way of a broker that runs in a process of its own, in phases between its stops."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.broker = BrokerProcess(path, FILLING)
        # Neither retention nor the expiration of producers is to find them old.
        self.first_timestamp = time.time_ns() // 1_000_000 - 3_600_000
        self.producer_id = -1
        self.phases = 0

    def fill(self) -> None:
        with self.broker.client() as client:
            if not self.phases:
                for topic, configs in TOPICS.items():
                    create_topic(client, topic, index_interval_bytes="200", **configs)
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                self.producer_id = client.ask("InitProducerId", 4, request).producer_id
                assert produce(client, "small", self._batch(0)).error_code == 0
            first = self.phases * BATCHES
            for number in range(first, first + BATCHES):
                self._write(client, number)
            assert (
                delete_records(client, "plain", (first + BATCHES // 3) * RECORDS_A_BATCH + 1).error_code == 0
            )
            self._write_transactions(client)
            self._commit(client)
        self.phases += 1

    def _batch(self, number: int, **options: Any) -> bytes:
        # Timestamps fall back now and then.
        timestamp = self.first_timestamp + number * 1_000 - 7_000 * (number % 5 == 4)
        values = [b"%d-%d" % (number, index) for index in range(RECORDS_A_BATCH)]
        return batch(*values, timestamp=timestamp, **options)

    def _write(self, client: RawClient, number: int) -> None:
        assert produce(client, "plain", self._batch(number)).error_code == 0
        assert produce(client, "compacted", self._batch(number)).error_code == 0
        records = self._batch(
            number, producer_id=self.producer_id, producer_epoch=0, base_sequence=number * RECORDS_A_BATCH
        )
        assert produce(client, "idempotent", records, acks=-1).error_code == 0

    def _write_transactions(self, client: RawClient) -> None:
        """Some are committed and some aborted; the last one stays open."""
        # It is to be open still when the last of thousands of cases asks about it.
        producer = init_producer(client, TRANSACTIONAL_ID, timeout_ms=86_400_000)
        sequence = 0
        for number in range(16):
            add_partitions(client, TRANSACTIONAL_ID, producer, "transactions", 0)
            for index in range(2):
                answer = produce_in_transaction(
                    client,
                    "transactions",
                    b"%d-%d-%d" % (self.phases, number, index),
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    sequence=sequence,
                    transactional_id=TRANSACTIONAL_ID,
                )
                assert answer.error_code == 0, answer
                sequence += 1
            if number < 15:
                ended = end_transaction(client, TRANSACTIONAL_ID, producer, commit=number % 3 > 0)
                assert ended.error_code == 0, ended

    def _commit(self, client: RawClient) -> None:
        for group in GROUPS:
            wait_for_coordinator(client, group)
        for number in range(30):
            for group in GROUPS[number % 2 :: 2]:
                assert set(commit(client, group, {("plain", 0): number, ("small", 0): 1}).values()) == {0}

    def wait_for_checkpoints(self) -> None:
        """Until recovery points are behind the first segments, and something has been compacted."""
        fs = DiskFileSystem()

        def is_written(name: str, topics: list[str]) -> bool:
            offsets = read_offsets(fs, str(self.path / name))
            return all(offsets.get(TopicPartition(topic, 0), 0) > 0 for topic in topics)

        several = ["plain", "idempotent", "transactions", "compacted"]
        wait_until(lambda: is_written(names.RECOVERY_POINT_CHECKPOINT, several))
        wait_until(lambda: is_written(names.REPLICATION_OFFSET_CHECKPOINT, several))
        wait_until(lambda: is_written(names.LOG_START_OFFSET_CHECKPOINT, ["plain"]))
        wait_until(lambda: is_written(names.CLEANER_OFFSET_CHECKPOINT, ["compacted"]))

    def copied(self, path: Path) -> Template:
        """The directory as it is now, with all answers about it."""
        shutil.copytree(self.path, path)
        template = Template(
            path=path,
            producer_id=self.producer_id,
            phases=self.phases,
            first_timestamp=self.first_timestamp,
            answers={},
            answers_after_restart={},
            answers_without_mark={},
        )
        with serving(template, path.with_name(path.name + "-intact")) as broker:
            template.answers.update(ask_all(broker, template))
            broker.stop()
            broker.start()
            template.answers_after_restart.update(ask(broker, template))
        with serving(template, path.with_name(path.name + "-unmarked"), _remove_mark) as broker:
            template.answers_without_mark.update(ask_all(broker, template))
        return template


def _remove_mark(path: Path) -> None:
    (path / names.CLEAN_SHUTDOWN).unlink(missing_ok=True)


def make_templates(folder: Path) -> dict[str, Template]:
    """What SIGKILL leaves, and what a clean stop leaves, each after a restart or two."""
    filler = Filler(folder / "filled")
    with filler.broker as broker:
        filler.fill()
        broker.restart()
        filler.fill()
        filler.wait_for_checkpoints()
        broker.kill()
        killed = filler.copied(folder / "killed")
        broker.start()
        filler.fill()
        filler.wait_for_checkpoints()
        assert broker.stop() == 0
        return {"killed": killed, "clean": filler.copied(folder / "clean")}


@contextmanager
def serving(
    template: Template, path: Path, damage: Callable[[Path], None] = lambda _: None
) -> Iterator[RunningBroker]:
    """A broker on a copy of the template, which may be damaged before; the copy is gone afterwards."""
    shutil.copytree(template.path, path)
    broker = RunningBroker(path, ASKING)
    try:
        damage(path)
        with broker:
            yield broker
    finally:
        shutil.rmtree(path)


# The kinds of side files, each with the names of its files below the data directory.
KINDS: Final = {
    "index": "*/*.index",
    "timeindex": "*/*.timeindex",
    "txnindex": "*/*.txnindex",
    "snapshot": "*/*.snapshot",
    "epochs": f"*/{names.LEADER_EPOCH_CHECKPOINT}",
    "metadata": f"*/{names.PARTITION_METADATA}",
    "list": f"*/{names.SIDE_FILES}",
    "recovery points": names.RECOVERY_POINT_CHECKPOINT,
    "log starts": names.LOG_START_OFFSET_CHECKPOINT,
    "copy of log starts": names.LOG_START_OFFSET_CHECKPOINT + names.COPY_SUFFIX,
    "high watermarks": names.REPLICATION_OFFSET_CHECKPOINT,
    "cleaner offsets": names.CLEANER_OFFSET_CHECKPOINT,
    "clean shutdown": names.CLEAN_SHUTDOWN,
    "register": names.PARTITION_REGISTER,
    "meta.properties": names.META_PROPERTIES,
    "store": "barnabas-store*",
}
# Those of which a damaged file may also keep the broker from starting, if it says why. The store has two copies: damage
# to one of them costs nothing.
MAY_REFUSE: Final = frozenset({"meta.properties"})


def files_of(kind: str, path: Path) -> list[Path]:
    return sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and fnmatchcase(str(file.relative_to(path)), KINDS[kind])
    )


def damage(file: Path, rng: Random) -> str:
    """Does something to the file, and tells what."""
    data = bytearray(file.read_bytes())
    choices = ["removed", "random tail", "emptied"]
    if data:
        choices += [
            "bits flipped",
            "bits flipped",
            "cut",
            "overwritten",
            "zeroed",
            "top bit set",
            "all random",
        ]
    done = rng.choice(choices)
    if done == "removed":
        file.unlink()
        return done
    if done == "random tail":
        data += rng.randbytes(rng.choice([1, 8, 12, 34, rng.randrange(1, 200)]))
    elif done == "emptied":
        data.clear()
    elif done == "bits flipped":
        for _ in range(rng.choice([1, 1, 1, 2, 8])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif done == "cut":
        entry_bytes = {".index": 8, ".timeindex": 12, ".txnindex": 34}.get(file.suffix, 1)
        count = len(data) // entry_bytes
        del data[(rng.randrange(count) * entry_bytes if count else 0) :]
    elif done == "overwritten":
        start = rng.randrange(len(data))
        part = rng.randbytes(rng.randrange(1, 40))[: len(data) - start]
        data[start : start + len(part)] = part
    elif done == "zeroed":
        start = rng.choice([0, rng.randrange(len(data))])
        data[start:] = bytes(len(data) - start)
    elif done == "top bit set":
        data[rng.randrange(len(data)) // 4 * 4] ^= 0x80
    else:
        data[:] = rng.randbytes(len(data))
    file.write_bytes(data)
    return done


def ask_all(broker: RunningBroker, template: Template) -> Answers:
    """All that the broker answers about the directory, and what becomes of further records."""
    answers = ask(broker, template)
    with broker.client() as client:
        return answers | _go_on(client, template)


def ask(broker: RunningBroker, template: Template) -> Answers:
    answers: Answers = {}
    with broker.client() as client:
        for group in GROUPS:
            wait_for_coordinator(client, group)
            answers[f"offsets of {group}"] = fetch_offsets(client, group, None)
        for topic, partition in PARTITIONS:
            for what, answer in _ask_partition(client, topic, partition, template):
                answers[f"{what} of {topic}-{partition}"] = answer
        topics = [MetadataRequestTopic(name=topic) for topic in TOPICS]
        metadata = client.ask("Metadata", 12, MetadataRequest(topics=topics))
        answers["metadata"] = [(topic.error_code, topic.name, topic.topic_id) for topic in metadata.topics]
    return answers


def _ask_partition(
    client: RawClient, topic: str, partition: int, template: Template
) -> Iterator[tuple[str, Any]]:
    start = _offset_for(client, topic, partition, -2)
    end = _offset_for(client, topic, partition, -1)
    yield "start", start
    yield "end", end
    yield "stable end", _offset_for(client, topic, partition, -1, isolation_level=READ_COMMITTED)
    yield "largest timestamp", _offset_for(client, topic, partition, -3)
    last = template.phases * BATCHES
    times = [
        template.first_timestamp + number * 1_000 + shift for number in range(-1, last, 7) for shift in (0, 3)
    ]
    yield "times", [_offset_for(client, topic, partition, timestamp) for timestamp in times]
    yield "records", list(_read(client, topic, partition, start[1], 0))
    yield "committed records", list(_read(client, topic, partition, start[1], READ_COMMITTED))
    yield "batches", [_batch_at(client, topic, partition, offset) for offset in range(start[1], end[1], 5)]
    yield "epochs", _epochs(client, topic, partition)
    if partition == 0 and not topic.startswith("__"):
        producers = describe_producers(client, topic)
        yield "producers", sorted(map(repr, producers.active_producers))


def _offset_for(
    client: RawClient, topic: str, partition: int, timestamp: int, *, isolation_level: int = 0
) -> tuple[int, int, int, int]:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=partition, timestamp=timestamp)],
            )
        ],
    )
    [answer] = client.ask("ListOffsets", 7, request).topics[0].partitions
    return answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch


def _read(
    client: RawClient, topic: str, partition: int, offset: int, isolation_level: int
) -> Iterator[tuple[int, int, bytes | None, bytes | None] | str]:
    """Offset, timestamp, key and value of each record that a consumer sees."""
    while True:
        answer = fetch(
            client,
            topic,
            offset,
            partition=partition,
            max_bytes=FETCH_BYTES,
            isolation_level=isolation_level,
        )
        if answer.error_code:
            yield f"error {answer.error_code}"
            return
        data = bytes(answer.records or b"")
        headers = iterate_headers(data)
        if not headers:
            yield f"ends at {offset}, {answer.last_stable_offset}, {answer.high_watermark}"
            return
        aborted = AbortedFilter(answer.aborted_transactions or [])
        position = 0
        for header in headers:
            hides = aborted.hides(header, data, position) if isolation_level else header.is_control
            if not hides:
                for record in decode_batch(data, position, header=header):
                    if record.offset >= offset:
                        yield record.offset, record.timestamp, record.key, record.value
            position += header.size_bytes
        offset = headers[-1].next_offset


def _batch_at(client: RawClient, topic: str, partition: int, offset: int) -> tuple[int, int, int]:
    """The error, and the offsets of the batch that a fetch begins with."""
    answer = fetch(client, topic, offset, partition=partition, max_bytes=1)
    headers = iterate_headers(bytes(answer.records or b""))
    return (
        answer.error_code,
        headers[0].base_offset if headers else -1,
        headers[0].last_offset if headers else -1,
    )


def _epochs(client: RawClient, topic: str, partition: int) -> list[tuple[int, int, int]]:
    found = []
    for epoch in EPOCHS:
        request = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)],
                )
            ],
        )
        [answer] = client.ask("OffsetForLeaderEpoch", 4, request).topics[0].partitions
        found.append((answer.error_code, answer.leader_epoch, answer.end_offset))
    return found


def _go_on(client: RawClient, template: Template) -> Answers:
    """The last batch again, which is a duplicate; the next one; and one in each other topic, which can be read."""
    answers: Answers = {}
    count = template.phases * SEQUENCES_A_PHASE
    for what, sequence in (("duplicate", count - RECORDS_A_BATCH), ("next", count), ("gap", count + 100)):
        records = batch(
            *[b"more"] * RECORDS_A_BATCH,
            timestamp=template.first_timestamp + 3_000_000,
            producer_id=template.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        answer = produce(client, "idempotent", records, acks=-1)
        answers[f"{what} of idempotent"] = answer.error_code, answer.base_offset
    for topic in TOPICS:
        if topic != "idempotent":
            records = batch(b"x" * 900, timestamp=template.first_timestamp + 3_000_000)
            answers[f"more of {topic}"] = [
                (answer.error_code, answer.base_offset)
                for answer in [produce(client, topic, records, acks=-1) for _ in range(4)]
            ]
        start = _offset_for(client, topic, 0, -2)[1]
        answers[f"records after more of {topic}"] = list(_read(client, topic, 0, start, 0))[-4:]
    for group in GROUPS[:2]:
        answers[f"commit of {group}"] = commit(client, group, {("plain", 0): 4711})
        answers[f"offsets after more of {group}"] = fetch_offsets(client, group, None)
    return answers
