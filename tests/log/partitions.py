"""A partition log on a simulated disk, and batches to put into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

from barnabas.clock import ManualClock
from barnabas.config.log_config import LogConfig
from barnabas.log.partition.append import AppendInfo
from barnabas.log.partition.environment import LogEnvironment, PriorState
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation, LogReadResult
from barnabas.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from barnabas.records.builder import BatchBuilder, end_transaction_marker
from barnabas.records.layout import CompressionType, ControlRecordType
from barnabas.records.policy import AppendOrigin
from barnabas.records.reader import iterate_batches
from tests.log.simulated import SimulatedFileSystem

DIRECTORY: Final = "/data/topic-0"
NOW_MS: Final = 1_700_000_000_000


class LaterScheduler:
    """Keeps what is scheduled, with its name and delay, until `run`."""

    def __init__(self) -> None:
        self.scheduled: list[tuple[str, int, Callable[[], None]]] = []

    def schedule(self, name: str, action: Callable[[], None], delay_ms: int = 0) -> None:
        self.scheduled.append((name, delay_ms, action))

    def run(self) -> None:
        while self.scheduled:
            self.scheduled.pop(0)[2]()


class Disk:
    """A disk with one partition log on it, which can be opened again and again."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock(NOW_MS)
        self.fs = SimulatedFileSystem(self.clock)
        self.config = LogConfig(**settings)
        self.scheduler = LaterScheduler()

    def open(self, **options: Any) -> PartitionLog:
        """Opens the log. The options are those of PartitionLog.open and the fields of what it takes."""
        given: dict[str, Any] = {"fs": self.fs, "clock": self.clock, "scheduler": self.scheduler} | options
        return PartitionLog.open(
            DIRECTORY,
            config=given.pop("config", self.config),
            environment=LogEnvironment(**_taken(given, LogEnvironment)),
            prior=PriorState(**_taken(given, PriorState)),
            **given,
        )

    def names(self) -> list[str]:
        return self.fs.list_dir(DIRECTORY)

    def content(self) -> dict[str, bytes]:
        return dict(self.fs.walk())


def _taken(options: dict[str, Any], kind: type[LogEnvironment | PriorState]) -> dict[str, Any]:
    """Takes the fields of the class out of the options."""
    return {field.name: options.pop(field.name) for field in fields(kind) if field.name in options}


def batch(
    *values: bytes | None,
    offset: int = 0,
    epoch: int = -1,
    timestamp: int = NOW_MS,
    key: bytes | None = b"key",
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
    compression: CompressionType = CompressionType.NONE,
    magic: int = 2,
) -> bytes:
    builder = BatchBuilder(
        magic=magic,
        base_offset=Offset(offset),
        partition_leader_epoch=LeaderEpoch(epoch),
        compression=compression,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(producer_epoch if producer_id >= 0 else -1),
        base_sequence=sequence,
        is_transactional=transactional,
    )
    for value in values or (b"value",):
        builder.append(TimestampMs(timestamp), key, value)
    return builder.build()


def append(log: PartitionLog, *values: bytes, leader_epoch: int = 0, **options: Any) -> AppendInfo:
    """Appends one batch of a client's, and lets consumers see it."""
    info = log.append_as_leader(batch(*values, **options), leader_epoch=leader_epoch)
    log.advance_high_watermark(log.log_end_offset)
    return info


def filled(disk: Disk, count: int = 10, **options: bool) -> PartitionLog:
    """A log of one record in each batch, three of them in each leader epoch, all of one producer."""
    log = disk.open(**options)
    for number in range(count):
        append(log, leader_epoch=number // 3, producer_id=1, sequence=number)
    return log


def end_transaction(
    log: PartitionLog,
    producer_id: int,
    *,
    abort: bool = False,
    producer_epoch: int = 0,
    replicated: bool = True,
) -> AppendInfo:
    marker = end_transaction_marker(
        control_type=ControlRecordType.ABORT if abort else ControlRecordType.COMMIT,
        timestamp=TimestampMs(NOW_MS),
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(producer_epoch),
        coordinator_epoch=0,
    )
    info = log.append_as_leader(marker, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    if replicated:
        log.advance_high_watermark(log.log_end_offset)
    return info


def offsets_in(result: LogReadResult) -> list[int]:
    """The offsets of all records that were read."""
    if result.records is None:
        return []
    return [int(record.offset) for _, records in iterate_batches(result.records.read()) for record in records]


def all_offsets(log: PartitionLog) -> list[int]:
    """The offsets of all records from the start of the log on, read as a replica would."""
    found: list[int] = []
    offset = int(log.log_start_offset)
    while True:
        batch_offsets = offsets_in(log.read(offset, 1 << 20, Isolation.LOG_END, min_one_message=True))
        if not batch_offsets:
            return [each for each in found if each >= log.log_start_offset]
        found += batch_offsets
        offset = batch_offsets[-1] + 1
