"""Our cleaner beside Kafka's: both clean copies of the same logs, and leave the same batches and records."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from barnabas.clock import ManualClock
from barnabas.config.log_config import LogConfig
from barnabas.log.checkpoints import id_to_text, read_offsets
from barnabas.log.cleaner.cleaner import Cleaner
from barnabas.log.cleaner.dirty import log_to_clean
from barnabas.log.cleaner.offset_map import OffsetMap
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.manager.manager import LogManager
from barnabas.log.partition.environment import LogEnvironment
from barnabas.log.tools.dump import dump_file
from barnabas.model import NO_PRODUCER_EPOCH, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from barnabas.records.builder import BatchBuilder, end_transaction_marker
from barnabas.records.layout import CompressionType, ControlRecordType
from barnabas.records.policy import AppendOrigin
from tests.peers.kafka_peer import V3, PeerUnavailable, broker_on, jars
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

BROKER_ID: Final = 1
CLUSTER_ID: Final = "barnabas-peer-testing2"
DELETE_RETENTION_MS: Final = 3_600_000
CONFIG: Final = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=6_000,
    index_interval_bytes=300,
    delete_retention_ms=DELETE_RETENTION_MS,
    min_cleanable_dirty_ratio=0.0,
)
SETTINGS: Final = {
    "log.cleaner.enable": "true",
    "log.cleanup.policy": "compact",
    "log.segment.bytes": str(CONFIG.segment_bytes),
    "log.index.interval.bytes": str(CONFIG.index_interval_bytes),
    "log.cleaner.delete.retention.ms": str(DELETE_RETENTION_MS),
    "log.cleaner.min.cleanable.ratio": "0.0",
    "log.cleaner.backoff.ms": "100",
    # Cleaned segments take the place of others at once.
    "log.segment.delete.delay.ms": "0",
}
TOPICS: Final = [
    *(f"plain-{compression.label}" for compression in CompressionType),
    "producers",
    "transactions",
]
CLEANED_TIMEOUT_S: Final = 240
KEYS: Final = 25
PRODUCERS: Final = 4


def open_manager(directory: Path, clock: ManualClock) -> LogManager:
    manager = LogManager(
        [str(directory)],
        environment=LogEnvironment(fs=DiskFileSystem(), clock=clock),
        config_of=lambda topic: CONFIG,
    )
    manager.open()
    return manager


def write(directory: Path, clock: ManualClock) -> dict[str, str]:
    """Fills the topics; their ids."""
    rng = Random(5)
    manager = open_manager(directory, clock)
    manager.directories[0].claim(CLUSTER_ID, BROKER_ID, ["one"])
    ids = {}
    for topic in TOPICS:
        ids[topic] = rng.randbytes(16)
        log = manager.get_or_create(TopicPartition(topic, 0), ids[topic], is_new=True)
        sequences = dict.fromkeys(range(PRODUCERS), 0)
        for number in range(60):
            name = topic.removeprefix("plain-").upper()
            producer_id = rng.choice(list(sequences)) if topic in ("producers", "transactions") else -1
            count = rng.randrange(1, 12)
            builder = BatchBuilder(
                compression=CompressionType[name] if topic.startswith("plain-") else CompressionType.NONE,
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(0) if producer_id >= 0 else NO_PRODUCER_EPOCH,
                base_sequence=sequences.get(producer_id, -1),
                is_transactional=topic == "transactions",
            )
            for _ in range(count):
                clock.advance_ms(rng.randrange(20))
                value = None if rng.random() < 0.1 else rng.randbytes(rng.randrange(60))
                headers = (("h", value),) if value else ()
                builder.append(TimestampMs(clock.now_ms()), b"k%d" % rng.randrange(KEYS), value, headers)
            log.append_as_leader(bytearray(builder.build()), leader_epoch=0)
            if producer_id >= 0:
                sequences[producer_id] += count
            if topic == "transactions":
                kind = ControlRecordType.ABORT if number % 3 == 0 else ControlRecordType.COMMIT
                marker = end_transaction_marker(
                    control_type=kind,
                    timestamp=TimestampMs(clock.now_ms()),
                    producer_id=ProducerId(producer_id),
                    producer_epoch=ProducerEpoch(0),
                    coordinator_epoch=0,
                )
                log.append_as_leader(bytearray(marker), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        if topic == "producers":
            # All keys once more, by nobody: the last batch of each producer is emptied, and must stay.
            builder = BatchBuilder()
            for number in range(KEYS):
                builder.append(TimestampMs(clock.now_ms()), b"k%d" % number, b"last")
            log.append_as_leader(bytearray(builder.build()), leader_epoch=0)
        log.roll()
    manager.close()
    return {topic: id_to_text(topic_id) for topic, topic_id in ids.items()}


def clean(directory: Path, clock: ManualClock) -> dict[str, int]:
    """Cleans every topic; up to where."""
    manager = open_manager(directory, clock)
    ends = {}
    for log in manager.logs():
        log.update_high_watermark(log.log_end_offset)
        target = log_to_clean(log, None, clock.now_ms())
        cleaned = Cleaner(OffsetMap(1 << 20), clock).clean(log, target.first_dirty_offset, target.end_offset)
        assert 0 < cleaned.written_records < cleaned.read_records
        ends[log.topic_partition.topic] = cleaned.end_offset
    manager.close()
    return ends


def rows(directory: Path, topic: str) -> dict[str, list[dict[str, Any]]]:
    """All batches and records by segment, without what depends on when, and with which library, they were written."""
    found = {}
    for path in sorted((directory / f"{topic}-0").glob("*.log")):
        found[path.name] = list(dump_file(DiskFileSystem(), str(path), with_records=True))
        for row in found[path.name]:
            assert row.get("is_valid", True)
            if row.get("delete_horizon_ms") is not None:
                row["delete_horizon_ms"] = "set"
            for name in ("crc", "position", "size_bytes"):
                row.pop(name, None)
    return found


def test_cleaners_agree(tmp_path: Path) -> None:
    try:
        jars(V3)
    except PeerUnavailable as error:
        pytest.skip(f"no real Kafka to compare with: {error}")
    clock = ManualClock(int(time.time() * 1000) - 60_000)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ids = write(ours, clock)
    shutil.copytree(ours, theirs)
    ends = clean(ours, clock)
    with broker_on(theirs, tmp_path, BROKER_ID, CLUSTER_ID, SETTINGS) as broker:
        broker.create_topics({topic: (topic_id, 1) for topic, topic_id in ids.items()})
        expected = {TopicPartition(topic, 0): end for topic, end in ends.items()}
        checkpoint = str(theirs / "cleaner-offset-checkpoint")
        wait_until(
            lambda: read_offsets(DiskFileSystem(), checkpoint) == expected,
            "Kafka cleans the logs",
            timeout_s=CLEANED_TIMEOUT_S,
            poll_s=0.1,
        )
    horizons = 0
    for topic in TOPICS:
        told = rows(theirs, topic)
        assert rows(ours, topic) == told, topic
        horizons += str(told).count("'delete_horizon_ms': 'set'")
    assert horizons > 10
    emptied = [row for rows_ in rows(ours, "producers").values() for row in rows_ if row.get("count") == 0]
    assert len(emptied) == PRODUCERS
