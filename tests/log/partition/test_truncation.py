"""Truncating a partition log, and appending to it as a follower: Kafka's rules, and a crash at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Final

import pytest

from barnabas.log.names import segment_file
from barnabas.log.partition.append import UnexpectedAppendOffset
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from barnabas.records.builder import end_transaction_marker
from barnabas.records.layout import ControlRecordType
from tests.log.model import ModelProducers, batches_of, model_batch
from tests.log.partitions import (
    NOW_MS,
    Disk,
    LaterScheduler,
    all_offsets,
    append,
    batch,
    filled,
)
from tests.log.simulated import SimulatedCrash

SIZE_BYTES = len(batch())


@pytest.mark.parametrize("offset", range(10))
def test_truncating_to_an_offset(offset: int) -> None:
    disk = Disk(segment_bytes=3 * SIZE_BYTES, index_interval_bytes=0)
    log = filled(disk)
    log.flush()
    assert log.truncate_to(offset)
    assert log.log_end_offset == log.high_watermark == log.recovery_point == offset
    assert all_offsets(log) == list(range(offset))
    assert [entry.epoch for entry in log.leader_epochs] == list(range(-(-offset // 3)))
    sequences = [producer.last_sequence for producer in log.active_producers()]
    assert sequences == ([offset - 1] if offset else [])
    append(log, leader_epoch=9, producer_id=1, sequence=offset)
    log.close()
    disk.scheduler.run()
    assert all_offsets(disk.open(clean_shutdown=True)) == list(range(offset + 1))
    assert not [name for name in disk.names() if name.endswith(".deleted")]


def test_truncating_behind_the_end_removes_an_epoch_that_wrote_nothing() -> None:
    log = filled(Disk(), 3)
    assert log.assign_epoch_start(7) == 3
    assert log.latest_epoch == 7
    assert not log.truncate_to(5)
    assert log.latest_epoch == 0
    assert log.log_end_offset == 3


def test_truncating_within_a_batch_removes_it() -> None:
    log = Disk().open()
    append(log, b"a", b"b")
    append(log, b"c", b"d")
    log.truncate_to(3)
    assert log.log_end_offset == 2
    assert all_offsets(log) == [0, 1]


def test_truncating_before_the_first_segment_begins_anew() -> None:
    disk = Disk(segment_bytes=3 * SIZE_BYTES)
    log = filled(disk)
    log.delete_records(7)
    log.delete_old_segments()
    assert log.segments.base_offsets == [6, 9]
    log.truncate_to(2)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (2, 2, 2)
    append(log)
    assert all_offsets(log) == [2]


def test_starting_at_another_offset() -> None:
    disk = Disk(segment_bytes=3 * SIZE_BYTES)
    log = filled(disk)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert not log.active_producers()
    assert log.leader_epochs == []
    append(log, producer_id=1, sequence=44)
    assert all_offsets(log) == [100]
    disk.scheduler.run()
    assert [name for name in disk.names() if name.endswith(".log")] == [segment_file(100, ".log")]


def test_truncating_by_epoch() -> None:
    leader = filled(Disk(), 10)
    end = leader.end_offset_for_epoch(1)
    assert end == (1, 6)
    follower = filled(Disk(), 10)
    assert end is not None
    follower.truncate_to(end.end_offset)
    assert follower.log_end_offset == 6
    assert follower.latest_epoch == 1


def test_the_watermarks_follow_a_truncation() -> None:
    log = Disk().open()
    append(log, b"a", leader_epoch=0)
    append(log, b"b", leader_epoch=0, producer_id=2, sequence=0, transactional=True)
    append(log, b"c", leader_epoch=0)
    log.delete_records(1)
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (1, 1, 3)
    log.truncate_to(1)
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (1, 1, 1)
    append(log, b"d", leader_epoch=1)
    assert (log.last_stable_offset, log.high_watermark) == (2, 2), "the transaction is gone"
    log.truncate_to(0)
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (0, 0, 0)


def test_a_follower_goes_on_in_a_gap() -> None:
    """As in Kafka: the leader's log ends there too, and a follower that ended before would never catch up with it."""
    log = Disk().open()
    log.append_as_follower(batch(b"a", offset=0, epoch=0) + batch(b"b", offset=10, epoch=1))
    log.update_high_watermark(10)
    assert log.truncate_to(10)
    assert (log.log_end_offset, log.high_watermark) == (10, 10)
    assert log.leader_epochs == [(0, 0)]
    assert log.read(10, 100, Isolation.LOG_END).records is None
    with pytest.raises(UnexpectedAppendOffset):
        log.append_as_follower(batch(b"c", offset=9, epoch=2))
    log.append_as_follower(batch(b"c", offset=12, epoch=2))
    assert all_offsets(log) == [0, 12]
    assert log.leader_epochs == [(0, 0), (2, 12)]


