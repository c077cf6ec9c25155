"""Damaged side files of a log: what the list says differs, or there is no list and an index is but a hint."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

import pytest

from barnabas.log.checkpoints import CleanStop, read_clean_shutdown
from barnabas.log.file_system import CREATE
from barnabas.log.names import SIDE_FILES
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.log.partition.segment_digests import digests_of, expect_listed
from barnabas.log.segment.segment import Segment
from barnabas.log.side_files import (
    FileDigest,
    ListedFiles,
    format_entries,
    parse_side_files,
    write_side_files,
)
from barnabas.primitives.crc32c import crc32c
from barnabas.records.header import iterate_headers
from tests.log.managed import ManagedLogs, values
from tests.log.partitions import DIRECTORY, Disk, batch
from tests.log.segment_fixtures import append, create_segment, make_batch, open_segment
from tests.log.simulated import SimulatedFileSystem
from tests.sampling import sample

INDEX = "/data/topic-0/00000000000000000000.index"
TIME_INDEX = "/data/topic-0/00000000000000000000.timeindex"
COUNT = 60


def packed(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">iI", *entry) for entry in entries)


def filled(fs: SimulatedFileSystem) -> Segment:
    fs.make_dirs("/data/topic-0")
    segment = create_segment(fs, index_interval_bytes=300)
    for number in range(COUNT):
        append(segment, make_batch(2 * number, 2, timestamp=1_000 + 10 * number))
    return segment


def reopened(fs: SimulatedFileSystem) -> Segment:
    return open_segment(fs, index_interval_bytes=300, has_transaction_index=False)


def check_lookups(segment: Segment) -> None:
    for number in range(COUNT):
        for offset in (2 * number, 2 * number + 1):
            read = segment.read(offset, 1, segment.size_bytes, min_one_message=True)
            assert read is not None
            [header] = iterate_headers(read.records.read())
            assert (header.base_offset, header.last_offset) == (2 * number, 2 * number + 1)
        timestamp = 1_000 + 10 * number
        found = next(
            header for _, header in segment.batches_since(timestamp, 0) if header.max_timestamp >= timestamp
        )
        assert (found.max_timestamp, found.base_offset) == (timestamp + 1, 2 * number)
    assert segment.read_next_offset() == 2 * COUNT
    assert segment.locate(2 * COUNT) is None


def overwrite(data: bytes, position: int) -> Callable[[bytes], bytes]:
    return lambda whole: whole[:position] + data + whole[position + len(data) :]


DAMAGES = [
    pytest.param(lambda whole: whole + bytes(16), id="a tail of zeros"),
    pytest.param(lambda whole: whole + packed((500, 1 << 31)), id="an entry with the top bit set"),
    pytest.param(lambda whole: whole + packed((500, 1 << 30)), id="an entry behind the end of the log"),
    pytest.param(lambda whole: whole + b"xyz", id="a part of an entry"),
    pytest.param(lambda whole: whole[:16], id="a cut"),
    pytest.param(lambda whole: b"", id="nothing left"),
    pytest.param(overwrite(packed((1, 1 << 31)), 8), id="a position with the top bit set"),
    pytest.param(overwrite(b"\x7f", 8), id="an offset too high"),
    # Whatever looks well: the position of another batch, one within a batch, another offset.
    pytest.param(lambda whole: whole[8:], id="the first entry gone"),
    pytest.param(overwrite(struct.pack(">i", 1), 0), id="an offset too low"),
    pytest.param(lambda whole: whole[:4] + struct.pack(">i", 333) + whole[8:], id="no batch at the position"),
    pytest.param(
        lambda whole: whole[:-4] + struct.pack(">i", struct.unpack(">i", whole[-4:])[0] + 5),
        id="no last batch",
    ),
]


@pytest.mark.parametrize("harm", DAMAGES)
def test_reads_find_their_records_whatever_stands_in_the_offset_index(harm: Callable[[bytes], bytes]) -> None:
    """Without a list: as a directory of Kafka's is read."""
    fs = SimulatedFileSystem()
    filled(fs).close()
    fs.write_atomically(INDEX, harm(fs.read_file(INDEX)))
    check_lookups(reopened(fs))


