"""What is left in a partition's directory becomes a log again; the rules stand in loader.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.log.file_system import CREATE, WRITE
from barnabas.log.names import segment_file
from barnabas.log.partition.partition_log import PartitionLog
from tests.log.partitions import DIRECTORY, Disk, all_offsets, append, batch, end_transaction

SIZE_BYTES = len(batch(b"value", producer_id=1, sequence=0))


def filled(count: int = 8, **settings: int) -> tuple[Disk, PartitionLog]:
    """Three batches to a segment, a producer with an id, an epoch for each two batches."""
    disk = Disk(segment_bytes=3 * SIZE_BYTES, index_interval_bytes=0, **settings)
    log = disk.open(is_gapless=True)
    for number in range(count):
        append(log, b"value", leader_epoch=number // 2, producer_id=1, sequence=number)
    return disk, log


def path(base_offset: int, kind: str, state: str = "") -> str:
    return f"{DIRECTORY}/{segment_file(base_offset, kind, state)}"


def write(disk: Disk, file_path: str, data: bytes) -> None:
    file = disk.fs.open(file_path, CREATE)
    file.truncate(0)
    file.pwrite(data, 0)


def test_a_new_directory_becomes_an_empty_log() -> None:
    disk = Disk()
    log = disk.open(log_start_offset=5)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 5, 5)
    assert log.segments.base_offsets == [5]


def test_a_clean_stop_and_a_kill_lose_nothing() -> None:
    for clean in (True, False):
        disk, log = filled()
        content_before = all_offsets(log)
        if clean:
            log.close()
        else:
            disk.fs = disk.fs.kill()
        log = disk.open(clean_shutdown=clean)
        assert all_offsets(log) == content_before
        assert log.recovery_point == (8 if clean else 0)
        assert log.leader_epochs == [(0, 0), (1, 2), (2, 4), (3, 6)]
        (producer,) = log.active_producers()
        assert (producer.last_sequence, producer.last_offset) == (7, 7)
        assert not append(log, b"value", leader_epoch=4, producer_id=1, sequence=8).is_duplicate
        assert append(log, b"value", leader_epoch=4, producer_id=1, sequence=7).is_duplicate


def test_recovery_tells_its_progress() -> None:
    disk, _ = filled()
    disk.fs = disk.fs.kill()
    left: list[int] = []
    disk.open(recovery_point=4, on_segment_recovered=left.append)
    assert left == [1, 0]


def test_after_a_clean_stop_no_log_file_is_scanned() -> None:
    disk, log = filled()
    log.close()
    damaged = disk.fs.open(path(0, ".log"), WRITE)
    damaged.pwrite(b"\xff" * 40, 40)
    assert disk.open(clean_shutdown=True).log_end_offset == 8


@pytest.mark.parametrize("damage", ["cut", "garbage", "bit", "zeros"])
def test_behind_the_first_damage_the_log_ends(damage: str) -> None:
    disk, _ = filled(8)
    disk.fs = disk.fs.kill()
    file = disk.fs.open(path(3, ".log"), WRITE)
    if damage == "cut":
        file.truncate(2 * SIZE_BYTES + 30)
    elif damage == "garbage":
        file.pwrite(b"\xaa" * 100, 2 * SIZE_BYTES)
    elif damage == "bit":
        file.pwrite(b"\x01", 2 * SIZE_BYTES + 70)
    else:
        file.pwrite(bytes(SIZE_BYTES), 2 * SIZE_BYTES)
    log = disk.open()
    assert all_offsets(log) == [0, 1, 2, 3, 4]
    assert log.segments.base_offsets == [0, 3]
    assert log.leader_epochs == [(0, 0), (1, 2), (2, 4)]
    assert [producer.last_sequence for producer in log.active_producers()] == [4]
    assert not [name for name in disk.names() if name.startswith(segment_file(6, ""))]
    append(log, b"value", leader_epoch=9, producer_id=1, sequence=5)
    assert all_offsets(log) == [0, 1, 2, 3, 4, 5]


def test_damage_before_the_recovery_point_is_not_looked_for() -> None:
    disk, log = filled()
    log.flush()
    disk.fs = disk.fs.kill()
    disk.fs.open(path(0, ".log"), WRITE).pwrite(b"\x01", 2 * SIZE_BYTES + 70)
    assert disk.open(recovery_point=7).log_end_offset == 8


def test_a_lost_end_of_a_segment_is_noticed_where_the_log_has_no_gaps() -> None:
    for gapless, offsets in ((True, [0, 1, 2, 3]), (False, [0, 1, 2, 3, 6, 7])):
        disk, _ = filled()
        disk.fs = disk.fs.kill()
        disk.fs.open(path(3, ".log"), WRITE).truncate(SIZE_BYTES)
        log = disk.open(is_gapless=gapless)
        assert all_offsets(log) == offsets


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_missing_index_is_made_anew(kind: str, clean: bool) -> None:
    disk, log = filled()
    log.close()
    intact = disk.content()
    disk.fs.remove(path(3, kind))
    log = disk.open(clean_shutdown=clean)
    assert all_offsets(log) == list(range(8))
    if kind == ".index":
        assert disk.content()[path(3, kind)] == intact[path(3, kind)]


def test_a_damaged_transaction_index_is_made_anew() -> None:
    disk = Disk()
    log = disk.open()
    append(log, b"a", producer_id=1, sequence=0, transactional=True)
    end_transaction(log, 1, abort=True)
    log.close()
    intact = disk.content()[path(0, ".txnindex")]
    write(disk, path(0, ".txnindex"), b"\x07" * 34)
    log = disk.open(clean_shutdown=True)
    assert [each.producer_id for each in log.aborted_transactions(0, 2)] == [1]
    log.close()
    assert disk.content()[path(0, ".txnindex")] == intact


def test_a_segment_that_an_old_broker_filled_beyond_its_indexes_is_split() -> None:
    disk = Disk()
    disk.fs.make_dirs(DIRECTORY)
    far = 5 << 31
    offsets = [0, 1, far, far + 7]
    write(disk, path(0, ".log"), b"".join(batch(b"value", offset=offset, epoch=2) for offset in offsets))
    log = disk.open(clean_shutdown=True, lists_side_files=False)
    assert all_offsets(log) == offsets
    assert log.segments.base_offsets == [0, far]
    assert log.leader_epochs == [(2, 0)]
    assert [name for name in disk.names() if name.endswith((".cleaned", ".swap", ".deleted"))] == []
    append(log, b"value", leader_epoch=3)
    log.close()
    assert all_offsets(disk.open(clean_shutdown=True)) == [*offsets, far + 8]


def test_what_a_segment_cannot_hold_is_damage_in_what_was_not_flushed() -> None:
    disk, _ = filled()
    disk.fs = disk.fs.kill()
    disk.fs.open(path(6, ".log"), WRITE).pwrite((1 << 40).to_bytes(8, "big"), SIZE_BYTES)
    assert all_offsets(disk.open()) == list(range(7))


def test_an_index_without_a_log_file_is_removed() -> None:
    disk, log = filled()
    log.close()
    for kind in (".index", ".timeindex", ".txnindex"):
        write(disk, path(100, kind), b"")
    assert disk.open(clean_shutdown=True).log_end_offset == 8
    assert not [name for name in disk.names() if name.startswith(segment_file(100, ""))]


def test_foreign_files_are_left_alone() -> None:
    disk, log = filled()
    log.close()
    for name in ("notes.txt", "123.log.backup", "snapshot", "00000000000000000003.log.bak"):
        write(disk, f"{DIRECTORY}/{name}", b"mine")
    assert all_offsets(disk.open(clean_shutdown=True)) == list(range(8))
    assert disk.content()[f"{DIRECTORY}/notes.txt"] == b"mine"
    assert {"123.log.backup", "snapshot", "00000000000000000003.log.bak"} <= set(disk.names())


def test_what_waits_for_deletion_is_deleted_and_unfinished_cleaning_too() -> None:
    disk, log = filled()
    log.close()
    data = disk.content()[path(0, ".log")]
    for name in (
        segment_file(0, ".log", ".deleted"),
        segment_file(0, ".snapshot", ".deleted"),
        segment_file(3, ".log", ".cleaned"),
        segment_file(3, ".index", ".cleaned"),
    ):
        write(disk, f"{DIRECTORY}/{name}", data)
    assert all_offsets(disk.open(clean_shutdown=True)) == list(range(8))
    assert not [name for name in disk.names() if name.endswith((".deleted", ".cleaned"))]


def swapped(disk: Disk, base_offset: int, *offsets: int) -> None:
    data = b"".join(batch(b"value", offset=offset, epoch=0) for offset in offsets)
    write(disk, path(base_offset, ".log", ".swap"), data)
    write(disk, path(base_offset, ".index", ".swap"), b"")
    write(disk, path(base_offset, ".timeindex", ".swap"), b"")


def test_a_cleaning_that_got_far_enough_is_finished() -> None:
    disk, log = filled()
    log.close()
    swapped(disk, 0, 1, 5)
    log = disk.open(clean_shutdown=True)
    assert log.segments.base_offsets == [0, 6]
    assert all_offsets(log) == [1, 5, 6, 7]
    assert not [name for name in disk.names() if name.endswith(".swap")]


def test_a_swap_file_behind_a_cleaned_one_does_not_count() -> None:
    disk, log = filled()
    log.close()
    swapped(disk, 3, 5)
    write(disk, path(0, ".log", ".cleaned"), batch(b"value", offset=1))
    log = disk.open(clean_shutdown=True)
    assert all_offsets(log) == list(range(8))
    assert not [name for name in disk.names() if name.endswith((".swap", ".cleaned"))]


def test_a_log_that_ends_before_its_start_begins_anew() -> None:
    disk, log = filled()
    log.close()
    log = disk.open(clean_shutdown=True, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert not log.active_producers()
    assert log.leader_epochs == []
    append(log, b"value", leader_epoch=0, producer_id=1, sequence=99)
    assert all_offsets(log) == [50]


def test_epochs_outside_the_log_are_forgotten() -> None:
    disk, log = filled()
    log.assign_epoch_start(9)
    log.close()
    log = disk.open(clean_shutdown=True, log_start_offset=5)
    assert log.leader_epochs == [(2, 5), (3, 6)]


def test_epochs_come_back_from_the_records() -> None:
    disk, _ = filled()
    disk.fs = disk.fs.kill()
    disk.fs.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
    assert disk.open().leader_epochs == [(0, 0), (1, 2), (2, 4), (3, 6)]


Damage = Callable[[Disk], None]


def remove_snapshots(disk: Disk) -> None:
    for name in disk.names():
        if name.endswith(".snapshot"):
            disk.fs.remove(f"{DIRECTORY}/{name}")


def garble_snapshots(disk: Disk) -> None:
    for name in disk.names():
        if name.endswith(".snapshot"):
            write(disk, f"{DIRECTORY}/{name}", b"garbage")


@pytest.mark.parametrize("damage", [remove_snapshots, garble_snapshots])
def test_producers_come_back_without_snapshots(damage: Damage) -> None:
    disk = Disk(segment_bytes=3 * SIZE_BYTES)
    log = disk.open()
    append(log, b"a", producer_id=1, sequence=0)
    append(log, b"a", producer_id=2, sequence=0, transactional=True)
    for sequence in range(1, 7):
        append(log, b"a", producer_id=1, sequence=sequence)
    end_transaction(log, 2, abort=True)
    append(log, b"a", producer_id=3, sequence=0, transactional=True)
    disk.fs = disk.fs.kill()
    damage(disk)
    log = disk.open()
    producers = {int(each.producer_id): each for each in log.active_producers()}
    assert producers[1].last_sequence == 6
    assert producers[2].current_txn_start_offset == -1
    assert producers[3].current_txn_start_offset == 9
    assert [(each.producer_id, each.first_offset) for each in log.aborted_transactions(0, 10)] == [(2, 1)]
    log.update_high_watermark(10)
    assert log.last_stable_offset == 9
