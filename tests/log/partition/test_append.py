from __future__ import annotations

import errno

import pytest

from barnabas.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from barnabas.log.file_system import StorageFailure
from barnabas.log.partition.append import OffsetsOutOfOrder, UnexpectedAppendOffset
from barnabas.log.partition.read import Isolation
from barnabas.log.producers.state import ProducerSettings
from barnabas.primitives.crc32c import crc32c
from barnabas.records.header import parse_header
from barnabas.records.layout import CompressionType
from tests.log.partitions import NOW_MS, Disk, all_offsets, append, batch, end_transaction, offsets_in


def with_field(data: bytes, position: int, value: bytes) -> bytes:
    """A batch of v2 with other bytes at a place, and the checksum to match."""
    changed = bytearray(data)
    changed[position : position + len(value)] = value
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def test_a_leader_gives_offsets_and_epoch() -> None:
    log = Disk().open()
    info = log.append_as_leader(batch(b"a", b"b", b"c"), leader_epoch=7)
    assert (info.first_offset, info.last_offset, info.max_timestamp) == (0, 2, NOW_MS)
    assert (info.log_append_time, info.is_duplicate, info.log_start_offset) == (-1, False, 0)
    info = log.append_as_leader(batch(b"d"), leader_epoch=7)
    assert (info.first_offset, info.last_offset) == (3, 3)
    assert log.log_end_offset == 4
    assert log.high_watermark == 0
    records = log.read(0, 1 << 20, Isolation.LOG_END).records
    assert records is not None
    assert records.read() == batch(b"a", b"b", b"c", epoch=7) + batch(b"d", offset=3, epoch=7)
    assert log.leader_epochs == [(7, 0)]


def test_the_log_may_set_the_time() -> None:
    disk = Disk(message_timestamp_type="LogAppendTime")
    log = disk.open()
    disk.clock.advance_ms(5)
    info = log.append_as_leader(batch(b"a"), leader_epoch=0)
    assert info.log_append_time == info.max_timestamp == NOW_MS + 5
    found = log.offset_for_timestamp(NOW_MS + 1)
    assert found is not None
    assert (found.offset, found.timestamp) == (0, NOW_MS + 5)


def test_another_compression_is_the_topics_choice() -> None:
    log = Disk(compression_type="gzip").open()
    info = append(log, b"x" * 1000, compression=CompressionType.LZ4)
    assert info.converted_count == 1
    records = log.read(0, 1 << 20).records
    assert records is not None
    assert parse_header(records.read()).compression is CompressionType.GZIP


