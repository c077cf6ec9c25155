from __future__ import annotations

import pytest

from barnabas.errors import KafkaStorageError, OffsetOutOfRange
from barnabas.log.file_system import StorageFailure
from barnabas.log.partition.offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.records.layout import CompressionType
from tests.log.partitions import NOW_MS, Disk, all_offsets, append, batch, end_transaction, offsets_in
from tests.log.simulated import SimulatedFile


def log_of_batches(count: int = 10) -> PartitionLog:
    """Batches of three records each, a few of them in a segment."""
    log = Disk(segment_bytes=350, index_interval_bytes=0).open()
    for _ in range(count):
        append(log, b"a", b"b", b"c")
    assert len(log.segments) > 2
    return log


def test_every_offset_is_found_in_its_batch() -> None:
    log = log_of_batches()
    for offset in range(30):
        read = offsets_in(log.read(offset, 1, min_one_message=True))
        assert read == [offset // 3 * 3 + index for index in range(3)]
    assert all_offsets(log) == list(range(30))


def test_a_read_ends_with_its_segment() -> None:
    log = log_of_batches()
    second_base_offset = log.segments.base_offsets[1]
    assert offsets_in(log.read(0, 1 << 20)) == list(range(second_base_offset))


def test_a_segment_that_goes_before_its_file_is_opened() -> None:
    disk = Disk(segment_bytes=350, index_interval_bytes=0, retention_bytes=350)
    log = disk.open()
    for _ in range(10):
        append(log, b"a", b"b", b"c")
    log.close()
    failures: list[StorageFailure] = []
    log = disk.open(clean_shutdown=True, on_failure=failures.append)
    log.update_high_watermark(log.log_end_offset)
    open_file = disk.fs.open

    def open_too_late(path: str, mode: int) -> SimulatedFile:
        if path.endswith("/00000000000000000000.log"):
            # Retention, in another thread, has been there first.
            assert log.delete_old_segments() > 0
            disk.scheduler.run()
        return open_file(path, mode)

    disk.fs.open = open_too_late  # type: ignore[method-assign]
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 1 << 20)
    assert not failures
    assert offsets_in(log.read(log.log_start_offset, 1 << 20))[0] == log.log_start_offset


def test_a_log_that_is_deleted_while_it_is_read_has_not_failed() -> None:
    disk = Disk()
    log = disk.open()
    append(log, b"a")
    log.close()
    failures: list[StorageFailure] = []
    log = disk.open(clean_shutdown=True, on_failure=failures.append)
    remove_tree = disk.fs.remove_tree

    def remove_and_read(path: str) -> None:
        remove_tree(path)
        with pytest.raises(KafkaStorageError):
            log.read(0, 1 << 20, Isolation.LOG_END)

    disk.fs.remove_tree = remove_and_read  # type: ignore[method-assign]
    log.delete()
    assert not failures


def test_size_limits() -> None:
    log = log_of_batches()
    size_bytes = len(batch(b"a", b"b", b"c"))
    result = log.read(0, size_bytes - 1)
    assert result.first_entry_is_cut
    assert result.size_bytes == size_bytes - 1
    assert offsets_in(result) == []
    assert offsets_in(log.read(0, size_bytes - 1, min_one_message=True)) == [0, 1, 2]
    assert offsets_in(log.read(0, 2 * size_bytes)) == [0, 1, 2, 3, 4, 5]
    empty = log.read(0, 0)
    assert empty.size_bytes == 0


def test_no_offset_outside_the_log() -> None:
    log = log_of_batches()
    log.delete_records(4)
    assert log.read(30, 100).records is None
    for offset in (-1, 3, 31):
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} of topic-0"):
            log.read(offset, 100)
    assert offsets_in(log.read(4, 1, min_one_message=True)) == [3, 4, 5], "a batch comes whole"


def test_isolation_bounds_a_read() -> None:
    log = Disk().open()
    for offset in range(6):
        log.append_as_leader(batch(b"a"), leader_epoch=0)
        assert log.log_end_offset == offset + 1
    log.append_as_leader(batch(producer_id=1, sequence=0, transactional=True), leader_epoch=0)
    log.append_as_leader(batch(b"a"), leader_epoch=0)
    assert offsets_in(log.read(0, 1 << 20, Isolation.HIGH_WATERMARK)) == []
    log.advance_high_watermark(3)
    assert offsets_in(log.read(0, 1 << 20, Isolation.LOG_END)) == list(range(8))
    assert offsets_in(log.read(0, 1 << 20, Isolation.HIGH_WATERMARK)) == [0, 1, 2]
    assert offsets_in(log.read(0, 1 << 20, Isolation.TXN_COMMITTED)) == [0, 1, 2]
    log.advance_high_watermark(8)
    assert offsets_in(log.read(0, 1 << 20, Isolation.HIGH_WATERMARK)) == list(range(8))
    result = log.read(1, 1 << 20, Isolation.TXN_COMMITTED)
    assert offsets_in(result) == [1, 2, 3, 4, 5]
    assert (result.high_watermark, result.last_stable_offset, result.log_end_offset) == (8, 6, 8)
    assert log.read(7, 100, Isolation.TXN_COMMITTED).records is None


def test_a_bound_in_an_earlier_segment() -> None:
    log = log_of_batches()
    for high_watermark in range(3, 30, 3):
        log.update_high_watermark(high_watermark)
        seen: list[int] = []
        while len(seen) < high_watermark:
            part = offsets_in(log.read(len(seen), 1 << 20))
            assert part
            seen += part
        assert seen == list(range(high_watermark))
        assert log.read(high_watermark, 100).records is None


