"""Our recovery beside Kafka's: the same directory, damaged at random, is opened and stopped by both.

`BARNABAS_PEER_ROUNDS` asks for more rounds, `BARNABAS_PEER_SEED` for the first seed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest

from barnabas.clock import ManualClock
from barnabas.config.log_config import LogConfig
from barnabas.log.checkpoints import read_meta_properties, read_offsets
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.manager.manager import LogManager
from barnabas.log.manager.settings import ManagerSettings
from barnabas.log.names import SIDE_FILES
from barnabas.log.partition.environment import LogEnvironment
from barnabas.log.producers.snapshot import ENTRY, HEADER
from barnabas.log.segment.offset_index import ENTRY as INDEX_ENTRY
from barnabas.records.header import iterate_headers
from barnabas.records.layout import ATTRIBUTES_POSITION
from tests.log.golden.images import extract
from tests.peers.kafka_peer import V3, PeerUnavailable, broker_on, jars

pytestmark = [pytest.mark.slow, pytest.mark.peer]

SEED: Final = int(os.environ.get("BARNABAS_PEER_SEED", "0"))
ROUNDS: Final = int(os.environ.get("BARNABAS_PEER_ROUNDS", "1"))
# Formats before v2 are left out: damaged offsets in them can keep Kafka from starting at all.
IMAGES: Final = ("k391-zk", "k391-zk-unclean")
CHECKPOINTS: Final = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")


class Segment:
    """The files of one segment, and what may happen to them."""

    def __init__(self, log: Path, rng: Random) -> None:
        self.log = log
        self.rng = rng

    def file(self, suffix: str) -> Path:
        return self.log.with_suffix(suffix)

    def cut(self) -> None:
        data = self.log.read_bytes()
        self.log.write_bytes(data[: self.rng.randrange(len(data) + 1)])

    def flip(self) -> None:
        data = self.log.read_bytes()
        position = 0
        batches = []
        for header in iterate_headers(data):
            batches.append((position, header.size_bytes))
            position += header.size_bytes
        if batches:
            start, size = self.rng.choice(batches)
            at = start + self.rng.randrange(ATTRIBUTES_POSITION, size)
            self.log.write_bytes(data[:at] + bytes([data[at] ^ 1 << self.rng.randrange(8)]) + data[at + 1 :])

    def add_garbage(self) -> None:
        self.log.write_bytes(self.log.read_bytes() + self.rng.randbytes(self.rng.randrange(1, 200)))

    def add_zeros(self) -> None:
        self.log.write_bytes(self.log.read_bytes() + bytes(self.rng.randrange(1, 200)))

    def empty(self) -> None:
        self.log.write_bytes(b"")

    def lose_log(self) -> None:
        if len(list(self.log.parent.glob("*.log"))) > 1:
            self.log.unlink()

    def lose_offset_index(self) -> None:
        self.file(".index").unlink(missing_ok=True)

    def lose_time_index(self) -> None:
        self.file(".timeindex").unlink(missing_ok=True)

    def lose_transaction_index(self) -> None:
        self.file(".txnindex").unlink(missing_ok=True)

    def spoil_offset_index(self) -> None:
        self.file(".index").write_bytes(self.rng.randbytes(8 * self.rng.randrange(1, 5)))

    def spoil_time_index(self) -> None:
        self.file(".timeindex").write_bytes(self.rng.randbytes(12 * self.rng.randrange(1, 5)))

    def cut_transaction_index(self) -> None:
        index = self.file(".txnindex")
        if index.exists():
            data = index.read_bytes()
            index.write_bytes(data[: self.rng.randrange(len(data) + 1)])

    def lose_snapshot(self) -> None:
        for snapshot in sorted(self.log.parent.glob("*.snapshot"))[-1:]:
            snapshot.unlink()

    def spoil_snapshot(self) -> None:
        for snapshot in sorted(self.log.parent.glob("*.snapshot"))[-1:]:
            snapshot.write_bytes(self.rng.randbytes(self.rng.randrange(80)))

    def leave_unfinished(self) -> None:
        state = self.rng.choice((".cleaned", ".deleted", ".swap"))
        for suffix in (".log", ".index", ".timeindex"):
            if self.file(suffix).exists():
                shutil.copy(self.file(suffix), f"{self.file(suffix)}{state}")


DAMAGES: Final[list[Callable[[Segment], None]]] = [
    Segment.cut,
    Segment.flip,
    Segment.add_garbage,
    Segment.add_zeros,
    Segment.empty,
    Segment.lose_log,
    Segment.lose_offset_index,
    Segment.lose_time_index,
    Segment.lose_transaction_index,
    Segment.spoil_offset_index,
    Segment.spoil_time_index,
    Segment.cut_transaction_index,
    Segment.lose_snapshot,
    Segment.spoil_snapshot,
    Segment.leave_unfinished,
]

# Kafka believes the indexes of flushed segments. Here they are rebuilt from the records, some at their first use, and
# snapshots with them: tests/faults/test_side_files.py compares the answers.
INDEX_DAMAGES: Final = (
    "lose_offset_index",
    "lose_time_index",
    "lose_transaction_index",
    "spoil_offset_index",
    "spoil_time_index",
    "cut_transaction_index",
)


def damage(directory: Path, rng: Random) -> dict[str, str]:
    """What was done to each partition: once at most, since Kafka has rules of its own for some coincidences."""
    (directory / ".kafka_cleanshutdown").unlink(missing_ok=True)
    if rng.random() < 0.7:
        (directory / CHECKPOINTS[0]).unlink()
    done = {}
    for partition in sorted(path for path in directory.iterdir() if path.is_dir()):
        if rng.random() < 0.75:
            chosen = rng.choice(DAMAGES)
            log = rng.choice(sorted(partition.glob("*.log")))
            chosen(Segment(log, rng))
            done[partition.name] = f"{chosen.__name__} {log.name}"
    return done


def recover(directory: Path, now_ms: int) -> None:
    manager = LogManager(
        [str(directory)],
        environment=LogEnvironment(fs=DiskFileSystem(), clock=ManualClock(now_ms)),
        config_of=lambda topic: LogConfig(),
        settings=ManagerSettings(expects_no_gaps=False),
    )
    manager.open()
    manager.close()


def content(directory: Path) -> dict[str, object]:
    """Every file of every partition; producers and checkpoints without their order, which is a hash map's in Kafka."""
    found: dict[str, object] = {}
    for path in sorted(directory.glob("*/*")):
        data = path.read_bytes()
        # A leader notes its epoch when it starts; deleted files go after a while; the list of side files is ours alone.
        if path.name in ("leader-epoch-checkpoint", SIDE_FILES) or path.suffix == ".deleted":
            continue
        name = f"{path.parent.name}/{path.name}"
        if path.suffix == ".snapshot":
            found[name] = sorted(ENTRY.iter_unpack(data[HEADER.size :]))
        elif path.suffix == ".index":
            # Kafka keeps entries of a flushed segment that lie behind the end of its log; here the index is rebuilt.
            log_bytes = path.with_suffix(".log").stat().st_size
            found[name] = [entry for entry in INDEX_ENTRY.iter_unpack(data) if entry[1] < log_bytes]
        else:
            found[name] = data
    for name in CHECKPOINTS:
        found[name] = read_offsets(DiskFileSystem(), str(directory / name))
    return found


