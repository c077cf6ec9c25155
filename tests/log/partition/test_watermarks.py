"""The order of the watermarks: log start offset ≤ last stable offset ≤ high watermark ≤ log end offset."""

from __future__ import annotations

import pytest

from barnabas.errors import OffsetOutOfRange
from barnabas.log.partition.partition_log import PartitionLog
from tests.log.partitions import Disk, append, batch, end_transaction


def watermarks(log: PartitionLog) -> tuple[int, int, int, int]:
    return (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)


def of_ten(disk: Disk | None = None) -> PartitionLog:
    log = (disk or Disk()).open()
    log.append_as_leader(batch(*[b"x"] * 10), leader_epoch=0)
    return log


def test_the_high_watermark_of_a_leader_only_rises() -> None:
    log = of_ten()
    assert watermarks(log) == (0, 0, 0, 10)
    assert log.advance_high_watermark(7)
    assert not log.advance_high_watermark(7)
    assert not log.advance_high_watermark(3)
    assert watermarks(log) == (0, 7, 7, 10)
    with pytest.raises(AssertionError):
        log.advance_high_watermark(11)
    assert watermarks(log) == (0, 7, 7, 10)


def test_a_followers_high_watermark_stays_within_its_log() -> None:
    log = of_ten()
    assert log.update_high_watermark(99) == 10
    log.delete_records(4)
    assert log.update_high_watermark(2) == 4
    assert watermarks(log) == (4, 4, 4, 10)


def test_the_start_offset_stays_below_the_high_watermark() -> None:
    log = of_ten()
    log.advance_high_watermark(6)
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start_offset(7)
    assert log.advance_log_start_offset(6)
    assert not log.advance_log_start_offset(5)
    assert watermarks(log) == (6, 6, 6, 10)
    with pytest.raises(OffsetOutOfRange):
        log.delete_records(-2)
    assert log.delete_records(-1) == 6


def test_an_open_transaction_bounds_the_last_stable_offset() -> None:
    log = Disk().open()
    append(log, b"a", b"b")
    log.append_as_leader(batch(b"c", producer_id=1, sequence=0, transactional=True), leader_epoch=0)
    assert watermarks(log) == (0, 2, 2, 3)
    log.advance_high_watermark(3)
    assert watermarks(log) == (0, 2, 3, 3)
    end_transaction(log, 1, replicated=False)
    assert watermarks(log) == (0, 2, 3, 4), "its marker is not replicated yet"
    log.advance_high_watermark(4)
    assert watermarks(log) == (0, 4, 4, 4)


def test_the_start_offset_may_pass_the_begin_of_a_transaction() -> None:
    log = Disk().open()
    append(log, b"a", producer_id=1, sequence=0, transactional=True)
    append(log, b"b", b"c")
    assert watermarks(log) == (0, 0, 3, 3)
    log.delete_records(2)
    assert watermarks(log) == (2, 2, 3, 3)


def test_a_log_that_is_opened_begins_with_the_lowest_high_watermark() -> None:
    disk = Disk()
    log = of_ten(disk)
    log.advance_high_watermark(10)
    log.close()
    log = disk.open(clean_shutdown=True, log_start_offset=3)
    assert watermarks(log) == (3, 3, 3, 10)