GOOD = batch(b"value", b"value")
FAULTS: dict[str, tuple[bytes, type[KafkaError]]] = {
    "checksum": (GOOD[:-1] + b"x", CorruptMessage),
    "magic": (GOOD[:16] + b"\x03" + GOOD[17:], CorruptMessage),
    "length": (GOOD[:8] + b"\0\0\0\1" + GOOD[12:], CorruptMessage),
    "cut": (GOOD[:-1], InvalidRecord),
    "nothing": (b"", InvalidRecord),
    "count": (with_field(GOOD, 57, (3).to_bytes(4, "big")), InvalidRecord),
    "no records": (with_field(GOOD, 57, (0).to_bytes(4, "big")), InvalidRecord),
    "base offset": (batch(offset=1), InvalidRecord),
    "two batches": (GOOD + GOOD, InvalidRecord),
    "control batch": (with_field(GOOD, 21, (0x20).to_bytes(2, "big")), InvalidRecord),
    "unknown compression": (with_field(GOOD, 21, (5).to_bytes(2, "big")), UnsupportedCompressionType),
    "no sequence": (batch(producer_id=1, sequence=-1), InvalidRecord),
    "gap in sequences": (batch(producer_id=9, producer_epoch=1, sequence=5), OutOfOrderSequenceNumber),
    "old producer": (batch(producer_id=9, producer_epoch=0, sequence=0), InvalidProducerEpoch),
    "outside the transaction": (batch(producer_id=8, sequence=1), InvalidTxnState),
    "too old": (batch(timestamp=NOW_MS - 1001), InvalidTimestamp),
    "from the future": (batch(timestamp=NOW_MS + 1001), InvalidTimestamp),
    "too large": (batch(b"x" * 2000), MessageTooLarge),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_leader_refuses_leaves_the_log_unchanged(fault: str) -> None:
    disk = Disk(
        message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000, max_message_bytes=1500
    )
    log = disk.open()
    append(log, b"a", producer_id=9, producer_epoch=1, sequence=0)
    append(log, b"b", producer_id=8, sequence=0, transactional=True)
    before = disk.content()
    producers = log.active_producers()
    data, error = FAULTS[fault]
    with pytest.raises(error):
        log.append_as_leader(data, leader_epoch=0)
    assert disk.content() == before
    assert log.active_producers() == producers
    assert log.log_end_offset == 2
    assert log.append_as_leader(batch(b"c"), leader_epoch=0).first_offset == 2
    assert all_offsets(log) == [0, 1, 2]


def test_a_compacted_topic_needs_keys() -> None:
    log = Disk(cleanup_policy=("compact",)).open()
    with pytest.raises(InvalidRecord, match="key"):
        log.append_as_leader(batch(b"a", key=None), leader_epoch=0)
    append(log, b"a")
    assert log.log_end_offset == 1


def test_records_must_fit_into_a_segment() -> None:
    log = Disk(segment_bytes=500).open()
    with pytest.raises(RecordListTooLarge):
        log.append_as_leader(batch(b"x" * 500), leader_epoch=0)
    with pytest.raises(RecordListTooLarge):
        log.append_as_follower(batch(b"x" * 200) + batch(b"x" * 200, offset=1))
    assert log.log_end_offset == 0


def test_a_batch_that_is_sent_again_is_answered_as_before() -> None:
    log = Disk().open()
    for sequence in range(0, 12, 2):
        append(log, b"a", b"b", producer_id=1, sequence=sequence)
    assert log.log_end_offset == 12
    for sequence in range(2, 12, 2):
        info = append(log, b"a", b"b", producer_id=1, sequence=sequence)
        assert info.is_duplicate
        assert (info.first_offset, info.last_offset) == (sequence, sequence + 1)
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, b"a", b"b", producer_id=1, sequence=0)
    assert log.log_end_offset == 12


def test_a_follower_takes_what_the_leader_has() -> None:
    log = Disk().open()
    first, second = batch(b"a", b"b", epoch=3), batch(b"c", offset=2, epoch=4)
    info = log.append_as_follower(first + second + batch(b"d", offset=3)[:-1])
    assert (info.first_offset, info.last_offset) == (0, 2)
    assert log.leader_epochs == [(3, 0), (4, 2)]
    records = log.read(0, 1 << 20, Isolation.LOG_END).records
    assert records is not None
    assert records.read() == first + second
    assert log.append_as_follower(b"").last_offset == -1


def test_a_follower_takes_gaps_but_no_repetition() -> None:
    log = Disk().open()
    log.append_as_follower(batch(b"a", offset=5))
    log.append_as_follower(batch(b"b", offset=10))
    assert log.log_end_offset == 11
    with pytest.raises(UnexpectedAppendOffset) as error:
        log.append_as_follower(batch(b"c", offset=10))
    assert (error.value.first_offset, error.value.last_offset) == (10, 10)
    with pytest.raises(OffsetsOutOfOrder):
        log.append_as_follower(batch(b"c", offset=20) + batch(b"d", offset=20))
    with pytest.raises(CorruptMessage):
        log.append_as_follower(batch(b"c", offset=11)[:-1] + b"x")
    assert all_offsets(log) == [5, 10]


def test_old_formats_have_no_epochs() -> None:
    log = Disk(message_format_version="0.10.0").open()
    log.assign_epoch_start(1)
    info = append(log, b"a", b"b", magic=1)
    assert (info.first_offset, info.last_offset) == (0, 1)
    assert log.leader_epochs == []
    follower = Disk().open()
    records = log.read(0, 1 << 20).records
    assert records is not None
    assert follower.append_as_follower(records.read()).first_offset == -1
    assert follower.log_end_offset == 2


def test_a_marker_ends_a_transaction() -> None:
    log = Disk().open()
    append(log, b"a", producer_id=1, sequence=0, transactional=True)
    append(log, b"b", producer_id=2, sequence=0, transactional=True)
    assert log.last_stable_offset == 0
    end_transaction(log, 1)
    assert log.last_stable_offset == 1
    end_transaction(log, 2, abort=True)
    assert log.last_stable_offset == log.high_watermark == 4
    assert [
        (each.producer_id, each.first_offset, each.last_offset) for each in log.aborted_transactions(0, 4)
    ] == [(2, 1, 3)]