def test_recoveries_agree(tmp_path: Path) -> None:
    try:
        jars(V3)
    except PeerUnavailable as error:
        pytest.skip(f"no real Kafka to compare with: {error}")
    images = extract(tmp_path / "images")
    for seed in range(SEED, SEED + ROUNDS):
        rng = Random(seed)
        image = images[rng.choice(IMAGES)]
        folder = tmp_path / str(seed)
        theirs, ours = folder / "theirs", folder / "ours"
        shutil.copytree(image.data, theirs)
        done = damage(theirs, rng)
        shutil.copytree(theirs, ours)
        meta = read_meta_properties(DiskFileSystem(), str(theirs / "meta.properties"))
        assert meta is not None
        assert meta.broker_id is not None
        assert meta.cluster_id is not None
        now_ms = int(time.time() * 1000)
        with broker_on(theirs, folder, meta.broker_id, meta.cluster_id):
            pass
        recover(ours, now_ms)
        rebuilt = {name for name, what in done.items() if what.startswith(INDEX_DAMAGES)}
        expected, found = content(theirs), content(ours)
        different = {
            name
            for name in expected | found
            if expected.get(name) != found.get(name)
            and (name.endswith(".log") or name.split("/")[0] not in rebuilt)
        }
        assert not different, {name: done.get(name.split("/")[0], "not damaged") for name in different} | {
            "replay": f"BARNABAS_PEER_SEED={seed} BARNABAS_PEER_ROUNDS=1"
        }
