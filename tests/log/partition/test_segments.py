"""Rolling, flushing, deleting and replacing the segments of a partition log."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from barnabas.clock import Clock
from barnabas.errors import InconsistentTopicId, OffsetOutOfRange
from barnabas.log.names import segment_file
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.records.layout import INT32_MAX
from tests.log.partitions import (
    DIRECTORY,
    NOW_MS,
    Disk,
    LaterScheduler,
    all_offsets,
    append,
    batch,
    filled,
    offsets_in,
)
from tests.log.simulated import SimulatedCrash

SIZE_BYTES = len(batch())


# Rolling.


def test_a_segment_is_rolled_when_it_is_full() -> None:
    disk = Disk(segment_bytes=3 * SIZE_BYTES)
    log = disk.open()
    for _ in range(7):
        append(log)
    assert log.segments.base_offsets == [0, 3, 6]
    assert [segment.size_bytes for segment in log.segments.all] == [
        3 * SIZE_BYTES,
        3 * SIZE_BYTES,
        SIZE_BYTES,
    ]
    assert segment_file(3, ".snapshot") in disk.names()
    assert segment_file(6, ".snapshot") in disk.names()


def test_a_segment_is_rolled_when_its_first_record_is_old() -> None:
    log = Disk(segment_ms=1000).open()
    append(log, timestamp=NOW_MS)
    append(log, timestamp=NOW_MS + 1000)
    assert log.segments.base_offsets == [0]
    append(log, timestamp=NOW_MS + 1001)
    assert log.segments.base_offsets == [0, 2]


def test_without_timestamps_the_age_of_the_segment_counts() -> None:
    disk = Disk(segment_ms=1000, message_format_version="0.9.0")
    log = disk.open()
    append(log, magic=0)
    disk.clock.advance_ms(1000)
    append(log, magic=0)
    assert log.segments.base_offsets == [0]
    disk.clock.advance_ms(1)
    append(log, magic=0)
    assert log.segments.base_offsets == [0, 2]


def test_a_compacted_topic_is_rolled_in_time_for_its_compaction() -> None:
    log = Disk(segment_ms=10_000, max_compaction_lag_ms=1000, cleanup_policy=("compact",)).open()
    append(log, timestamp=NOW_MS)
    append(log, timestamp=NOW_MS + 1001)
    assert log.segments.base_offsets == [0, 1]


def test_jitter_rolls_earlier() -> None:
    disk = Disk(segment_ms=1000, segment_jitter_ms=500)
    log = disk.open(rng=Random(4))
    jitter_ms = log.segments.active.roll_jitter_ms
    assert 0 < jitter_ms < 500
    append(log, timestamp=NOW_MS)
    append(log, timestamp=NOW_MS + 1000 - jitter_ms)
    assert log.segments.base_offsets == [0]
    append(log, timestamp=NOW_MS + 1001 - jitter_ms)
    assert log.segments.base_offsets == [0, 2]


def test_a_full_index_rolls() -> None:
    log = Disk(index_interval_bytes=0, segment_index_bytes=3 * 12).open()
    for number in range(9):
        append(log, timestamp=NOW_MS + number)
    assert len(log.segments) > 1
    assert all_offsets(log) == list(range(9))


def test_offsets_too_far_from_the_base_roll() -> None:
    log = Disk().open()
    log.append_as_follower(batch(offset=0))
    log.append_as_follower(batch(offset=INT32_MAX))
    assert log.segments.base_offsets == [0]
    log.append_as_follower(batch(offset=INT32_MAX + 1))
    assert log.segments.base_offsets == [0, INT32_MAX + 1]
    far = 3 * INT32_MAX
    log.append_as_follower(batch(offset=far))
    assert log.segments.base_offsets == [0, INT32_MAX + 1, far]
    assert all_offsets(log) == [0, INT32_MAX, INT32_MAX + 1, far]


def test_after_a_gap_a_segment_begins_where_the_last_one_ended() -> None:
    log = Disk(segment_bytes=2 * SIZE_BYTES).open()
    for offset in (0, 5, 20, 25):
        log.append_as_follower(batch(offset=offset))
    assert log.segments.base_offsets == [0, 6]
    assert all_offsets(log) == [0, 5, 20, 25]


def test_an_empty_segment_is_not_rolled_but_made_anew() -> None:
    log = Disk().open()
    first = log.segments.active
    assert log.roll() is not first
    assert log.segments.base_offsets == [0]
    append(log)
    log.roll()
    log.roll()
    assert log.segments.base_offsets == [0, 1]
    append(log)
    assert all_offsets(log) == [0, 1]


def test_preallocated_files_are_cut_when_they_are_rolled() -> None:
    disk = Disk(segment_bytes=4096, preallocate=True)
    log = disk.open()
    append(log)
    assert disk.fs.size_of(log.segments.active.path) == 4096
    first = log.segments.active
    log.roll()
    assert disk.fs.size_of(first.path) == SIZE_BYTES
    append(log)
    log.close()
    assert all_offsets(disk.open(clean_shutdown=True)) == [0, 1]


# Flushing.


def test_flushing_moves_the_recovery_point() -> None:
    log = Disk(segment_bytes=3 * SIZE_BYTES).open(is_gapless=True)
    for _ in range(7):
        append(log)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 7


def test_flushing_by_the_number_of_records() -> None:
    log = Disk(flush_messages=3).open()
    append(log, b"a", b"b")
    assert log.recovery_point == 0
    append(log, b"c")
    assert log.recovery_point == 3
    append(log, b"d")
    assert log.recovery_point == 3


def test_the_time_of_the_last_flush_is_known() -> None:
    disk = Disk()
    log = disk.open()
    disk.clock.advance_ms(500)
    append(log)
    assert log.last_flush_ms == NOW_MS
    log.flush()
    assert log.last_flush_ms == NOW_MS + 500


def test_a_rolled_segment_is_flushed_later_only_if_recovery_could_tell() -> None:
    careful = Disk(segment_bytes=SIZE_BYTES).open(is_gapless=False)
    append(careful)
    append(careful)
    assert careful.recovery_point == 1
    disk = Disk(segment_bytes=SIZE_BYTES)
    quick = disk.open(is_gapless=True)
    append(quick)
    append(quick)
    assert quick.recovery_point == 0
    assert [name for name, _, _ in disk.scheduler.scheduled] == ["flush-log"]
    disk.scheduler.run()
    assert quick.recovery_point == 2


# Deleting.


def test_retention_by_size() -> None:
    disk = Disk(segment_bytes=2 * SIZE_BYTES, retention_bytes=5 * SIZE_BYTES)
    log = filled_plain(disk, 9)
    assert log.segments.base_offsets == [0, 2, 4, 6, 8]
    assert log.delete_old_segments() == 2
    assert log.segments.base_offsets == [4, 6, 8]
    assert log.log_start_offset == 4
    assert log.delete_old_segments() == 0
    with pytest.raises(OffsetOutOfRange):
        log.read(3, 100)
    assert all_offsets(log) == [4, 5, 6, 7, 8]


def filled_plain(disk: Disk, count: int, step_ms: int = 0, **options: Any) -> PartitionLog:
    log = disk.open(**options)
    for number in range(count):
        append(log, timestamp=NOW_MS + number * step_ms)
    return log


def test_retention_by_time() -> None:
    disk = Disk(segment_bytes=2 * SIZE_BYTES, retention_ms=1000)
    log = filled_plain(disk, 6, step_ms=100)
    disk.clock.advance_ms(1100)
    assert log.delete_old_segments() == 0
    disk.clock.advance_ms(1)
    assert log.delete_old_segments() == 1
    assert log.segments.base_offsets == [2, 4]
    disk.clock.advance_ms(10_000)
    assert log.delete_old_segments() == 2, "the active one too, if it holds anything"
    assert log.segments.base_offsets == [6]
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)
    assert log.delete_old_segments() == 0
    append(log)
    assert all_offsets(log) == [6]


def test_nothing_is_retained_less_while_deletion_is_on_hold() -> None:
    disk = Disk(segment_bytes=2 * SIZE_BYTES, retention_ms=0, retention_bytes=0, barnabas_deletion_hold=True)
    log = filled_plain(disk, 6)
    disk.clock.advance_ms(10_000)
    assert log.delete_old_segments() == 0
    # What somebody has asked to be deleted is.
    log.delete_records(3)
    assert log.delete_old_segments() == 1
    log.update_config(replace(log.config, barnabas_deletion_hold=False))
    assert log.delete_old_segments() == 2


def test_retention_leaves_what_is_not_replicated() -> None:
    disk = Disk(segment_bytes=2 * SIZE_BYTES, retention_ms=0)
    log = disk.open()
    for _ in range(6):
        log.append_as_leader(batch(), leader_epoch=0)
    disk.clock.advance_ms(1)
    assert log.delete_old_segments() == 0
    log.advance_high_watermark(3)
    assert log.delete_old_segments() == 1
    assert log.log_start_offset == 2


def test_a_compacted_topic_loses_only_what_is_before_its_start() -> None:
    disk = Disk(segment_bytes=2 * SIZE_BYTES, retention_ms=0, retention_bytes=0, cleanup_policy=("compact",))
    log = filled_plain(disk, 6)
    disk.clock.advance_ms(10)
    assert log.delete_old_segments() == 0
    log.delete_records(3)
    assert log.delete_old_segments() == 1
    assert log.segments.base_offsets == [2, 4]
    assert log.log_start_offset == 3


def test_files_go_after_a_delay() -> None:
    disk = Disk(segment_bytes=2 * SIZE_BYTES, retention_bytes=0, file_delete_delay_ms=777)
    log = filled_plain(disk, 3)
    reading = log.read(0, 1 << 20)
    disk.scheduler.scheduled.clear()
    log.delete_old_segments()
    assert segment_file(0, ".log", ".deleted") in disk.names()
    assert segment_file(0, ".log") not in disk.names()
    assert {(name, delay_ms) for name, delay_ms, _ in disk.scheduler.scheduled} >= {("delete-file", 777)}
    disk.scheduler.run()
    assert not [name for name in disk.names() if name.startswith(segment_file(0, ""))]
    assert offsets_in(reading) == [0, 1], "a reader finishes what it has begun"


def test_deleting_records() -> None:
    disk = Disk()
    log = filled(disk, 6)
    assert log.delete_records(2) == 2
    assert log.delete_records(1) == 2
    with pytest.raises(OffsetOutOfRange, match="high watermark"):
        log.delete_records(7)
    with pytest.raises(OffsetOutOfRange):
        log.delete_records(-2)
    assert log.delete_records(-1) == 6
    assert log.leader_epochs == [(1, 6)]
    log.close()
    log = disk.open(clean_shutdown=True, log_start_offset=6)
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)


def test_deleting_records_of_an_open_transaction_moves_the_last_stable_offset() -> None:
    log = Disk().open()
    append(log, producer_id=1, sequence=0, transactional=True)
    append(log)
    append(log)
    assert log.last_stable_offset == 0
    log.delete_records(2)
    assert log.last_stable_offset == 2


class CountingClock(Clock):
    """Retention asks for the time whenever it looks through all segments."""

    def __init__(self) -> None:
        self.asked = 0

    def now_ms(self) -> int:
        self.asked += 1
        return NOW_MS

    def monotonic_ns(self) -> int:
        return 0


def test_segments_are_looked_through_once_however_many_go() -> None:
    asked: list[int] = []
    for count in (5, 50):
        disk = Disk(segment_bytes=2 * SIZE_BYTES, retention_bytes=0)
        clock = CountingClock()
        log = filled_plain(disk, 2 * count, clock=clock)
        clock.asked = 0
        assert log.delete_old_segments() == count
        asked.append(clock.asked)
        assert log.segments.base_offsets == [2 * count]
        assert [name for name in disk.names() if name.endswith((".log", ".snapshot"))] == [
            segment_file(2 * count, ".log"),
            segment_file(2 * count, ".snapshot"),
        ]
    assert asked[0] == asked[1]


@pytest.mark.parametrize("how", ["goes on", "renamed", "closed", "begun anew", "deleted"])
def test_segments_that_have_left_the_log_and_not_yet_its_directory(how: str) -> None:
    disk = Disk(segment_bytes=2 * SIZE_BYTES, retention_bytes=5 * SIZE_BYTES)
    log = filled_plain(disk, 9)
    log.advance_log_start_offset(4)
    log._local.detach_oldest(2)
    assert log.segments.base_offsets == [4, 6, 8]
    if how == "begun anew":
        log.truncate_fully_and_start_at(2)
        append(log)
        assert all_offsets(log) == [2]
    elif how == "renamed":
        log.rename_dir("other-1")
    elif how == "closed":
        log.close()
        log = disk.open(clean_shutdown=True, log_start_offset=4)
        assert log.segments.base_offsets == [0, 2, 4, 6, 8]
        assert log.delete_old_segments() == 2
    elif how == "deleted":
        log.delete()
        assert not disk.fs.exists(DIRECTORY)
        return
    while log._retention._remove_detached_segment():
        pass
    disk.scheduler.run()
    names = disk.fs.list_dir(log._local.directory)
    expected = [2] if how == "begun anew" else [4, 6, 8]
    assert [name for name in names if ".log" in name] == [segment_file(base, ".log") for base in expected]


# Settings, names, life.


def test_settings_change_while_the_log_is_open() -> None:
    disk = Disk()
    log = filled_plain(disk, 4)
    assert log.segments.base_offsets == [0]
    log.update_config(
        Disk(segment_bytes=2 * SIZE_BYTES, retention_bytes=0, max_message_bytes=SIZE_BYTES).config
    )
    append(log)
    assert log.segments.base_offsets == [0, 4]
    assert log.delete_old_segments() == 2
    with pytest.raises(Exception, match="exceeds"):
        append(log, b"x" * 100)


def test_a_topic_id_is_kept() -> None:
    disk = Disk()
    log = disk.open()
    assert log.topic_id is None
    log.assign_topic_id(bytes(range(16)))
    log.close()
    log = disk.open(clean_shutdown=True, topic_id=bytes(range(16)))
    assert log.topic_id == bytes(range(16))
    with pytest.raises(InconsistentTopicId):
        log.assign_topic_id(bytes(16))


def test_the_directory_may_be_renamed() -> None:
    disk = Disk(segment_bytes=2 * SIZE_BYTES)
    log = filled(disk, 5)
    log.rename_dir("topic-0.0123456789abcdef-delete")
    assert log.directory == f"{DIRECTORY}.0123456789abcdef-delete"
    append(log, leader_epoch=8, producer_id=1, sequence=5)
    log.roll()
    assert all_offsets(log) == list(range(6))
    assert not disk.fs.exists(DIRECTORY)
    log.delete()
    assert disk.fs.list_dir("/data") == []


def test_a_closed_log_is_barred() -> None:
    log = filled(Disk(), 2)
    log.close()
    with pytest.raises(Exception, match="closed"):
        append(log)


# Replacing.


def replacing(disk: Disk, log: PartitionLog) -> list[int]:
    """Puts one segment with every second batch in the place of the sealed ones; the offsets that are left."""
    old = log.segments.all[:-1]
    cleaned = log.create_cleaned_segment(old[0].base_offset)
    kept: list[int] = []
    for segment in old:
        for _, header, data, at in segment.whole_batches():
            if header.base_offset % 2:
                cleaned.append(data[at : at + header.size_bytes], [header])
                kept.append(int(header.base_offset))
    cleaned.become_inactive()
    log.replace_segments([cleaned], old)
    return kept


def test_replacing_segments() -> None:
    disk = Disk(segment_bytes=3 * SIZE_BYTES)
    log = filled_plain(disk, 10)
    before = log.read(0, 1 << 20)
    kept = replacing(disk, log)
    assert kept == [1, 3, 5, 7]
    assert log.segments.base_offsets == [0, 9]
    assert all_offsets(log) == [*kept, 9]
    assert offsets_in(before) == [0, 1, 2], "a reader finishes what it has begun"
    disk.scheduler.run()
    assert not [name for name in disk.names() if name.endswith((".deleted", ".swap", ".cleaned"))]
    log.close()
    assert all_offsets(disk.open(clean_shutdown=True)) == [*kept, 9]


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_crash_at_any_step_of_a_replacement_leaves_the_old_or_the_new(is_power_cut: bool) -> None:
    outcomes = set()
    for step in range(200):
        disk = Disk(segment_bytes=3 * SIZE_BYTES)
        log = filled_plain(disk, 10)
        log.flush()
        disk.scheduler.scheduled.clear()
        disk.fs.crash_after(step)
        try:
            replacing(disk, log)
            disk.scheduler.run()
        except SimulatedCrash:
            disk.fs = disk.fs.crash(Random(step)) if is_power_cut else disk.fs.kill()
            disk.scheduler = LaterScheduler()
            offsets = tuple(all_offsets(disk.open(recovery_point=10)))
            assert offsets in (tuple(range(10)), (1, 3, 5, 7, 9)), step
            assert not [name for name in disk.names() if name.endswith((".swap", ".cleaned"))], step
            outcomes.add(offsets)
        else:
            break
    else:
        pytest.fail("the replacement takes more steps than were tried")
    assert len(outcomes) == 2
