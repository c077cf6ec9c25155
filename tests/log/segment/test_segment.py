from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from barnabas.clock import ManualClock
from barnabas.log.file_system import CREATE, DiskFileSystem, NoSuchFile, StorageFailure
from barnabas.log.partition.epoch_cache import EpochCache
from barnabas.log.partition.offsets import find_offset
from barnabas.log.segment.segment import Segment, SegmentOffsetOverflow
from barnabas.log.segment.segments import Segments
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.model import Offset, ProducerId
from barnabas.records.header import CorruptRecord, iterate_headers
from tests.log.segment_fixtures import DIRECTORY, append, create_segment, make_batch, open_segment
from tests.log.simulated import SimulatedFileSystem


@pytest.fixture
def fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_dirs(DIRECTORY)
    return fs


def filled(fs: SimulatedFileSystem, batches: int = 20, *, index_interval_bytes: int = 250) -> Segment:
    """A segment from offset 100 of batches of 5 records; batch n begins at 100 + 10 n: each leaves a gap of 5."""
    segment = create_segment(fs, 100, index_interval_bytes=index_interval_bytes)
    for number in range(batches):
        append(segment, make_batch(100 + 10 * number, 5, timestamp=1_000 + 100 * number))
    return segment


def offsets_of(segment: Segment, start_offset: int, max_bytes: int, **options: bool) -> list[int] | None:
    read = segment.read(start_offset, max_bytes, segment.size_bytes, **options)
    return None if read is None else [header.base_offset for header in iterate_headers(read.records.read())]


def test_a_new_segment_has_kafkas_files(fs: SimulatedFileSystem) -> None:
    segment = create_segment(fs, 42, max_index_bytes=100)
    assert {name: fs.size_of(f"{DIRECTORY}/{name}") for name in fs.list_dir(DIRECTORY)} == {
        "00000000000000000042.log": 0,
        "00000000000000000042.index": 96,
        "00000000000000000042.timeindex": 96,
    }
    segment.close()
    assert [fs.size_of(f"{DIRECTORY}/{name}") for name in fs.list_dir(DIRECTORY)] == [0, 0, 0]


def test_files_in_the_way_of_a_new_segment_are_emptied(fs: SimulatedFileSystem) -> None:
    for kind in ("log", "index", "timeindex", "txnindex"):
        fs.open(f"{DIRECTORY}/00000000000000000000.{kind}", CREATE).pwrite(b"leftover", 0)
    segment = create_segment(fs)
    append(segment, make_batch(0))
    segment.close()
    assert fs.list_dir(DIRECTORY) == [
        f"00000000000000000000.{kind}" for kind in ("index", "log", "timeindex")
    ]
    assert fs.read_file(segment.path) == make_batch(0)


def test_what_is_appended_is_read_back(fs: SimulatedFileSystem) -> None:
    segment = filled(fs, 3)
    read = segment.read(100, 1_000_000, segment.size_bytes)
    assert read is not None
    assert read.position == 0
    assert read.records.read() == b"".join(
        make_batch(100 + 10 * n, 5, timestamp=1_000 + 100 * n) for n in range(3)
    )