def test_bounds_are_found_anew_after_a_truncation() -> None:
    log = log_of_batches()
    log.update_high_watermark(15)
    assert offsets_in(log.read(12, 1 << 20)) == [12, 13, 14]
    log.truncate_to(12)
    for _ in range(3):
        append(log, b"long" * 20)
    log.update_high_watermark(13)
    assert offsets_in(log.read(12, 1 << 20)) == [12]
    assert log.read(13, 1 << 20).records is None


def test_aborted_transactions_of_what_was_read() -> None:
    log = Disk(segment_bytes=600, index_interval_bytes=0).open()
    for producer_id in range(6):
        append(log, b"a", producer_id=producer_id, sequence=0, transactional=True)
        append(log, b"plain")
        end_transaction(log, producer_id, abort=producer_id % 2 == 0)
    assert len(log.segments) > 2
    result = log.read(0, 1 << 20, Isolation.TXN_COMMITTED)
    aborted = result.aborted_transactions
    assert aborted is not None
    read_end = offsets_in(result)[-1]
    expected = [(producer_id, 3 * producer_id) for producer_id in (0, 2, 4) if 3 * producer_id <= read_end]
    assert [(each.producer_id, each.first_offset) for each in aborted][: len(expected)] == expected
    assert log.read(0, 1 << 20, Isolation.HIGH_WATERMARK).aborted_transactions is None
    assert log.read(18, 100, Isolation.TXN_COMMITTED).aborted_transactions == []
    assert [each.producer_id for each in log.aborted_transactions(7, 18)] == [2, 4]


def test_a_transaction_whose_marker_is_in_a_later_segment() -> None:
    log = Disk(segment_bytes=400, index_interval_bytes=0).open()
    append(log, b"a", producer_id=1, sequence=0, transactional=True)
    for _ in range(10):
        append(log, b"plain")
    end_transaction(log, 1, abort=True)
    assert len(log.segments) > 2
    result = log.read(0, 10, Isolation.TXN_COMMITTED, min_one_message=True)
    assert result.aborted_transactions is not None
    assert [each.producer_id for each in result.aborted_transactions] == [1]


def test_offsets_by_time() -> None:
    log = Disk(segment_bytes=600, index_interval_bytes=0).open()
    for number in range(20):
        append(log, b"a", timestamp=NOW_MS + 10 * number, leader_epoch=number // 10)
    for number in range(20):
        for before in (0, 1, 9):
            found = log.offset_for_timestamp(NOW_MS + 10 * number - before)
            assert found is not None
            assert found == (NOW_MS + 10 * number, number, number // 10)
    assert log.offset_for_timestamp(NOW_MS + 191) is None
    log.delete_records(7)
    found = log.offset_for_timestamp(0)
    assert found is not None
    assert found.offset == 7


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP])
def test_special_timestamps(compression: CompressionType) -> None:
    log = Disk(segment_bytes=600).open()
    assert log.offset_for_timestamp(MAX_TIMESTAMP) is None
    assert log.offset_for_timestamp(EARLIEST_TIMESTAMP) == (-1, 0, -1)
    assert log.offset_for_timestamp(LATEST_TIMESTAMP) == (-1, 0, -1)
    for number in range(12):
        timestamp = NOW_MS + (1000 if number == 5 else number)
        append(log, b"a", b"b", timestamp=timestamp, leader_epoch=number // 4 + 2, compression=compression)
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == (NOW_MS + 1000, 10, 3)
    assert log.offset_for_timestamp(EARLIEST_TIMESTAMP) == (-1, 0, 2)
    assert log.offset_for_timestamp(LATEST_TIMESTAMP) == (-1, 24, 4)
    log.delete_records(9)
    assert log.offset_for_timestamp(EARLIEST_TIMESTAMP) == (-1, 9, 3)
    assert log.offset_for_timestamp(EARLIEST_LOCAL_TIMESTAMP) == (-1, 9, 3)
    assert log.offset_for_timestamp(LATEST_TIERED_TIMESTAMP) == (-1, -1, -1)


def test_offsets_before_a_time_as_the_first_version_asked() -> None:
    disk = Disk(segment_bytes=600)
    log = disk.open()
    while len(log.segments) < 4:
        append(log, b"a" * 100)
        disk.clock.advance_ms(10)
    base_offsets = log.segments.base_offsets
    end = log.log_end_offset
    assert log.offsets_before(LATEST_TIMESTAMP, 10) == [end, *reversed(base_offsets)]
    assert log.offsets_before(LATEST_TIMESTAMP, 2) == [end, base_offsets[-1]]
    assert log.offsets_before(EARLIEST_TIMESTAMP, 10) == [0]
    assert log.offsets_before(log.segments.all[1].modified_ms(), 10) == [base_offsets[1], 0]
    assert log.offsets_before(0, 10) == []


def test_the_high_watermark_stays_within_the_log() -> None:
    log = Disk().open()
    for _ in range(4):
        log.append_as_leader(batch(), leader_epoch=0)
    assert log.advance_high_watermark(3)
    assert not log.advance_high_watermark(2)
    assert log.high_watermark == 3
    assert log.update_high_watermark(99) == 4
    assert log.update_high_watermark(1) == 1
    log.advance_log_start_offset(1)
    assert log.update_high_watermark(0) == 1
