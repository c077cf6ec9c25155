"""What the cleaner keeps and what it removes, rule by rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.log.cleaner.cleaner import group_segments
from barnabas.log.cleaner.offset_map import ENTRY_BYTES
from barnabas.log.file_system import WRITE
from barnabas.model import NO_TIMESTAMP, Offset, TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.records.header import CorruptRecord
from barnabas.records.layout import CompressionType, TimestampType
from tests.log.compacted import CONFIG, DIRECTORY, CompactedLog, keys

COMPRESSIONS = list(CompressionType)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_last_record_of_each_key_stays_with_its_offset(compression: CompressionType) -> None:
    log = CompactedLog()
    log.append(*keys("a", "b", "c"), compression=compression)
    log.append(*keys("a", "b", "d"), compression=compression)
    log.append(*keys("a"), compression=compression)
    log.roll()
    log.append(*keys("a", "e"))
    before = {record.offset: record for record in log.records()}
    cleaned = log.clean()
    # The active segment, from offset 7 on, is not touched, and does not count.
    assert log.offsets() == [2, 4, 5, 6, 7, 8]
    assert [before[record.offset] for record in log.records()] == log.records()
    assert (cleaned.read_records, cleaned.written_records, cleaned.end_offset) == (7, 4, 7)
    assert cleaned.keys == 4
    assert [header.compression for header, _ in log.batches()][:3] == [compression] * 3
    # A batch keeps its offsets though its records go.
    assert [(header.base_offset, header.last_offset) for header, _ in log.batches()] == [
        (0, 2),
        (3, 5),
        (6, 6),
        (7, 8),
    ]
    log.check()
    log.reopen()
    log.check()


def test_clean_part_is_cleaned_again_with_the_keys_of_the_dirty_part() -> None:
    log = CompactedLog()
    log.append(*keys("a", "b"))
    log.roll()
    log.clean()
    log.append(*keys("b"))
    log.roll()
    assert log.clean().mapped_bytes < 200
    assert log.offsets() == [0, 2]
    log.check()


def test_record_without_key_goes() -> None:
    log = CompactedLog(replace(CONFIG, cleanup_policy=("delete",)))
    log.append((None, b"v"), (b"k", b"v"))
    log.roll()
    cleaned = log.clean()
    assert log.offsets() == [1]
    assert cleaned.records_without_key == 1


def test_tombstone_stays_until_its_horizon() -> None:
    log = CompactedLog()
    log.append(*keys("a", "b"))
    log.append((b"a", None))
    log.roll()
    log.append(*keys("c"))
    log.roll()
    log.clean()
    assert log.offsets() == [1, 2, 3]
    headers = {int(header.base_offset): header for header, _ in log.batches()}
    assert headers[2].has_delete_horizon
    assert headers[2].base_timestamp == log.clock.now_ms() + CONFIG.delete_retention_ms
    assert not headers[0].has_delete_horizon
    assert log.records()[1].timestamp == log.written[2].record.timestamp
    # An append lets a millisecond pass.
    log.clock.advance_ms(CONFIG.delete_retention_ms - 2)
    log.append(*keys("c"))
    log.roll()
    log.clean()
    # The horizon is set once.
    assert log.offsets() == [1, 2, 4]
    log.append(*keys("c"))
    log.roll()
    log.clean()
    assert log.offsets() == [1, 5]
    log.check()


def test_aborted_records_go_at_once_and_their_marker_later() -> None:
    log = CompactedLog()
    log.append(*keys("a"))
    log.append(*keys("a", "b"), producer_id=1, transactional=True)
    log.end_transaction(1, commits=False)
    log.append(*keys("c"), producer_id=1, transactional=True)
    log.end_transaction(1, commits=True)
    log.roll()
    log.append(*keys("z"))
    log.roll()
    log.clean()
    assert log.offsets() == [0, 4, 6]
    # The first cleaning has still seen the aborted batch, so its marker and its index entry stay.
    assert [header.base_offset for header, _ in log.batches()] == [0, 3, 4, 5, 6]
    assert len(log.log.segments.all[0].transaction_index.entries()) == 1
    log.check()
    for expected in ([0, 3, 4, 5, 7], [0, 4, 5, 8]):
        log.append(*keys("z"))
        log.roll()
        log.clean()
        assert [header.base_offset for header, _ in log.batches()] == expected
        log.check()
        log.clock.advance_ms(CONFIG.delete_retention_ms)
    assert not any(segment.transaction_index.exists for segment in log.log.segments.all)


def test_commit_marker_stays_as_long_as_records_of_its_transaction() -> None:
    log = CompactedLog()
    log.append(*keys("a"), producer_id=1, transactional=True)
    log.end_transaction(1, commits=True)
    # The producer goes on, so that its last batch is not this one.
    log.append(*keys("p"), producer_id=1)
    for _ in range(3):
        log.append(*keys("z"))
        log.roll()
        log.clean()
        log.clock.advance_ms(2 * CONFIG.delete_retention_ms)
        assert 1 in [header.base_offset for header, _ in log.batches()]
    log.append(*keys("a"))
    for _ in range(3):
        log.append(*keys("z"))
        log.roll()
        log.clean()
        log.clock.advance_ms(2 * CONFIG.delete_retention_ms)
    assert 1 not in [header.base_offset for header, _ in log.batches()]
    log.check()


def test_open_transaction_is_not_cleaned() -> None:
    log = CompactedLog()
    log.append(*keys("a"))
    log.append(*keys("a"), producer_id=1, transactional=True)
    log.roll()
    log.append(*keys("a"))
    log.roll()
    # The last stable offset lies in the first segment, so there is nothing to clean.
    assert log.clean().read_records == 0
    assert log.offsets() == [0, 1, 2]


def test_last_sequence_of_a_producer_survives_its_records() -> None:
    log = CompactedLog()
    log.append(*keys("a", "b"), producer_id=5)
    log.append(*keys("a", "b"))
    log.append(*keys("x"))
    log.roll()
    log.clean()
    header, records = log.batches()[0]
    assert (header.base_offset, header.last_offset, header.last_sequence, records) == (0, 1, 1, [])
    known = log.log.active_producers()
    for clean_shutdown in (True, False):
        if clean_shutdown:
            log.reopen()
        else:
            log.log.flush()
            for name in log.fs.list_dir(DIRECTORY):
                if name.endswith(".snapshot"):
                    log.fs.remove(f"{DIRECTORY}/{name}")
            log.kill()
        assert log.log.active_producers() == known
    log.append(*keys("c"), producer_id=5)
    assert log.log.active_producers()[0].last_sequence == 2
    log.check()


def test_last_offset_of_a_round_survives() -> None:
    log = CompactedLog()
    log.append(*keys("a"))
    log.append((b"a", None))
    log.roll()
    log.append(*keys("b"))
    log.roll()
    log.clean()
    log.clock.advance_ms(CONFIG.delete_retention_ms)
    log.append((b"b", None))
    log.roll()
    log.clean()
    log.clock.advance_ms(CONFIG.delete_retention_ms)
    log.append((b"c", None))
    log.roll()
    log.clean()
    log.clock.advance_ms(CONFIG.delete_retention_ms)
    # Cleaning the same part again removes the last tombstone, but not the end of the log.
    log.first_dirty_offset = 0
    log.clean()
    assert log.offsets() == []
    assert log.batches()[-1][0].next_offset == log.log.log_end_offset
    log.reopen()
    assert log.log.log_end_offset == 5


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP, CompressionType.LZ4])
def test_old_formats(magic: int, compression: CompressionType) -> None:
    version = "0.9.0" if magic == 0 else "0.10.2"
    log = CompactedLog(replace(CONFIG, message_format_version=version))
    for values in (("1", "2", "3"), ("2",), ("3",)):
        builder = BatchBuilder(
            magic=magic,
            compression=compression,
            timestamp_type=TimestampType.CREATE_TIME if magic else TimestampType.NO_TIMESTAMP_TYPE,
            base_offset=Offset(0),
        )
        for value in values:
            builder.append(TimestampMs(5) if magic else NO_TIMESTAMP, value.encode(), b"v")
        log.log.append_as_leader(bytearray(builder.build()), leader_epoch=0)
    log.log.update_high_watermark(log.log.log_end_offset)
    log.roll()
    before = {record.offset: record for record in log.records()}
    log.clean()
    assert log.offsets() == [0, 3, 4]
    assert [before[record.offset] for record in log.records()] == log.records()
    assert {header.magic for header, _ in log.batches()} == {magic}


def test_tombstones_of_old_formats_go_with_the_age_of_their_segment() -> None:
    # Segments so small that they are not put together, which would make the tombstone's as young as the others.
    log = CompactedLog(replace(CONFIG, message_format_version="0.10.2", segment_bytes=50))

    def append(key: bytes, value: bytes | None) -> None:
        builder = BatchBuilder(magic=1)
        builder.append(TimestampMs(5), key, value)
        log.log.append_as_leader(bytearray(builder.build()), leader_epoch=0)
        log.log.update_high_watermark(log.log.log_end_offset)

    append(b"k", None)
    for number, stays in enumerate((True, False)):
        log.clock.advance_ms(CONFIG.delete_retention_ms)
        append(b"%d" % number, b"v")
        log.roll()
        log.clean()
        assert (0 in log.offsets()) is stays


def test_small_segments_become_one() -> None:
    log = CompactedLog()
    for number in range(60):
        log.append(*keys(*(f"{number}-{index}" if index == 0 else "same" for index in range(20))))
    log.roll()
    assert len(log.log.segments) > 10
    log.clean()
    log.append(*keys("end"))
    log.roll()
    log.clean()
    sizes = [segment.size_bytes for segment in log.log.segments.all[:-1]]
    assert len(sizes) <= 3
    assert max(sizes) <= CONFIG.segment_bytes
    log.check()


def test_groups_are_bounded_by_bytes_index_and_reach() -> None:
    log = CompactedLog()
    for number in range(8):
        log.append(*keys(*(f"{number}-{index}" for index in range(20))))
        log.roll()
    segments = log.log.segments.all[:-1]
    size = segments[0].size_bytes
    bases = [segment.base_offset for segment in segments]

    def grouped(max_bytes: int, max_index_bytes: int = 1 << 20) -> list[list[int]]:
        groups = group_segments(segments, max_bytes, max_index_bytes, log.log.log_end_offset)
        return [[segment.base_offset for segment in group] for group in groups]

    assert grouped(1 << 20) == [bases]
    assert grouped(2 * size + 20) == [bases[index : index + 2] for index in range(0, 8, 2)]
    assert grouped(1) == [[base] for base in bases]
    # Each time index has one entry of 12 bytes.
    assert grouped(1 << 20, 36) == [bases[:3], bases[3:6], bases[6:]]
    assert group_segments(segments, 1 << 20, 1 << 20, (1 << 31) + 50)[-1][0].base_offset == bases[-1]
    assert group_segments([], 1, 1, 0) == []


def test_full_map_cleans_in_rounds() -> None:
    log = CompactedLog()
    memory_bytes = 1024 * ENTRY_BYTES
    for number in range(40):
        log.append(*keys(*(f"{number * 50 + index}" for index in range(50))))
    log.append(*keys(*(str(index) for index in range(50))))
    log.roll()
    first = log.clean(memory_bytes)
    assert first.end_offset < log.log.log_end_offset
    assert first.keys == int(1024 * 0.9)
    rounds = 1
    while log.first_dirty_offset < log.log.log_end_offset:
        before = log.first_dirty_offset
        log.clean(memory_bytes)
        assert log.first_dirty_offset > before
        rounds += 1
    assert rounds == 3
    assert log.offsets() == list(range(50, 2050))
    log.check()


def test_damaged_batch_leaves_the_log_alone() -> None:
    log = CompactedLog()
    log.append(*keys("a"))
    log.append(*keys("a"))
    log.roll()
    file = log.fs.open(f"{DIRECTORY}/00000000000000000000.log", WRITE)
    last = file.size_bytes() - 1
    file.pwrite(bytes([file.pread(1, last)[0] ^ 1]), last)
    with pytest.raises(CorruptRecord):
        log.clean()
    assert len(log.batches()) == 2
    assert not [name for name in log.fs.list_dir(DIRECTORY) if "cleaned" in name]


def test_modified_time_is_that_of_the_last_segment() -> None:
    log = CompactedLog()
    log.append(*keys("a"))
    log.roll()
    log.append(*keys("b"))
    log.roll()
    modified_ms = log.log.segments.all[1].modified_ms()
    log.clock.advance_ms(10_000)
    log.clean()
    assert log.log.segments.all[0].modified_ms() == modified_ms
