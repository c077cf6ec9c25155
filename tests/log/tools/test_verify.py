"""Each kind of fault is found, with its file and position; the golden images have none, or those that were made."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from barnabas.log.file_system import CREATE
from barnabas.log.segment.offset_index import ENTRY as OFFSET_ENTRY
from barnabas.log.segment.time_index import ENTRY as TIME_ENTRY
from barnabas.log.segment.transaction_index import ENTRY as TRANSACTION_ENTRY
from barnabas.log.tools.verify import verify_directory
from barnabas.records.header import iterate_headers
from tests.log.compacted import CONFIG, DIRECTORY, CompactedLog, keys
from tests.log.simulated import SimulatedFileSystem

FIRST = f"{DIRECTORY}/00000000000000000000"


@cache
def written() -> SimulatedFileSystem:
    log = CompactedLog(replace(CONFIG, segment_bytes=2000, index_interval_bytes=200))
    for number in range(20):
        log.append(*keys(*(f"{number}-{index}" for index in range(3))))
        if number % 5 == 1:
            log.append(*keys("t"), producer_id=number, transactional=True)
            log.end_transaction(number, commits=number == 6)
    log.log.flush()
    log.log.close()
    return log.fs


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return written().clone()


def faults(fs: SimulatedFileSystem) -> list[tuple[str, int, str]]:
    return [(fault.path, fault.position, fault.what) for fault in verify_directory(fs, "/data")]


def overwrite(fs: SimulatedFileSystem, path: str, data: bytes) -> None:
    file = fs.open(path, CREATE)
    file.truncate(0)
    file.pwrite(data, 0)


def positions(data: bytes) -> list[int]:
    found = [0]
    for header in iterate_headers(data):
        found.append(found[-1] + header.size_bytes)
    return found


def test_sound_log(fs: SimulatedFileSystem) -> None:
    assert faults(fs) == []
    assert len([name for name in fs.list_dir(DIRECTORY) if name.endswith(".log")]) > 1
    assert fs.exists(f"{FIRST}.txnindex")


def test_every_changed_byte_under_the_checksum_is_found(fs: SimulatedFileSystem) -> None:
    data = fs.read_file(f"{FIRST}.log")
    starts = positions(data)
    for at in range(16, starts[1], 7):
        overwrite(fs, f"{FIRST}.log", data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        assert (f"{FIRST}.log", 0) in [fault[:2] for fault in faults(fs)], at


def test_every_cut_is_found(fs: SimulatedFileSystem) -> None:
    name = max(name for name in fs.list_dir(DIRECTORY) if name.endswith(".log"))
    data = fs.read_file(f"{DIRECTORY}/{name}")
    last_start = positions(data)[-2]
    for size in range(last_start + 1, len(data), 5):
        overwrite(fs, f"{DIRECTORY}/{name}", data[:size])
        assert (f"{DIRECTORY}/{name}", last_start) in [fault[:2] for fault in faults(fs)]


def test_batches_out_of_order(fs: SimulatedFileSystem) -> None:
    data = fs.read_file(f"{FIRST}.log")
    one, two, three = positions(data)[1:4]
    overwrite(fs, f"{FIRST}.log", data[:one] + data[two:three] + data[one:two] + data[three:])
    found = [fault for fault in faults(fs) if fault[0].endswith(".log")]
    assert [fault[1] for fault in found] == [one + three - two]
    assert "do not follow" in found[0][2]


def test_segment_of_another_place(fs: SimulatedFileSystem) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        overwrite(fs, f"{DIRECTORY}/00000000000000001000{suffix}", fs.read_file(FIRST + suffix))
    whats = [what for path, _, what in faults(fs) if path.endswith("1000.log")]
    assert "do not belong into the segment that begins at 1000" in " ".join(whats)


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ((1, 5), "no batch begins at position 5"),
        ((0, 0), "does not follow"),
        ((10**6, None), "lies beyond the segment's last"),
        ((0, None), "does not follow"),
        ((1, None), "lies before position"),
    ],
)
def test_offset_index(fs: SimulatedFileSystem, entry: tuple[int, int | None], what: str) -> None:
    good = fs.read_file(f"{FIRST}.index")
    assert len(good) > 2 * OFFSET_ENTRY.size
    offset, position = entry
    last_position = OFFSET_ENTRY.unpack(good[-8:])[1] if position is None else position
    kept = good[: OFFSET_ENTRY.size] if what == "does not follow" else b""
    overwrite(fs, f"{FIRST}.index", kept + OFFSET_ENTRY.pack(offset, last_position))
    assert [(path, at) for path, at, told in faults(fs) if what in told] == [(f"{FIRST}.index", len(kept))]


@pytest.mark.parametrize(
    ("timestamp", "offset", "what"),
    [
        (1 << 60, 1, "no record up to offset 1 has timestamp"),
        (1, 5, "a record before offset 5 has timestamp"),
        (5, 10**6, "is not in the segment"),
        (-7, 3, "does not follow"),
    ],
)
def test_time_index(fs: SimulatedFileSystem, timestamp: int, offset: int, what: str) -> None:
    overwrite(fs, f"{FIRST}.timeindex", TIME_ENTRY.pack(timestamp, offset))
    found = faults(fs)
    assert [fault[:2] for fault in found] == [(f"{FIRST}.timeindex", 0)]
    assert what in found[0][2]


def test_index_of_a_wrong_size_or_none(fs: SimulatedFileSystem) -> None:
    data = fs.read_file(f"{FIRST}.index")
    overwrite(fs, f"{FIRST}.index", data + b"\1\2")
    assert [fault[:2] for fault in faults(fs)] == [(f"{FIRST}.index", len(data))]
    fs.remove(f"{FIRST}.index")
    fs.remove(f"{FIRST}.timeindex")
    assert [fault[0] for fault in faults(fs)] == [f"{FIRST}.index", f"{FIRST}.timeindex"]
    overwrite(fs, f"{DIRECTORY}/00000000000000099999.index", b"")
    assert faults(fs)[-1][0].endswith("99999.index")


def test_preallocated_zeros_belong_to_the_last_segment_alone(fs: SimulatedFileSystem) -> None:
    last = max(name for name in fs.list_dir(DIRECTORY) if name.endswith(".index"))
    path = f"{DIRECTORY}/{last}"
    overwrite(fs, path, fs.read_file(path) + bytes(800))
    assert faults(fs) == []
    overwrite(fs, f"{FIRST}.index", fs.read_file(f"{FIRST}.index") + bytes(8))
    assert len(faults(fs)) == 1


def test_transaction_index(fs: SimulatedFileSystem) -> None:
    path = f"{FIRST}.txnindex"
    good = fs.read_file(path)
    version, producer_id, first_offset, last_offset, stable_offset = TRANSACTION_ENTRY.unpack_from(good)
    fs.remove(path)
    assert "is missing" in faults(fs)[0][2]
    for entry, what in (
        ((1, producer_id, first_offset, last_offset, stable_offset), "version 1 is unknown"),
        ((0, producer_id + 1, first_offset, last_offset, stable_offset), "no abort marker"),
        ((0, producer_id, first_offset + 1, last_offset, stable_offset), "the transaction begins at"),
    ):
        overwrite(fs, path, TRANSACTION_ENTRY.pack(*entry) + good[TRANSACTION_ENTRY.size :])
        assert what in faults(fs)[0][2]
    overwrite(fs, path, good + b"\0")
    assert faults(fs) == [(path, len(good), "the last entry is cut off")]
    assert version == 0


def test_small_files(fs: SimulatedFileSystem) -> None:
    snapshot = max(name for name in fs.list_dir(DIRECTORY) if name.endswith(".snapshot"))
    overwrite(fs, f"{DIRECTORY}/{snapshot}", b"\0\1garbage")
    overwrite(fs, f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n2\n5 0\n4 10\n")
    overwrite(fs, f"{DIRECTORY}/partition.metadata", b"version: 0\n")
    overwrite(fs, "/data/recovery-point-offset-checkpoint", b"0\n1\n")
    overwrite(fs, "/data/meta.properties", b"version=9\n")
    assert {path.rpartition("/")[2] for path, _, _ in faults(fs)} == {
        snapshot,
        "leader-epoch-checkpoint",
        "partition.metadata",
        "recovery-point-offset-checkpoint",
        "meta.properties",
    }


def test_snapshot_from_the_future(fs: SimulatedFileSystem) -> None:
    snapshot = max(name for name in fs.list_dir(DIRECTORY) if name.endswith(".snapshot"))
    overwrite(fs, f"{DIRECTORY}/{0:020d}.snapshot", fs.read_file(f"{DIRECTORY}/{snapshot}"))
    assert "after the snapshot" in faults(fs)[0][2]