@pytest.mark.slow
@pytest.mark.parametrize("index_interval_bytes", [0, 250, 1_000_000])
def test_every_offset_is_located(fs: SimulatedFileSystem, index_interval_bytes: int) -> None:
    segment = filled(fs, 200, index_interval_bytes=index_interval_bytes)
    batches = {int(header.base_offset): (position, header) for position, header in segment.batches()}
    assert len(batches) == 200
    for offset in range(90, 2_095):
        # The gap after a batch belongs to the next one.
        base_offset = max(100, (offset + 5) // 10 * 10)
        found = segment.locate(offset)
        assert found is not None
        position, header = batches[base_offset]
        assert (found.position, found.size_bytes) == (position, header.size_bytes)
    assert segment.locate(2_095) is None


@pytest.mark.parametrize("value_bytes", [0, 3_000, 5_000, 70_000])
def test_batches_of_any_size_are_located(fs: SimulatedFileSystem, value_bytes: int) -> None:
    segment = create_segment(fs, index_interval_bytes=4_096)
    for offset in range(12):
        append(segment, make_batch(offset, value_bytes=value_bytes if offset % 3 else 1))
    positions = [position for position, _ in segment.batches()]
    assert [found.position for found in map(segment.locate, range(12)) if found] == positions


def test_a_read_begins_with_the_batch_that_has_the_offset(fs: SimulatedFileSystem) -> None:
    segment = filled(fs, 5)
    assert offsets_of(segment, 112, 1_000_000) == [110, 120, 130, 140]
    assert offsets_of(segment, 115, 1_000_000) == [120, 130, 140]
    assert offsets_of(segment, 0, 1_000_000) == [100, 110, 120, 130, 140]
    assert offsets_of(segment, 145, 1_000_000) is None


def test_a_read_ends_within_its_bounds(fs: SimulatedFileSystem) -> None:
    segment = filled(fs, 5)
    sizes = [header.size_bytes for _, header in segment.batches()]
    assert offsets_of(segment, 110, sizes[1] + sizes[2]) == [110, 120]
    read = segment.read(110, 1_000_000, sizes[0] + sizes[1] + 7)
    assert read is not None
    assert read.records.size_bytes == sizes[1] + 7
    read = segment.read(120, 1_000_000, sizes[0])
    assert read is not None
    assert read.records.size_bytes == 0


def test_the_first_batch_comes_whole_if_one_is_asked_for(fs: SimulatedFileSystem) -> None:
    segment = filled(fs, 5)
    assert offsets_of(segment, 110, 1, min_one_message=True) == [110]
    assert offsets_of(segment, 110, 0, min_one_message=True) == [110]
    read = segment.read(110, 1, segment.size_bytes)
    assert read is not None
    assert read.records.size_bytes == 1
    assert read.first_entry_is_cut
    assert offsets_of(segment, 110, 0) == []


def test_a_slice_outlives_the_deletion_of_its_segment(tmp_path: Path) -> None:
    fs = DiskFileSystem()
    segment = create_segment(fs, directory=str(tmp_path))
    append(segment, make_batch(0))
    read = segment.read(0, 1_000, segment.size_bytes)
    assert read is not None
    segment.delete()
    assert list(tmp_path.iterdir()) == []
    assert read.records.read() == make_batch(0)


def test_index_entries_come_after_an_interval(fs: SimulatedFileSystem) -> None:
    """An entry is due once more bytes than the interval stand between the last indexed batch and the new one."""
    size_bytes = len(make_batch(100, 5))
    segment = create_segment(fs, 100, index_interval_bytes=2 * size_bytes)
    for number in range(9):
        append(segment, make_batch(100 + 5 * number, 5, timestamp=1_000 + 100 * number))
    assert segment.offset_index.entries() == [
        (119, 3 * size_bytes),
        (134, 6 * size_bytes),
    ]
    assert segment.time_index.entries() == [(1_304, 119), (1_604, 134)]
    segment.become_inactive()
    assert segment.time_index.entries() == [(1_304, 119), (1_604, 134), (1_804, 144)]


def test_batches_that_come_together_are_indexed_one_by_one(fs: SimulatedFileSystem) -> None:
    together = create_segment(fs, 0, index_interval_bytes=200)
    apart = create_segment(fs, 1, index_interval_bytes=200)
    batches = [make_batch(1 + 5 * number, 5, timestamp=50 * number) for number in range(20)]
    append(together, *batches)
    for batch in batches:
        append(apart, batch)
    assert together.offset_index.entry_count > 5
    assert together.offset_index.entries() == apart.offset_index.entries()
    assert together.time_index.entries() == apart.time_index.entries()


def test_timestamps_out_of_order_leave_rising_entries(fs: SimulatedFileSystem) -> None:
    segment = create_segment(fs)
    for offset, timestamp in enumerate([500, 900, 100, 901, 901, 50]):
        append(segment, make_batch(offset, timestamp=timestamp))
    assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (901, 3)
    assert segment.time_index.entries() == [(900, 1), (901, 3)]
    segment.close()
    again = open_segment(fs)
    assert (again.max_timestamp, again.offset_of_max_timestamp) == (901, 3)


def test_a_segment_knows_when_its_indexes_are_full(fs: SimulatedFileSystem) -> None:
    segment = create_segment(fs, max_index_bytes=40)
    for offset in range(3):
        append(segment, make_batch(offset, timestamp=offset))
        assert segment.index_is_full == (offset == 2)
    append(segment, *(make_batch(offset, timestamp=offset) for offset in range(3, 30)))
    segment.become_inactive()
    assert segment.time_index.entries() == [(1, 1), (2, 2), (29, 29)]
    assert segment.locate(17) is not None


def test_an_offset_too_far_from_the_base_is_refused(fs: SimulatedFileSystem) -> None:
    segment = create_segment(fs, 10)
    with pytest.raises(SegmentOffsetOverflow) as raised:
        append(segment, make_batch(10 + 2**31))
    assert raised.value.segment is segment
    assert segment.size_bytes == 0
    append(segment, make_batch(10 + 2**31 - 1))
    assert segment.read_next_offset() == 10 + 2**31
    assert not segment.has_overflow()


def test_an_overflow_that_is_there_is_noticed(fs: SimulatedFileSystem) -> None:
    fs.open(f"{DIRECTORY}/00000000000000000010.log", CREATE).pwrite(make_batch(10 + 2**31), 0)
    segment = open_segment(fs, 10)
    assert segment.has_overflow()
    with pytest.raises(SegmentOffsetOverflow):
        segment.recover()


def test_offsets_are_found_by_timestamp(fs: SimulatedFileSystem) -> None:
    segment = create_segment(fs, 100, index_interval_bytes=200)
    for number in range(20):
        append(segment, make_batch(100 + 10 * number, 10, timestamp=1_000 + 100 * number, leader_epoch=3))

    def found(timestamp: int, start_offset: int = 0) -> tuple[int, int, int] | None:
        epochs = EpochCache(fs, f"{DIRECTORY}/epochs", lambda *_: None)
        return find_offset(Segments([segment]), epochs, timestamp, start_offset, 300)

    assert found(0) == (1_000, 100, 3)
    assert found(1_005) == (1_005, 105, 3)
    assert found(1_010) == (1_100, 110, 3)
    assert found(2_909) == (2_909, 299, 3)
    assert found(2_910) is None
    assert found(0, start_offset=155) == (1_505, 155, 3)
    assert found(1_600, start_offset=155) == (1_600, 160, 3)
    assert found(0, start_offset=300) is None
    segment.close()
    segment = open_segment(fs, 100, index_interval_bytes=200)
    assert found(1_755) == (1_800, 180, 3)


def test_the_next_offset_is_read_from_the_end(fs: SimulatedFileSystem) -> None:
    assert create_segment(fs, 7).read_next_offset() == 7
    segment = filled(fs, 20)
    segment.close()
    assert open_segment(fs, 100).read_next_offset() == 295


@pytest.mark.parametrize("position", [1, 146, 147, 500, 1 << 30])
def test_the_next_offset_is_right_though_the_index_is_wrong(fs: SimulatedFileSystem, position: int) -> None:
    segment = filled(fs, 20)
    segment.offset_index.append(400, position)
    segment.close()
    assert open_segment(fs, 100).read_next_offset() == 295


def test_the_wait_for_a_roll_goes_by_timestamps(fs: SimulatedFileSystem) -> None:
    clock = ManualClock()
    segment = create_segment(fs, clock=clock)
    clock.advance_ms(50)
    assert segment.time_waited_for_roll_ms(clock.now_ms(), 7) == 50
    append(segment, make_batch(0, 3, timestamp=1_000))
    append(segment, make_batch(3, 3, timestamp=500))
    assert segment.time_waited_for_roll_ms(clock.now_ms(), 5_000) == 5_000 - 1_002
    segment.close()
    assert open_segment(fs).time_waited_for_roll_ms(0, 5_000) == 5_000 - 1_002


def test_the_wait_for_a_roll_without_timestamps_goes_by_age(fs: SimulatedFileSystem) -> None:
    clock = ManualClock()
    segment = create_segment(fs, clock=clock)
    append(segment, make_batch(0, magic=0))
    clock.advance_ms(70)
    assert segment.time_waited_for_roll_ms(clock.now_ms(), -1) == 70
    assert segment.max_timestamp == -1
    assert segment.largest_timestamp == fs.modified_ms(segment.path)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_kept_and_located(fs: SimulatedFileSystem, magic: int) -> None:
    segment = create_segment(fs, index_interval_bytes=100)
    append(segment, *(make_batch(offset, magic=magic, value_bytes=0) for offset in range(30)))
    for offset in range(30):
        found = segment.locate(offset)
        assert found is not None
        assert (
            iterate_headers(segment.slice(found.position, found.size_bytes).read())[0].last_offset == offset
        )
    segment.close()
    segment = open_segment(fs, index_interval_bytes=100)
    assert segment.recover() == 0
    assert segment.read_next_offset() == 30


@pytest.mark.parametrize("closed_before", [False, True])
@pytest.mark.parametrize("offset", [0, 100, 101, 105, 155, 199, 290, 294])
def test_truncation_removes_the_batch_that_has_the_offset(
    fs: SimulatedFileSystem, offset: int, closed_before: bool
) -> None:
    segment = filled(fs, 20)
    segment.transaction_index.append(AbortedTransaction(ProducerId(1), Offset(100), Offset(150), Offset(160)))
    if closed_before:
        segment.close()
        segment = open_segment(fs, 100, index_interval_bytes=250)
    size_bytes = segment.size_bytes
    truncated_bytes = segment.truncate_to(offset)
    left = [header.base_offset for _, header in segment.batches()]
    assert left == [base for base in range(100, 300, 10) if base + 4 < offset]
    assert segment.size_bytes == size_bytes - truncated_bytes == fs.size_of(segment.path)
    assert segment.max_timestamp == (1_000 + 10 * (left[-1] - 100) + 4 if left else -1)
    assert all(entry.offset < offset for entry in segment.offset_index.entries())
    assert all(entry.offset < offset for entry in segment.time_index.entries())
    assert len(segment.transaction_index.entries()) == (offset > 150)
    append(segment, make_batch(500, timestamp=9_000))
    segment.close()
    again = open_segment(fs, 100)
    assert again.read_next_offset() == 501
    assert again.max_timestamp == 9_000
    assert again.locate(400) is not None


def test_truncation_beyond_the_end_does_nothing(fs: SimulatedFileSystem) -> None:
    segment = filled(fs, 20)
    entries = segment.offset_index.entries()
    assert segment.truncate_to(295) == 0
    assert segment.offset_index.entries() == entries
    assert segment.max_timestamp == 2_904


def test_a_closed_segment_is_left_alone_when_it_is_only_read(fs: SimulatedFileSystem) -> None:
    filled(fs).close()
    changes = fs.change_count
    segment = open_segment(fs, 100)
    segment.sanity_check(has_offset_index=True, has_time_index=True)
    assert offsets_of(segment, 150, 1_000) is not None
    assert segment.max_timestamp == 2_904
    segment.flush()
    segment.close()
    assert fs.change_count == changes


def test_opening_a_segment_touches_no_file(fs: SimulatedFileSystem) -> None:
    fs.inject("/", errno.EIO)
    segment = open_segment(fs, 100)
    segment.close()
    assert len(fs.open_files) == 0


def test_a_reopened_segment_goes_on(fs: SimulatedFileSystem) -> None:
    filled(fs, 20).close()
    segment = open_segment(fs, 100, index_interval_bytes=250)
    for number in range(20, 40):
        append(segment, make_batch(100 + 10 * number, 5, timestamp=1_000 + 100 * number))
    segment.close()
    again = open_segment(fs, 100)
    assert [header.base_offset for _, header in again.batches()] == list(range(100, 500, 10))
    assert all(again.locate(offset) for offset in range(100, 495))
    assert again.max_timestamp == 4_904


def test_a_preallocated_log_is_trimmed(fs: SimulatedFileSystem) -> None:
    segment = create_segment(fs, preallocated_bytes=10_000)
    append(segment, make_batch(0))
    assert fs.size_of(segment.path) == 10_000
    assert segment.size_bytes == len(make_batch(0))
    assert segment.locate(1) is None
    segment.become_inactive()
    assert fs.size_of(segment.path) == segment.size_bytes


def test_a_failed_append_leaves_no_trace(fs: SimulatedFileSystem) -> None:
    segment = filled(fs, 3)
    size_bytes = segment.size_bytes
    fs.inject(segment.path, errno.ENOSPC, operations=("write",), remaining=1)
    with pytest.raises(StorageFailure, match="No space left"):
        append(segment, make_batch(500))
    assert segment.size_bytes == size_bytes
    assert segment.read_next_offset() == 125
    assert fs.size_of(segment.path) > size_bytes, "a part was written"
    segment.close()
    assert fs.size_of(segment.path) == size_bytes


def test_a_log_file_that_is_gone_is_not_made_anew(fs: SimulatedFileSystem) -> None:
    segment = filled(fs, 3)
    segment.close()
    fs.remove(segment.path)
    segment = open_segment(fs, 100)
    with pytest.raises(NoSuchFile):
        append(segment, make_batch(500))
    assert not fs.exists(segment.path)


def test_files_are_renamed_and_deleted(fs: SimulatedFileSystem) -> None:
    segment = filled(fs, 3)
    segment.transaction_index.append(AbortedTransaction(ProducerId(1), Offset(1), Offset(2), Offset(3)))
    kinds = ("index", "log", "timeindex", "txnindex")
    segment.change_state(".deleted")
    assert fs.list_dir(DIRECTORY) == [f"00000000000000000100.{kind}.deleted" for kind in kinds]
    assert offsets_of(segment, 110, 1_000_000) == [110, 120]
    segment.change_state("")
    assert fs.list_dir(DIRECTORY) == [f"00000000000000000100.{kind}" for kind in kinds]
    fs.rename(DIRECTORY, "/data/topic-0.abc-delete")
    segment.relocate("/data/topic-0.abc-delete")
    segment.release()
    assert offsets_of(segment, 110, 1_000_000) == [110, 120]
    segment.delete()
    segment.delete()
    segment.close()
    assert fs.list_dir("/data/topic-0.abc-delete") == []


def test_times_are_set_on_all_files(fs: SimulatedFileSystem) -> None:
    segment = filled(fs, 1)
    segment.set_modified_ms(123_456)
    assert {fs.modified_ms(f"{DIRECTORY}/{name}") for name in fs.list_dir(DIRECTORY)} == {123_456}
    assert segment.modified_ms() == 123_456


def test_bytes_that_are_no_batch_are_named(fs: SimulatedFileSystem) -> None:
    segment = filled(fs, 3)
    position = [position for position, _ in segment.batches()][1]
    fs.open(segment.path, CREATE).pwrite(bytes(12), position)
    for walk in (lambda: list(segment.batches()), lambda: segment.locate(115)):
        with pytest.raises(CorruptRecord, match=f"{segment.path} is corrupt at position {position}"):
            walk()


def test_few_files_stay_open(tmp_path: Path) -> None:
    fs = DiskFileSystem(open_files_max=5)
    segments = []
    for base_offset in range(0, 60, 3):
        segment = create_segment(fs, base_offset, directory=str(tmp_path))
        append(segment, *(make_batch(base_offset + number) for number in range(3)))
        segment.become_inactive()
        segments.append(segment)
    for offset in range(60):
        assert segments[offset // 3].read(offset, 1, 1 << 30) is not None
        assert len(fs.open_files) <= 5
    for segment in segments:
        segment.close()
    assert len(fs.open_files) == 0


def test_it_is_read_and_flushed_while_it_grows(tmp_path: Path) -> None:
    """One thread appends, others locate what is there and flush, in a pool that evicts all the time."""
    fs = DiskFileSystem(open_files_max=1, index_memory_bytes=1_000)
    segment = create_segment(fs, directory=str(tmp_path), max_index_bytes=1 << 20)
    other = create_segment(fs, 1_000_000, directory=str(tmp_path))
    append(other, make_batch(1_000_000))
    size_bytes = len(make_batch(0))
    batch_count = 1_000
    appended = [0]

    def locate() -> None:
        rng = Random(1)
        while appended[0] < batch_count:
            if end := appended[0]:
                offset = rng.randrange(end)
                found = segment.locate(offset)
                assert found is not None
                assert found.position == offset * size_bytes
                assert other.locate(1_000_000) is not None

    def flush() -> None:
        while appended[0] < batch_count:
            segment.flush()

    with ThreadPoolExecutor(2) as executor:
        others = [executor.submit(locate), executor.submit(flush)]
        try:
            for offset in range(batch_count):
                append(segment, make_batch(offset, timestamp=offset))
                appended[0] = offset + 1
        finally:
            appended[0] = batch_count
    for future in others:
        future.result()
    segment.close()
    written = [(path.name, path.read_bytes()) for path in sorted(tmp_path.glob("0" * 20 + ".*"))]
    assert [len(content) for _, content in written] == [
        8 * (batch_count - 1),
        size_bytes * batch_count,
        12 * (batch_count - 1),
    ]
    recovered = open_segment(fs, directory=str(tmp_path), max_index_bytes=1 << 20)
    assert recovered.recover() == 0
    recovered.close()
    other.close()
    assert [(path.name, path.read_bytes()) for path in sorted(tmp_path.glob("0" * 20 + ".*"))] == written
