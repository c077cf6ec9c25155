"""Writes log directories for the source that reads them: segments, damage, files of a simulated log."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from barnabas.model import LeaderEpoch, Offset, TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.records.layout import CompressionType
from tests.log.compacted import CompactedLog
from tests.spark.log_reading import Row

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START_MS = 1_700_000_000_000
COMPRESSIONS = tuple(CompressionType)


def time_of(offset: int) -> datetime:
    return EPOCH + timedelta(milliseconds=START_MS + offset)


class Writer:
    """Writes a partition's segment files: batches of records with numbers as values, an index entry for each batch."""

    def __init__(self, root: Path, partition: str = "numbers-0") -> None:
        self.directory = root / partition
        self.directory.mkdir(parents=True)
        self.end_offset = 0
        self.positions: dict[int, int] = {}

    def segment(
        self,
        batches: int,
        *,
        records: int = 5,
        compressions: Iterable[CompressionType] = COMPRESSIONS,
        magic: int = 2,
        indexed: bool = True,
    ) -> Path:
        path = self.directory / f"{self.end_offset:020d}.log"
        base_offset = self.end_offset
        compression = itertools.cycle(compressions)
        with path.open("wb") as log, path.with_suffix(".index").open("wb") as index:
            for _ in range(batches):
                data = self.batch(records, next(compression), magic)
                self.positions[self.end_offset] = log.tell()
                self.end_offset += records
                if indexed and log.tell():
                    relative = self.end_offset - 1 - base_offset
                    index.write(relative.to_bytes(4, "big") + log.tell().to_bytes(4, "big"))
                log.write(data)
        return path

    def batch(self, records: int, compression: CompressionType, magic: int) -> bytes:
        builder = BatchBuilder(
            magic=magic,
            compression=compression,
            base_offset=Offset(self.end_offset),
            partition_leader_epoch=LeaderEpoch(0 if magic == 2 else -1),
        )
        for number in range(self.end_offset, self.end_offset + records):
            key = None if number % 3 == 0 else b"key-%d" % number
            value = None if number % 7 == 6 else b"value-%d " % number * 5
            headers = (("h", b"%d" % number), ("none", None)) if magic == 2 and number % 4 == 1 else ()
            builder.append(TimestampMs(START_MS + number), key, value, headers)
        return builder.build()


def offsets(rows: list[Row]) -> list[int]:
    return [row["offset"] for row in rows]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def save(log: CompactedLog, root: Path) -> None:
    """The files of a simulated disk, on a real one; with the checkpoints of a log directory."""
    for path, data in log.fs.walk():
        target = root / Path(path).relative_to("/data")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    point = f"0\n1\ncompacted 0 {log.log.recovery_point}\n"
    (root / "recovery-point-offset-checkpoint").write_text(point)
