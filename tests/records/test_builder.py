from __future__ import annotations

import pytest

from barnabas.errors import InvalidRecord
from barnabas.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from barnabas.records.builder import BatchBuilder, build_empty_batch, end_transaction_marker
from barnabas.records.control import EndTxnMarker, control_key, control_record_type, parse_end_txn_marker
from barnabas.records.header import BatchHeader, parse_header, verify_crc
from barnabas.records.layout import CompressionType, ControlRecordType
from barnabas.records.reader import decode_batch
from barnabas.records.record import Record


def test_no_records_give_no_bytes() -> None:
    for magic in (0, 1, 2):
        assert BatchBuilder(magic=magic, compression=CompressionType.GZIP).build() == b""


def test_a_last_offset_beyond_the_last_record() -> None:
    builder = BatchBuilder(base_offset=Offset(5))
    builder.append(TimestampMs(1), None, None)
    header = parse_header(builder.build(last_offset=Offset(9)))
    assert (header.last_offset, header.record_count) == (9, 1)


def test_offsets_increase_and_stay_near_the_first() -> None:
    builder = BatchBuilder(base_offset=Offset(5))
    with pytest.raises(InvalidRecord, match="offset 4 cannot follow"):
        builder.append_with_offset(Offset(4), TimestampMs(1), None, None)
    builder.append_with_offset(Offset(7), TimestampMs(1), None, None)
    with pytest.raises(InvalidRecord, match="offset 7 cannot follow 7"):
        builder.append_with_offset(Offset(7), TimestampMs(1), None, None)
    with pytest.raises(InvalidRecord, match="begins at 5"):
        builder.append_with_offset(Offset(5 + 2**31), TimestampMs(1), None, None)
    with pytest.raises(InvalidRecord, match=f"offset {-(2**63)} cannot follow"):
        BatchBuilder(base_offset=Offset(2**63 - 1)).append_with_offset(
            Offset(-(2**63)), TimestampMs(1), None, None
        )
    builder.append_with_offset(Offset(4 + 2**31), TimestampMs(1), None, None)
    assert parse_header(builder.build()).last_offset_delta == 2**31 - 1


def test_sequences_begin_again_after_the_largest() -> None:
    builder = BatchBuilder(
        producer_id=ProducerId(1), producer_epoch=ProducerEpoch(0), base_sequence=2**31 - 2
    )
    for _ in range(4):
        builder.append(TimestampMs(1), None, None)
    data = builder.build()
    assert parse_header(data).last_sequence == 1
    assert [record.sequence for record in decode_batch(data)] == [2**31 - 2, 2**31 - 1, 0, 1]


def test_timestamps_as_far_apart_as_they_can_be() -> None:
    builder = BatchBuilder()
    timestamps = [-1, 2**63 - 1, 0, -(2**63), 2**62]
    for timestamp in timestamps:
        builder.append(TimestampMs(timestamp), None, None)
    assert [record.timestamp for record in decode_batch(builder.build())] == timestamps


def test_an_emptied_batch_keeps_offsets_and_sequence() -> None:
    builder = BatchBuilder(
        base_offset=Offset(100),
        compression=CompressionType.LZ4,
        producer_id=ProducerId(8),
        producer_epoch=ProducerEpoch(2),
        base_sequence=40,
        is_transactional=True,
        partition_leader_epoch=LeaderEpoch(3),
    )
    for timestamp in (5, 9, 7):
        builder.append(TimestampMs(timestamp), b"k", b"v")
    full = parse_header(builder.build())
    data = build_empty_batch(full)
    empty = parse_header(data)
    verify_crc(data, 0, empty)
    assert len(data) == empty.size_bytes == 61
    assert decode_batch(data) == []
    assert not empty.is_compressed
    assert empty.is_transactional
    for name in (
        "base_offset",
        "last_offset",
        "last_sequence",
        "producer_id",
        "producer_epoch",
        "partition_leader_epoch",
        "max_timestamp",
    ):
        assert getattr(empty, name) == getattr(full, name)


@pytest.mark.parametrize("control_type", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_markers(control_type: ControlRecordType) -> None:
    data = end_transaction_marker(
        control_type=control_type,
        timestamp=TimestampMs(77),
        producer_id=ProducerId(12),
        producer_epoch=ProducerEpoch(4),
        coordinator_epoch=31,
        base_offset=Offset(55),
        partition_leader_epoch=LeaderEpoch(6),
    )
    header = parse_header(data)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (12, 4, -1)
    assert (header.base_offset, header.partition_leader_epoch, header.record_count) == (55, 6, 1)
    (record,) = decode_batch(data)
    assert record.timestamp == 77
    assert parse_end_txn_marker(record) == EndTxnMarker(control_type=control_type, coordinator_epoch=31)


def test_control_records_of_other_kinds() -> None:
    for control_type in ControlRecordType:
        if control_type is ControlRecordType.UNKNOWN:
            continue
        key = control_key(control_type)
        assert control_record_type(key) is control_type
        assert control_record_type(key + b"of a later version") is control_type
    assert control_record_type(b"\x00\x00\x00\x63") is ControlRecordType.UNKNOWN
    leader_change = Record(Offset(0), TimestampMs(0), control_key(ControlRecordType.LEADER_CHANGE), b"")
    assert parse_end_txn_marker(leader_change) is None
    for bad_key in (None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"):
        with pytest.raises(InvalidRecord):
            control_record_type(bad_key)
    commit = control_key(ControlRecordType.COMMIT)
    for value in (None, b"", b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"):
        with pytest.raises(InvalidRecord):
            parse_end_txn_marker(Record(Offset(0), TimestampMs(0), commit, value))


def test_headers_and_records_say_what_they_are() -> None:
    builder = BatchBuilder(base_offset=Offset(3))
    builder.append(TimestampMs(1), b"k", None, (("h", b"x"),))
    data = builder.build()
    header = parse_header(data)
    assert isinstance(header, BatchHeader)
    assert "offsets 3 to 3" in repr(header)
    (record,) = decode_batch(data)
    assert "offset=3" in repr(record)
    assert record == Record(Offset(3), TimestampMs(1), b"k", None, (("h", b"x"),))
    assert record != Record(Offset(3), TimestampMs(1), b"k", b"", (("h", b"x"),))
    assert record != "a record"
    assert len({record, decode_batch(data)[0]}) == 1