def test_a_log_without_gaps_stays_without_gaps() -> None:
    """Recovery takes a gap between segments for lost records, so that the log must go on where its records end."""
    disk = Disk(segment_bytes=SIZE_BYTES)
    log = disk.open(is_gapless=True)
    log.append_as_follower(batch(b"a", offset=0, epoch=0))
    log.append_as_follower(batch(b"b", offset=10, epoch=1))
    assert log.segments.base_offsets == [0, 1]
    log.truncate_to(10)
    assert log.log_end_offset == 1
    log.append_as_follower(batch(b"c", offset=12, epoch=2))
    disk.fs = disk.fs.kill()
    assert all_offsets(disk.open(is_gapless=True)) == [0, 12]


def test_a_clean_stop_keeps_the_epochs_that_a_truncation_left() -> None:
    """The file of epochs is written by the scheduler, which may not run before the log is closed."""
    disk = Disk()
    log = disk.open()
    log.append_as_follower(batch(b"a", offset=0, epoch=0) + batch(b"b", offset=1, epoch=3))
    log.truncate_to(1)
    # The new leader had written more in the first epoch than the leader of epoch 3 had seen.
    log.append_as_follower(batch(b"c", offset=1, epoch=0))
    assert log.leader_epochs == [(0, 0)]
    log.close()
    assert disk.open(clean_shutdown=True).leader_epochs == [(0, 0)]


# A crash at every step.


POWER_CUTS: Final = 4
FLUSHED: Final = 10