@pytest.mark.parametrize("path", [INDEX, TIME_INDEX])
@pytest.mark.parametrize("is_current", sample([True, False], fast=1))
def test_an_index_that_is_not_what_was_listed_is_rebuilt_at_its_first_use(
    path: str, is_current: bool
) -> None:
    rng = Random(3)
    fs = SimulatedFileSystem()
    segment = filled(fs)
    segment.close()
    listed = digests_of(segment)
    whole = fs.read_file(path)
    for _ in range(40):
        at = rng.randrange(len(whole))
        fs.write_atomically(path, whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
        again = reopened(fs)
        expect_listed(again, listed, is_current=is_current)
        check_lookups(again)
        assert again.max_timestamp == 1_001 + 10 * (COUNT - 1)
        rebuilt = digests_of(again)
        # What has been rebuilt can be appended to, and is right when it is opened again.
        append(again, make_batch(2 * COUNT, 2, timestamp=5_000))
        again.truncate_to(2 * COUNT)
        again.close()
        assert digests_of(again).keys() == rebuilt.keys()
        check_lookups(reopened(fs))


def test_an_index_that_nobody_has_used_is_listed_again_unread() -> None:
    fs = SimulatedFileSystem()
    segment = filled(fs)
    segment.close()
    listed = digests_of(segment)
    for is_current in (True, False):
        again = reopened(fs)
        expect_listed(again, listed, is_current=is_current)
        fs.remove(INDEX)
        digests = digests_of(again)
        assert [digest and digest.is_current for digest in digests.values()] == [is_current, is_current]
        assert parse_side_files(b"1\n%08x\n%s" % (crc32c(format_entries(digests)), format_entries(digests)))
        fs.write_atomically(INDEX, b"")


def test_a_list_is_read_back_or_refused() -> None:
    fs = SimulatedFileSystem()
    files = {
        "a.index": FileDigest(80, 0x1234ABCD, 7, 9),
        "b.index": FileDigest(8, 1, is_current=False),
        "c.index": None,
    }
    entries = format_entries(files, [(0, 0), (3, 17)])
    write_side_files(fs, "/list", entries, syncs=True)
    data = fs.read_file("/list")
    assert parse_side_files(data) == ListedFiles(files, [(0, 0), (3, 17)], crc32c(entries))
    for at in range(len(data)):
        for bit in range(8):
            damaged = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            # A digit of the checksum may be written in capitals.
            assert parse_side_files(damaged) is None
        assert parse_side_files(data[:at]) is None


def fill(log: PartitionLog) -> None:
    for number in range(30):
        log.append_as_leader(bytearray(batch(b"%d" % number, epoch=0)), leader_epoch=number // 10)
        if number % 5 == 4:
            log.roll()
    log.update_high_watermark(log.log_end_offset)
    log.flush()


def test_a_crash_does_not_make_the_indexes_of_sealed_segments_a_matter_of_trust() -> None:
    disk = Disk(index_interval_bytes=1)
    log = disk.open()
    fill(log)
    times = [
        log.offset_for_timestamp(each) for each in range(0, disk.clock.now_ms(), disk.clock.now_ms() // 7)
    ]
    recovery_point = log.recovery_point
    disk.fs = disk.fs.kill()
    for name in disk.names():
        if name.endswith((".index", ".timeindex")):
            disk.fs.open(f"{DIRECTORY}/{name}", CREATE).truncate(0)
    again = disk.open(recovery_point=recovery_point)
    again.update_high_watermark(again.log_end_offset)
    assert [
        again.offset_for_timestamp(each) for each in range(0, disk.clock.now_ms(), disk.clock.now_ms() // 7)
    ] == times
    for offset in range(30):
        read = again.read(offset, 1, Isolation.LOG_END, min_one_message=True)
        assert read.records is not None
        assert iterate_headers(read.records.read())[0].base_offset == offset


def test_epochs_of_which_all_records_are_gone_are_known_from_the_list() -> None:
    disk = Disk(index_interval_bytes=1)
    log = disk.open()
    fill(log)
    assert [tuple(entry) for entry in log.leader_epochs] == [(0, 0), (1, 10), (2, 20)]
    # As the cleaner does it: of the first segments nothing stays.
    old = log.segments.all[:3]
    cleaned = log.create_cleaned_segment(0)
    cleaned.become_inactive()
    log.replace_segments([cleaned], old)
    log.close()
    for clean in (True, False):
        disk.fs.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
        again = disk.open(clean_shutdown=clean, recovery_point=30)
        assert [tuple(entry) for entry in again.leader_epochs] == [(0, 0), (1, 10), (2, 20)]
        again.close()


def test_a_stop_of_another_broker_makes_the_lists_void() -> None:
    logs = ManagedLogs()
    logs.create("a-0", "one", "two")
    logs.manager.close()
    assert read_clean_shutdown(logs.fs, "/disk/.kafka_cleanshutdown") == CleanStop(-1, True)
    logs.fs.write_atomically("/disk/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":5}')
    logs.fs.write_atomically("/disk/log-start-offset-checkpoint", b"0\n1\na 0 1\n")
    logs.start()
    assert logs.manager.directories[0].is_foreign
    assert logs.log("a-0").log_start_offset == 1
    assert logs.fs.exists(f"/disk/a-0/{SIDE_FILES}")
    assert not logs.fs.exists("/disk/log-start-offset-checkpoint.copy")


def test_a_crash_of_another_broker_makes_the_lists_void() -> None:
    """Nothing but its checkpoints tells that it was not ours that crashed."""
    logs = ManagedLogs()
    logs.create("a-0", "one", "two")
    logs.create("moved-0", "away")
    logs.manager.checkpoint_all()
    logs.manager.close()
    logs.fs.remove("/disk/.kafka_cleanshutdown")
    logs.fs.remove_tree("/disk/moved-0")
    for name, offset in (("log-start-offset", 1), ("recovery-point-offset", 2), ("replication-offset", 2)):
        logs.fs.write_atomically(f"/disk/{name}-checkpoint", b"0\n1\na 0 %d\n" % offset)
    logs.start()
    assert logs.manager.directories[0].is_foreign
    assert logs.log("a-0").log_start_offset == 1
    assert values(logs.log("a-0")) == ["two"]
    # The other broker has removed this one: it is not missed, and may be made here again.
    logs.create("moved-0", "back")
    assert values(logs.log("moved-0")) == ["back"]


def test_a_checkpoint_whose_checksum_has_a_damaged_name_is_ours() -> None:
    logs = ManagedLogs()
    logs.create("a-0", "one", "two")
    logs.log("a-0").delete_records(1)
    logs.manager.checkpoint_all()
    path = "/disk/recovery-point-offset-checkpoint"
    logs.fs.write_atomically(path, logs.fs.read_file(path).replace(b"crc32c", b"crc32d"))
    logs.kill()
    assert not logs.manager.directories[0].is_foreign
    assert values(logs.log("a-0")) == ["two"]


def test_a_log_start_that_is_beyond_the_log_by_damage_deletes_nothing() -> None:
    logs = ManagedLogs()
    logs.create("a-0", "one", "two", "three")
    logs.log("a-0").delete_records(1)
    logs.manager.checkpoint_all()
    for damage in (b"0\n1\na 0 100\n", b"0\n2\na 0 100\nbarnabas:crc32c 0 5\n", b""):
        logs.fs.write_atomically("/disk/log-start-offset-checkpoint", damage)
        logs.kill()
        assert values(logs.log("a-0")) == ["two", "three"]