def test_the_last_stable_offset_waits_for_the_marker_to_be_replicated() -> None:
    log = Disk().open()
    log.append_as_leader(batch(producer_id=1, sequence=0, transactional=True), leader_epoch=0)
    log.advance_high_watermark(1)
    assert log.last_stable_offset == 0
    end_transaction(log, 1, replicated=False)
    assert log.log_end_offset == 2
    assert log.last_stable_offset == 0
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 2


def test_transactions_are_verified_where_that_is_asked() -> None:
    log = Disk().open(producer_settings=ProducerSettings(verifies_transactions=True))
    first = batch(producer_id=1, sequence=0, transactional=True)
    with pytest.raises(InvalidTxnState, match="coordinator"):
        log.append_as_leader(first, leader_epoch=0)
    guard = log.start_verification(1, 0, 0)
    with pytest.raises(InvalidTxnState):
        log.append_as_leader(first, leader_epoch=0, verification_guard=guard + 1)
    log.append_as_leader(first, leader_epoch=0, verification_guard=guard)
    log.append_as_leader(batch(producer_id=1, sequence=1, transactional=True), leader_epoch=0)
    end_transaction(log, 1)
    with pytest.raises(InvalidTxnState):
        log.append_as_leader(
            batch(producer_id=1, sequence=2, transactional=True), leader_epoch=0, verification_guard=guard
        )
    log.append_as_leader(batch(producer_id=1, sequence=2), leader_epoch=0)


def test_producers_are_described_and_forgotten() -> None:
    disk = Disk()
    log = disk.open(producer_settings=ProducerSettings(producer_id_expiration_ms=1000))
    append(log, b"a", producer_id=5, sequence=3)
    (producer,) = log.active_producers()
    assert (producer.producer_id, producer.last_sequence, producer.last_offset) == (5, 3, 0)
    assert producer.current_txn_start_offset == -1
    disk.clock.advance_ms(999)
    log.remove_expired_producers()
    assert log.active_producers()
    disk.clock.advance_ms(1)
    log.remove_expired_producers()
    assert not log.active_producers()
    append(log, b"b", producer_id=5, sequence=77)


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_failed_write_bars_the_log_and_changes_nothing_in_it(error_number: int) -> None:
    disk = Disk()
    failures: list[StorageFailure] = []
    log = disk.open(on_failure=failures.append)
    append(log, b"a", producer_id=1, sequence=0)
    fault = disk.fs.inject("/data", error_number, operations=("write",))
    with pytest.raises(StorageFailure):
        log.append_as_leader(batch(b"b", producer_id=1, sequence=1), leader_epoch=0)
    assert len(failures) == 1
    assert log.log_end_offset == 1
    assert log.failure
    with pytest.raises(KafkaStorageError, match="not in use"):
        log.append_as_leader(batch(b"c"), leader_epoch=0)
    with pytest.raises(KafkaStorageError):
        log.roll()
    assert len(failures) == 1
    log.close()
    disk.fs.faults.remove(fault)
    log = disk.open()
    assert all_offsets(log) == [0]
    assert not append(log, b"b", producer_id=1, sequence=1).is_duplicate


def test_a_failed_read_bars_the_log() -> None:
    disk = Disk()
    failures: list[StorageFailure] = []
    log = disk.open(on_failure=failures.append)
    append(log, b"a")
    disk.fs.inject("/data", errno.EIO, operations=("read",))
    with pytest.raises(StorageFailure):
        offsets_in(log.read(0, 100))
    assert len(failures) == 1


def test_a_failed_sync_in_the_background_bars_the_log() -> None:
    disk = Disk()
    failures: list[StorageFailure] = []
    log = disk.open(on_failure=failures.append, is_gapless=True)
    append(log, b"a")
    log.roll()
    disk.fs.inject("/data", errno.EIO, operations=("sync",))
    disk.scheduler.run()
    assert len(failures) == 1
    assert log.recovery_point == 0
    with pytest.raises(KafkaStorageError):
        append(log, b"b")