def diverged() -> tuple[Disk, PartitionLog]:
    """A follower with records in epochs 2 and 3 that no other replica has: an aborted transaction, and an open one."""
    disk = Disk(segment_bytes=3 * SIZE_BYTES, index_interval_bytes=0)
    log = disk.open()
    for offset in range(6):
        log.append_as_follower(
            batch(b"kept", offset=offset, epoch=offset // 3, producer_id=1, sequence=offset)
        )
    for data in (
        batch(b"gone", offset=6, epoch=2, producer_id=2, sequence=0, transactional=True),
        batch(b"gone", offset=7, epoch=2, producer_id=1, sequence=6),
        marker(2, offset=8, epoch=2),
        batch(b"gone", offset=9, epoch=3, producer_id=2, sequence=1, transactional=True),
    ):
        log.append_as_follower(data)
    log.update_high_watermark(FLUSHED)
    log.flush()
    disk.scheduler.run()
    assert log.recovery_point == FLUSHED
    return disk, log


def marker(producer_id: int, *, offset: int, epoch: int) -> bytes:
    return end_transaction_marker(
        control_type=ControlRecordType.ABORT,
        timestamp=TimestampMs(NOW_MS),
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(0),
        coordinator_epoch=0,
        base_offset=Offset(offset),
        partition_leader_epoch=LeaderEpoch(epoch),
    )


def crashed(
    begin: Callable[[], tuple[Disk, PartitionLog]], act: Callable[[PartitionLog], None]
) -> Iterator[Disk]:
    """The disks that a kill and some power cuts leave, for every step of the act and after it."""
    for steps in count():
        is_over = True
        for seed in range(-1, POWER_CUTS):
            disk, log = begin()
            disk.fs.crash_after(steps)
            try:
                act(log)
            except SimulatedCrash:
                is_over = False
            disk.fs = disk.fs.kill() if seed < 0 else disk.fs.crash(Random(seed))
            disk.scheduler = LaterScheduler()
            yield disk
        if is_over:
            assert steps > 1
            return


def check_agrees(log: PartitionLog) -> None:
    """What is derived from the records agrees with them: epochs, producers, transactions, watermarks."""
    found = batches_of(log)
    for each in found:
        begun = [entry.epoch for entry in log.leader_epochs if entry.start_offset <= each.base_offset]
        assert begun[-1] == each.header().partition_leader_epoch, (each.base_offset, log.leader_epochs)
    assert all(entry.start_offset < log.log_end_offset for entry in log.leader_epochs)
    model = ModelProducers().replay(found)
    assert {int(entry.producer_id): entry.last_sequence for entry in log.active_producers()} == {
        producer_id: producer.last_sequence for producer_id, producer in model.producers.items()
    }
    indexed = log.aborted_transactions(0, 1 << 62)
    assert [(each.producer_id, each.first_offset, each.last_offset) for each in indexed] == model.aborted
    log.advance_high_watermark(log.log_end_offset)
    first_open = model.first_open_offset
    assert log.last_stable_offset == (log.log_end_offset if first_open is None else first_open)


@pytest.mark.slow
@pytest.mark.parametrize("offset", [3, 4, 7, 9])
def test_a_crash_while_a_follower_truncates(offset: int) -> None:
    news = batch(b"new", offset=offset, epoch=1, producer_id=1, sequence=offset) + batch(
        b"new", b"new", offset=offset + 1, epoch=5
    )
    if offset > 6:
        news = batch(b"new", offset=offset, epoch=4)

    def truncate(log: PartitionLog) -> None:
        assert log.truncate_to(offset)

    for disk in crashed(diverged, truncate):
        # The recovery point is checkpointed after the truncation.
        log = disk.open(recovery_point=FLUSHED)
        kept = all_offsets(log)
        assert kept == list(range(len(kept)))
        assert offset <= len(kept) <= FLUSHED
        check_agrees(log)
        log.truncate_to(offset)
        assert log.log_end_offset == offset
        check_agrees(log)
        recovery_point = int(log.recovery_point)
        log.append_as_follower(news)
        log.flush()
        expected = batches_of(log)
        assert expected[-1].header().partition_leader_epoch in (4, 5)
        disk.fs = disk.fs.crash(Random(1))
        log = disk.open(recovery_point=recovery_point)
        assert batches_of(log) == expected
        check_agrees(log)


@pytest.mark.slow
def test_a_crash_while_a_follower_starts_elsewhere() -> None:
    for disk in crashed(diverged, lambda log: log.truncate_fully_and_start_at(20)):
        log = disk.open(recovery_point=FLUSHED)
        kept = all_offsets(log)
        assert kept == list(range(len(kept))), "a part of the old records, or none"
        check_agrees(log)
        log.truncate_fully_and_start_at(20)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (20, 20, 20)
        log.append_as_follower(batch(b"new", offset=20, epoch=7, producer_id=1, sequence=33))
        log.flush()
        disk.fs = disk.fs.crash(Random(1))
        log = disk.open(recovery_point=20)
        assert (log.log_start_offset, all_offsets(log)) == (20, [20])
        assert log.leader_epochs == [(7, 20)]
        check_agrees(log)


@pytest.mark.slow
def test_a_crash_while_a_follower_appends() -> None:
    news = [
        marker(2, offset=10, epoch=3),
        batch(b"new", b"new", offset=11, epoch=4, producer_id=1, sequence=7),
        batch(b"new", offset=15, epoch=6, producer_id=3, sequence=0, transactional=True),
    ]

    def append_all(log: PartitionLog) -> None:
        log.append_as_follower(news[0])
        log.append_as_follower(b"".join(news[1:]))

    for disk in crashed(diverged, append_all):
        log = disk.open(recovery_point=FLUSHED)
        written = batches_of(log)
        assert [each.data for each in written[FLUSHED:]] == news[: len(written) - FLUSHED]
        check_agrees(log)
        # The follower fetches on from the end of its log.
        for data in news[len(written) - FLUSHED :]:
            log.append_as_follower(data)
        assert batches_of(log)[FLUSHED:] == list(map(model_batch, news))
        check_agrees(log)
