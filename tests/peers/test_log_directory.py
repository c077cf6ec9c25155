"""Real Kafka reads what we write: its tool every file, its broker every record."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

import pytest

from barnabas.clock import ManualClock
from barnabas.config.log_config import LogConfig
from barnabas.log.checkpoints import id_to_text
from barnabas.log.cleaner.cleaner import Cleaner
from barnabas.log.cleaner.dirty import log_to_clean
from barnabas.log.cleaner.offset_map import OffsetMap
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.manager.manager import LogManager
from barnabas.log.partition.environment import LogEnvironment
from barnabas.log.partition.read import Isolation
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.log.tools.inspection import AbortedFilter, Inspection
from barnabas.log.tools.verify import verify_directory
from barnabas.model import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from barnabas.records.builder import BatchBuilder, end_transaction_marker
from barnabas.records.header import iterate_headers
from barnabas.records.layout import CompressionType, ControlRecordType, TimestampType
from barnabas.records.policy import AppendOrigin
from barnabas.records.reader import decode_batch
from tests.log.golden.dumps import compare, split
from tests.peers.kafka_peer import (
    V3,
    V4,
    Broker,
    Fetched,
    PeerUnavailable,
    broker_on,
    dump_log_segments,
    jars,
)
from tests.waiting import Deadline

pytestmark = [pytest.mark.slow, pytest.mark.peer]

BROKER_ID: Final = 3
CLUSTER_ID: Final = "barnabas-peer-testing1"
SMALL: Final = LogConfig(segment_bytes=8_000, index_interval_bytes=300, segment_index_bytes=1 << 12)
COMPACTED: Final = replace(SMALL, cleanup_policy=("compact",), delete_retention_ms=1500)
CONFIGS: Final[dict[str, LogConfig]] = {
    "every-compression": SMALL,
    "append-time": replace(SMALL, message_timestamp_type="LogAppendTime"),
    "recompressed": replace(SMALL, compression_type="zstd"),
    "idempotent": SMALL,
    "transactions": SMALL,
    "compacted": COMPACTED,
    "format-v0": replace(SMALL, message_format_version="0.9.0"),
    "format-v1": replace(SMALL, message_format_version="0.10.2"),
    "deleted-records": SMALL,
    "empty": SMALL,
}
READY_TIMEOUT_S: Final = 240


class Writer:
    """Fills a log directory by way of the log manager."""

    def __init__(self, directory: Path) -> None:
        self.rng = Random(11)
        self.clock = ManualClock(int(time.time() * 1000))
        self.manager = LogManager(
            [str(directory)],
            environment=LogEnvironment(fs=DiskFileSystem(), clock=self.clock),
            config_of=CONFIGS.__getitem__,
        )
        self.manager.open()
        self.manager.directories[0].claim(CLUSTER_ID, BROKER_ID, ["one"])
        self.topic_ids = {topic: self.rng.randbytes(16) for topic in CONFIGS}
        self.logs = {
            topic: self.manager.get_or_create(TopicPartition(topic, 0), topic_id, is_new=True)
            for topic, topic_id in self.topic_ids.items()
        }

    def append(
        self,
        topic: str,
        *,
        compression: CompressionType = CompressionType.NONE,
        magic: int = 2,
        producer_id: int = NO_PRODUCER_ID,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        keys: int = 1000,
    ) -> int:
        builder = BatchBuilder(
            magic=magic,
            compression=compression,
            timestamp_type=TimestampType.CREATE_TIME if magic else TimestampType.NO_TIMESTAMP_TYPE,
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(0) if producer_id >= 0 else NO_PRODUCER_EPOCH,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
        count = self.rng.randrange(1, 20)
        for _ in range(count):
            self.clock.advance_ms(self.rng.randrange(50))
            key = b"key-%d" % self.rng.randrange(keys)
            value = None if self.rng.random() < 0.1 else self.rng.randbytes(self.rng.randrange(80))
            headers = (("name", key), ("name", None), ("żółw", b"")) if magic == 2 and value else ()
            builder.append(TimestampMs(self.clock.now_ms()) if magic else NO_TIMESTAMP, key, value, headers)
        log = self.logs[topic]
        log.append_as_leader(bytearray(builder.build()), leader_epoch=4)
        log.update_high_watermark(log.log_end_offset)
        return count

    def end_transaction(self, topic: str, producer_id: int, kind: ControlRecordType) -> None:
        marker = end_transaction_marker(
            control_type=kind,
            timestamp=TimestampMs(self.clock.now_ms()),
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(0),
            coordinator_epoch=2,
        )
        log = self.logs[topic]
        log.append_as_leader(bytearray(marker), leader_epoch=4, origin=AppendOrigin.COORDINATOR)
        log.update_high_watermark(log.log_end_offset)

    def fill(self) -> None:
        for compression in CompressionType:
            for _ in range(8):
                self.append("every-compression", compression=compression)
                self.append("append-time", compression=compression)
                self.append("recompressed", compression=compression)
        self._fill_producers()
        self._fill_compacted()
        for _ in range(8):
            for compression in (
                CompressionType.NONE,
                CompressionType.GZIP,
                CompressionType.SNAPPY,
                CompressionType.LZ4,
            ):
                self.append("format-v0", magic=0, compression=compression)
                self.append("format-v1", magic=1, compression=compression)
            self.append("deleted-records")
        self.logs["deleted-records"].roll()
        self.append("deleted-records")
        self.logs["deleted-records"].delete_records(17)

    def _fill_producers(self) -> None:
        sequences = {1: 0, 2: 0, 3: 0}
        for number in range(40):
            producer_id = self.rng.choice(list(sequences))
            for topic, is_transactional in (("idempotent", False), ("transactions", True)):
                if topic == "idempotent" or number % 4:
                    sequence = sequences[producer_id] if topic == "idempotent" else 1000 * number
                    count = self.append(
                        topic,
                        producer_id=producer_id if topic == "idempotent" else 100 + number,
                        base_sequence=sequence,
                        is_transactional=is_transactional,
                    )
                    if topic == "idempotent":
                        sequences[producer_id] += count
                    elif number < 38:
                        kind = ControlRecordType.ABORT if number % 3 else ControlRecordType.COMMIT
                        self.end_transaction(topic, 100 + number, kind)

    def _fill_compacted(self) -> None:
        log = self.logs["compacted"]
        cleaner = Cleaner(OffsetMap(1 << 20), self.clock)
        first_dirty_offset = 0
        sequence = 0
        for number in range(30):
            self.append("compacted", keys=15)
            sequence += self.append("compacted", keys=15, producer_id=7, base_sequence=sequence)
            self.append(
                "compacted", keys=15, producer_id=200 + number, base_sequence=0, is_transactional=True
            )
            kind = ControlRecordType.ABORT if number % 2 else ControlRecordType.COMMIT
            self.end_transaction("compacted", 200 + number, kind)
            if number % 10 == 9:
                log.roll()
                target = log_to_clean(log, first_dirty_offset, self.clock.now_ms())
                first_dirty_offset = cleaner.clean(
                    log, target.first_dirty_offset, target.end_offset
                ).end_offset
                self.clock.advance_ms(1000)
        self.append("compacted", keys=15)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        jars(V3)
        jars(V4)
    except PeerUnavailable as error:
        pytest.skip(f"no real Kafka to compare with: {error}")
    directory = tmp_path_factory.mktemp("written") / "data"
    writer = Writer(directory)
    writer.fill()
    writer.manager.close()
    assert list(verify_directory(DiskFileSystem(), str(directory))) == []
    return directory


def test_kafka_dumps_every_file(written: Path) -> None:
    files = sorted(
        path
        for path in written.rglob("*")
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    )
    assert {path.suffix for path in files} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    output = dump_log_segments(files, "--deep-iteration")
    for complaint in ("Mismatches", "isvalid: false", "Exception", "not found", "out of order"):
        assert complaint not in output
    # What the cleaner leaves: batches with a delete horizon, and emptied ones.
    assert "deleteHorizonMs: OptionalLong[" in output
    assert "count: 0 " in output
    dumped = split(output.splitlines())
    assert sorted(dumped) == [str(path) for path in files]
    assert sum(compare(Path(file), lines) for file, lines in dumped.items()) > 1000


def test_kafka_serves_every_record(written: Path, tmp_path: Path) -> None:
    inspection = Inspection(DiskFileSystem(), str(written), int(time.time() * 1000))
    partitions = inspection.partitions()
    expected = {
        (partition, isolation): [record for _, record in inspection.records(partition, isolation)]
        for partition in partitions
        for isolation in (Isolation.HIGH_WATERMARK, Isolation.TXN_COMMITTED)
    }
    opened = {partition: inspection.open(partition) for partition in partitions}
    assert sum(len(records) for records in expected.values()) > 2000
    topics = {partition.topic: (id_to_text(opened[partition].topic_id or b""), 1) for partition in partitions}
    with broker_on(written, tmp_path, BROKER_ID, CLUSTER_ID) as broker:
        broker.create_topics(topics)
        for (partition, isolation), records in expected.items():
            log = opened[partition]
            start = int(log.log_start_offset)
            first = _fetch_when_ready(broker, partition, start, isolation)
            assert (first.high_watermark, first.last_stable_offset) == (
                log.log_end_offset,
                log.last_stable_offset,
            )
            assert _read_all(broker, partition, start, isolation) == records, (partition, isolation)
    # Kafka has opened, led and stopped every log, and left what we can read.
    assert list(verify_directory(DiskFileSystem(), str(written))) == []


def _level(isolation: Isolation) -> int:
    return 1 if isolation is Isolation.TXN_COMMITTED else 0


def _fetch_when_ready(
    broker: Broker, partition: TopicPartition, offset: int, isolation: Isolation
) -> Fetched:
    deadline = Deadline(READY_TIMEOUT_S)
    while True:
        fetched = broker.fetch(partition.topic, partition.partition, offset, _level(isolation))
        if fetched.error_code == 0:
            return fetched
        deadline.check((partition, fetched.error_code))
        time.sleep(0.1)


def _read_all(broker: Broker, partition: TopicPartition, offset: int, isolation: Isolation) -> list[object]:
    records: list[object] = []
    while True:
        fetched = broker.fetch(partition.topic, partition.partition, offset, _level(isolation))
        assert fetched.error_code == 0, partition
        headers = iterate_headers(fetched.records)
        if not headers:
            return records
        aborted = AbortedFilter(
            [
                AbortedTransaction(ProducerId(producer_id), Offset(first_offset), Offset(-1), Offset(-1))
                for producer_id, first_offset in fetched.aborted
            ]
        )
        position = 0
        for header in headers:
            if not aborted.hides(header, fetched.records, position):
                found = decode_batch(fetched.records, position, header=header)
                records += [record for record in found if record.offset >= offset]
            position += header.size_bytes
        offset = headers[-1].next_offset
