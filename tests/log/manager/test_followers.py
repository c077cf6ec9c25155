"""What a follower does to its log by the manager: appends and truncation, with the checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.errors import CorruptMessage, KafkaStorageError, RecordListTooLarge
from barnabas.log.checkpoints import read_offsets
from barnabas.log.partition.append import UnexpectedAppendOffset
from barnabas.model import TopicPartition
from tests.log.managed import ManagedLogs, values
from tests.log.partitions import all_offsets, batch
from tests.log.simulated import SimulatedCrash

A0 = TopicPartition("a", 0)
SIZE_BYTES = len(batch())


def test_truncation_is_checkpointed() -> None:
    logs = ManagedLogs()
    log = logs.create("a-0", "one")
    logs.append(log, "two")
    log.flush()
    logs.manager.checkpoint_all()
    assert logs.manager.truncate_to(A0, 1)
    assert not logs.manager.truncate_to(A0, 1)
    assert read_offsets(logs.fs, "/disk/recovery-point-offset-checkpoint") == {A0: 1}
    logs.manager.truncate_fully_and_start_at(A0, 40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    with pytest.raises(KafkaStorageError):
        logs.manager.truncate_to(TopicPartition("unknown", 0), 1)


def test_a_follower_begins_in_the_middle_of_a_batch() -> None:
    logs = ManagedLogs()
    log = logs.create("a-0")
    logs.manager.truncate_fully_and_start_at(A0, 5)
    logs.manager.append_as_follower(A0, batch(b"a", b"b", b"c", b"d", offset=3, epoch=1))
    assert all_offsets(log) == [3, 4, 5, 6]
    assert log.leader_epochs == [(1, 3)]
    # The leader's start offset and high watermark come with its response.
    log.update_high_watermark(7)
    assert log.advance_log_start_offset(5)
    assert all_offsets(log) == [5, 6]


@pytest.mark.parametrize("offsets", [(1, 4), (6, 7)])
def test_other_records_do_not_continue_the_log(offsets: tuple[int, int]) -> None:
    """Neither those that end before the start of an empty log, nor those that overlap with records."""
    logs = ManagedLogs()
    log = logs.create("a-0")
    logs.manager.truncate_fully_and_start_at(A0, 5)
    if offsets[0] > 5:
        logs.manager.append_as_follower(A0, batch(b"a", b"b", offset=5))
    before = all_offsets(log)
    records = batch(*[b"x"] * (offsets[1] - offsets[0] + 1), offset=offsets[0])
    with pytest.raises(UnexpectedAppendOffset):
        logs.manager.append_as_follower(A0, records)
    assert all_offsets(log) == before


def follower() -> ManagedLogs:
    """Ten records of epoch 1 on the disk, in segments of three, and checkpoints that say so."""
    logs = ManagedLogs(config=LogConfig(segment_bytes=3 * SIZE_BYTES, index_interval_bytes=0))
    log = logs.create("a-0")
    for offset in range(10):
        logs.manager.append_as_follower(A0, batch(b"old", offset=offset, epoch=1))
    log.update_high_watermark(10)
    log.flush()
    logs.pass_ms(1)
    logs.manager.checkpoint_all()
    logs.manager.checkpoint_high_watermarks()
    return logs


def truncate(logs: ManagedLogs) -> None:
    logs.manager.truncate_to(A0, 4)


def truncate_fully(logs: ManagedLogs) -> None:
    logs.manager.truncate_fully_and_start_at(A0, 4)


@pytest.mark.slow
@pytest.mark.parametrize("change", [truncate, truncate_fully])
def test_records_that_follow_a_truncation_survive_a_crash(change: Callable[[ManagedLogs], None]) -> None:
    """At every step of it, and of what the follower appends and flushes then."""
    for steps in count():
        for seed in range(3):
            logs = follower()
            flushed = 4
            is_changed = is_over = False
            logs.fs.crash_after(steps)
            try:
                change(logs)
                is_changed = True
                for offset in range(4, 9):
                    logs.manager.append_as_follower(A0, batch(b"new", offset=offset, epoch=2))
                    if offset == 7:
                        logs.log("a-0").flush()
                        flushed = 8
                is_over = True
            except SimulatedCrash:
                pass
            logs.fs = logs.fs.crash(Random(seed))
            logs.start()
            log = logs.log("a-0")
            offsets, epochs = all_offsets(log), log.leader_epochs
            where = (steps, seed, offsets, epochs)
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True, where
            assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
            if is_changed:
                assert log.log_end_offset >= flushed, where
                assert epochs in ([], [(1, 0)], [(1, 0), (2, 4)], [(2, 4)]), where
                assert ((2, 4) in epochs) == (log.log_end_offset > 4), where
        if is_over:
            assert steps > 10
            return


def test_what_does_not_fit_into_a_segment_is_written_in_parts() -> None:
    logs = ManagedLogs(config=LogConfig(segment_bytes=300))
    logs.create("a-0")
    data = b"".join(batch(b"x" * 40, offset=offset, epoch=1) for offset in range(12))
    info = logs.manager.append_as_follower(A0, data + batch(b"cut off", offset=12, epoch=1)[:-1])
    log = logs.log("a-0")
    assert (info.last_offset, log.log_end_offset) == (11, 12)
    assert len(log.segments) > 2
    assert values(log) == ["x" * 40] * 12
    with pytest.raises(RecordListTooLarge):
        logs.manager.append_as_follower(A0, batch(b"x" * 400, offset=12, epoch=1))


def test_damaged_records_after_a_good_part_leave_that_part() -> None:
    """Else the next fetch would begin before the end of the log, and the partition would fail for good."""
    logs = ManagedLogs(config=LogConfig(segment_bytes=300))
    logs.create("a-0")
    batches = [bytearray(batch(b"x" * 40, offset=offset, epoch=1)) for offset in range(12)]
    batches[8][-1] ^= 1
    info = logs.manager.append_as_follower(A0, b"".join(batches))
    end_offset = logs.log("a-0").log_end_offset
    assert 0 < end_offset <= 8
    assert info.last_offset == end_offset - 1
    rest = b"".join(batches[end_offset:])
    while end_offset < 8:
        logs.manager.append_as_follower(A0, rest)
        end_offset = logs.log("a-0").log_end_offset
        rest = b"".join(batches[end_offset:])
    with pytest.raises(CorruptMessage):
        logs.manager.append_as_follower(A0, rest)
    assert values(logs.log("a-0")) == ["x" * 40] * 8
