"""What a leader takes, what it refuses and with which of Kafka's errors, and what it makes of what it takes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import pytest

from barnabas.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from barnabas.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from barnabas.records.analyze import analyze_records
from barnabas.records.builder import BatchBuilder, encode_message, end_transaction_marker
from barnabas.records.header import COPIED_BYTES_MAX, iterate_headers, parse_header, verify_crc
from barnabas.records.layout import CompressionType, ControlRecordType, TimestampType
from barnabas.records.policy import AppendOrigin, AppendPolicy
from barnabas.records.reader import decode_batch, iterate_batches
from barnabas.records.record import Record
from barnabas.records.rejection import RejectedRecords, RejectedTimestamps
from barnabas.records.validate import ValidatedRecords, validate_records
from tests.records.test_malformed import with_crc

NOW_MS = 1_700_000_000_000
BASE_OFFSET = 1_000
LEADER_EPOCH = 7
HOUR_MS = 3_600_000

GZIP, LZ4, NONE, ZSTD = (
    CompressionType.GZIP,
    CompressionType.LZ4,
    CompressionType.NONE,
    CompressionType.ZSTD,
)
LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME


def build(
    *,
    magic: int = 2,
    compression: CompressionType = NONE,
    timestamps: Sequence[int] = (NOW_MS, NOW_MS + 5, NOW_MS + 2),
    keys: Sequence[bytes | None] = (b"a", b"b", b"c"),
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> bytes:
    builder = BatchBuilder(
        magic=magic,
        compression=compression,
        timestamp_type=timestamp_type,
        log_append_time=TimestampMs(NOW_MS),
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(0 if producer_id >= 0 else -1),
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    for timestamp, key in zip(timestamps, keys, strict=True):
        builder.append(TimestampMs(timestamp), key, b"value", headers)
    return builder.build()


def validate(
    data: bytes | bytearray | memoryview,
    policy: AppendPolicy | None = None,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> ValidatedRecords:
    result = validate_records(
        data,
        base_offset=Offset(BASE_OFFSET),
        now_ms=NOW_MS,
        leader_epoch=LeaderEpoch(LEADER_EPOCH),
        policy=policy or AppendPolicy(),
        origin=origin,
    )
    _check_agreement(result)
    return result


def _check_agreement(result: ValidatedRecords) -> None:
    """Whatever the path, the headers tell what the bytes hold, and every checksum fits."""
    position = 0
    data = written_of(result)
    for ours, parsed in zip(result.headers, iterate_headers(data), strict=True):
        verify_crc(data, position, parsed)
        assert repr(ours) == repr(parsed)
        assert (ours.crc, ours.max_timestamp, ours.base_timestamp) == (
            parsed.crc,
            parsed.max_timestamp,
            parsed.base_timestamp,
        )
        assert ours.partition_leader_epoch == (LEADER_EPOCH if ours.magic == 2 else -1)
        position += parsed.size_bytes
    assert position == len(result.data)
    offsets = [record.offset for record in records_of(result)]
    assert offsets == list(range(result.first_offset, result.last_offset + 1))


def written_of(result: ValidatedRecords) -> bytes:
    return result.head + bytes(result.data[len(result.head) :])


def records_of(result: ValidatedRecords) -> list[Record]:
    return [record for _, records in iterate_batches(written_of(result)) for record in records]


@pytest.mark.parametrize(
    "policy", [AppendPolicy(), AppendPolicy(validate_fully=True)], ids=["opaque", "full"]
)
@pytest.mark.parametrize("compression", CompressionType)
def test_a_batch_gets_offsets_and_epoch_in_place(policy: AppendPolicy, compression: CompressionType) -> None:
    original = build(compression=compression, producer_id=5, base_sequence=12, headers=(("h", b"x"),))
    data = bytearray(original)
    result = validate(data, policy)
    assert result.data is data
    assert (result.first_offset, result.last_offset) == (BASE_OFFSET, BASE_OFFSET + 2)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW_MS + 5, BASE_OFFSET + 2)
    assert (result.log_append_time, result.converted_count) == (-1, 0)
    # Beyond offset, length and epoch nothing changes.
    assert data[:16] == struct.pack(">qii", BASE_OFFSET, len(data) - 12, LEADER_EPOCH)
    assert data[16:] == original[16:]


def test_a_large_batch_that_cannot_be_written_to_gets_its_head_beside_it() -> None:
    original = build(headers=(("h", bytes(COPIED_BYTES_MAX)),))
    for data in (original, memoryview(original)):
        result = validate(data)
        assert result.data is data
        assert result.head == struct.pack(">qii", BASE_OFFSET, len(data) - 12, LEADER_EPOCH)
    assert original == build(headers=(("h", bytes(COPIED_BYTES_MAX)),))
    stamped = validate(original, AppendPolicy(timestamp_type=LOG_APPEND_TIME))
    assert stamped.head == b""
    assert {record.timestamp for record in records_of(stamped)} == {NOW_MS}


def test_bytes_that_cannot_be_written_to_are_copied_once() -> None:
    original = build()
    for data in (original, memoryview(original)):
        result = validate(data)
        assert bytes(result.data[8:12]) == original[8:12]
        assert original == build()
    # A small view is copied, too: that costs less than to read from it. A large one is changed in place.
    for large, expected in ((False, 0), (True, BASE_OFFSET)):
        batch = build(headers=(("h", bytes(COPIED_BYTES_MAX)),)) if large else original
        frame = bytearray(b"head" + batch + b"tail")
        with memoryview(frame) as view, view[4:-4] as records:
            result = validate(records)
            assert (result.data is records) == large
            assert result.data[16:] == batch[16:]
        assert struct.unpack_from(">q", frame, 4) == (expected,)


@pytest.mark.parametrize("compression", CompressionType)
def test_log_append_time_is_stamped_on_a_batch(compression: CompressionType) -> None:
    result = validate(build(compression=compression), AppendPolicy(timestamp_type=LOG_APPEND_TIME))
    assert result.headers[0].timestamp_type is LOG_APPEND_TIME
    assert result.log_append_time == result.max_timestamp == NOW_MS
    assert result.offset_of_max_timestamp == BASE_OFFSET + 2
    assert {record.timestamp for record in records_of(result)} == {NOW_MS}
    assert result.converted_count == 0


def test_a_batch_without_timestamps() -> None:
    result = validate(build(timestamps=(-1,), keys=(b"k",)), AppendPolicy(timestamp_before_max_ms=0))
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (-1, -1)


def test_a_header_that_understates_its_timestamps_is_corrected_when_records_are_read() -> None:
    data = bytearray(build())
    struct.pack_into(">q", data, 35, NOW_MS - 99)
    lying = with_crc(bytes(data))
    assert validate(lying).max_timestamp == NOW_MS - 99
    result = validate(lying, AppendPolicy(validate_fully=True))
    assert result.max_timestamp == result.headers[0].max_timestamp == NOW_MS + 5


@pytest.mark.parametrize(
    ("position", "layout", "number", "what"),
    [
        (0, ">q", 1, "base offset of a new batch must be 0, not 1"),
        (23, ">i", 3, "3 records whose last offset delta is 3"),
        (23, ">i", -1, "3 records whose last offset delta is -1"),
        (57, ">i", 2, "2 records whose last offset delta is 2"),
        (57, ">i", 0, "0 records"),
        (57, ">i", -3, "-3 records"),
        (21, ">h", 0x20, "control"),
        (43, ">q", 9, "producer 9 has the sequence number -1"),
    ],
)
def test_headers_that_a_client_may_not_write(position: int, layout: str, number: int, what: str) -> None:
    data = bytearray(build())
    struct.pack_into(layout, data, position, number)
    before = with_crc(bytes(data))
    refused = bytearray(before)
    with pytest.raises(InvalidRecord, match=what):
        validate(refused)
    assert refused == before, "what is refused is left as it was"


def test_a_wrong_checksum_length_magic_or_size() -> None:
    data = build()
    with pytest.raises(CorruptMessage, match="checksum"):
        validate(data[:-1] + b"?")
    for length in (-5, 13, 48):
        with pytest.raises(CorruptMessage, match=f"size {length + 12} of the batch at position 0"):
            validate(data[:8] + struct.pack(">i", length) + data[12:])
    with pytest.raises(CorruptMessage, match="magic 9"):
        validate(data[:16] + b"\x09" + data[17:])
    with pytest.raises(MessageTooLarge, match=f"{len(data)} bytes exceeds the {len(data) - 1}"):
        validate(data, AppendPolicy(max_message_bytes=len(data) - 1))
    assert validate(data, AppendPolicy(max_message_bytes=len(data))).converted_count == 0


@pytest.mark.parametrize("size", [0, 5, 16, 17, 60, 61])
def test_no_whole_batch(size: int) -> None:
    with pytest.raises(InvalidRecord, match=f"no whole batch among {size} bytes"):
        validate(build()[:size])


def test_what_follows_the_batch_in_part_is_dropped() -> None:
    whole = build()
    for cut in (1, 12, 20, len(whole) - 1):
        result = validate(whole + whole[:cut])
        assert len(result.data) == len(whole)


def test_only_one_batch_of_v2_or_one_wrapper() -> None:
    for data in (build(), build(magic=1, compression=GZIP), build(compression=LZ4)):
        with pytest.raises(InvalidRecord, match="2 batches"):
            validate(data + data)
    with pytest.raises(InvalidRecord, match="2 batches"):
        validate(build() + build(magic=1, timestamps=(NOW_MS,), keys=(None,)))
    with pytest.raises(InvalidRecord, match="magic 0 follows one of magic 1"):
        validate(
            build(magic=1, timestamps=(NOW_MS,), keys=(None,))
            + build(magic=0, timestamps=(NOW_MS,), keys=(None,))
        )


@pytest.mark.parametrize("compression", [NONE, GZIP, ZSTD])
def test_a_compacted_topic_needs_keys(compression: CompressionType) -> None:
    data = build(compression=compression, keys=(b"a", None, b"c"))
    assert validate(data).last_offset == BASE_OFFSET + 2
    with pytest.raises(RejectedRecords, match="message without key") as caught:
        validate(data, AppendPolicy(is_compacted=True))
    assert [error.batch_index for error in caught.value.record_errors] == [1]
    assert caught.value.name == "INVALID_RECORD"
    assert validate(build(compression=compression), AppendPolicy(is_compacted=True)).converted_count == 0


@pytest.mark.parametrize("fully", [False, True])
@pytest.mark.parametrize("magic", [1, 2])
def test_timestamps_out_of_bounds(fully: bool, magic: int) -> None:
    policy = AppendPolicy(
        timestamp_before_max_ms=HOUR_MS, timestamp_after_max_ms=1_000, validate_fully=fully, magic=magic
    )
    accepted = (NOW_MS - HOUR_MS, NOW_MS + 1_000, -1)
    assert validate(build(magic=magic, timestamps=accepted), policy).max_timestamp == NOW_MS + 1_000
    for timestamps, indexes in (
        ((NOW_MS, NOW_MS + 1_001, NOW_MS), [1]),
        ((NOW_MS - HOUR_MS - 1, NOW_MS, NOW_MS), [0]),
        ((NOW_MS - HOUR_MS - 1, NOW_MS, 2**63 - 1), [0, 2]),
    ):
        for compression in (NONE, GZIP):
            data = build(magic=magic, timestamps=timestamps, compression=compression)
            with pytest.raises(InvalidTimestamp) as caught:
                validate(data, policy)
            assert isinstance(caught.value, RejectedTimestamps)
            if compression is GZIP or magic == 2:
                assert [error.batch_index for error in caught.value.record_errors] == indexes
            stamped = AppendPolicy(
                timestamp_before_max_ms=0,
                timestamp_after_max_ms=0,
                timestamp_type=LOG_APPEND_TIME,
                magic=magic,
            )
            assert validate(data, stamped).max_timestamp == NOW_MS


def test_a_fault_of_timestamp_outweighs_a_missing_key() -> None:
    data = build(timestamps=(NOW_MS, NOW_MS + 10), keys=(None, b"b"))
    with pytest.raises(
        RejectedTimestamps, match=r"invalid timestamp: \[RecordError\(batchIndex=0, message='Compacted topic"
    ) as caught:
        validate(data, AppendPolicy(is_compacted=True, timestamp_after_max_ms=0))
    assert [error.batch_index for error in caught.value.record_errors] == [0, 1]


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("compression", [NONE, GZIP])
def test_only_a_broker_sets_log_append_time(magic: int, compression: CompressionType) -> None:
    data = build(magic=magic, compression=compression, timestamp_type=LOG_APPEND_TIME)
    with pytest.raises(InvalidTimestamp, match="LogAppendTime"):
        validate(data, AppendPolicy(timestamp_type=LOG_APPEND_TIME, magic=magic))
    # With CreateTime Kafka takes such records for what their times say, and clears the mark.
    result = validate(data, AppendPolicy(magic=magic))
    assert {header.timestamp_type for header in result.headers} == {TimestampType.CREATE_TIME}


def test_markers_of_a_coordinator_stay_as_they_are() -> None:
    marker = end_transaction_marker(
        control_type=ControlRecordType.ABORT,
        timestamp=TimestampMs(NOW_MS),
        producer_id=ProducerId(3),
        producer_epoch=ProducerEpoch(1),
        coordinator_epoch=9,
    )
    result = validate(marker, AppendPolicy(compression=ZSTD), origin=AppendOrigin.COORDINATOR)
    assert result.headers[0].is_control
    assert not result.headers[0].is_compressed
    with pytest.raises(InvalidRecord, match="control"):
        validate(marker)


@pytest.mark.parametrize("source", CompressionType)
@pytest.mark.parametrize("target", CompressionType)
def test_records_are_compressed_as_the_topic_asks(source: CompressionType, target: CompressionType) -> None:
    data = build(
        compression=source, producer_id=5, base_sequence=3, is_transactional=True, headers=(("h", None),)
    )
    result = validate(data, AppendPolicy(compression=target))
    (header,) = result.headers
    assert header.compression is target
    assert (header.producer_id, header.base_sequence, header.is_transactional) == (5, 3, True)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW_MS + 5, BASE_OFFSET + 2)
    assert result.converted_count == (0 if source is target else 3)
    for before, after in zip(decode_batch(data), records_of(result), strict=True):
        assert (after.timestamp, after.key, after.value, after.headers, after.sequence) == (
            before.timestamp,
            before.key,
            before.value,
            before.headers,
            before.sequence,
        )


def test_a_batch_that_grows_beyond_the_bound_is_refused() -> None:
    data = build(compression=GZIP, timestamps=[NOW_MS] * 200, keys=[b"k" * 50] * 200)
    policy = AppendPolicy(compression=NONE, max_message_bytes=len(data))
    with pytest.raises(MessageTooLarge, match="after its conversion"):
        validate(data, policy)


@pytest.mark.parametrize("from_magic", [0, 1, 2])
@pytest.mark.parametrize("to_magic", [0, 1, 2])
@pytest.mark.parametrize("source", [NONE, GZIP, LZ4])
@pytest.mark.parametrize("target", [NONE, GZIP])
@pytest.mark.parametrize("timestamp_type", [TimestampType.CREATE_TIME, LOG_APPEND_TIME])
def test_every_format_becomes_every_other(
    from_magic: int,
    to_magic: int,
    source: CompressionType,
    target: CompressionType,
    timestamp_type: TimestampType,
) -> None:
    data = build(magic=from_magic, compression=source)
    policy = AppendPolicy(magic=to_magic, compression=target, timestamp_type=timestamp_type)
    result = validate(data, policy)
    assert {header.magic for header in result.headers} == {to_magic}
    assert {header.compression for header in result.headers} == {target}
    assert len(result.headers) == (3 if to_magic < 2 and target is NONE else 1)
    assert [(record.key, record.value) for record in records_of(result)] == [
        (b"a", b"value"),
        (b"b", b"value"),
        (b"c", b"value"),
    ]
    stamped = timestamp_type is LOG_APPEND_TIME
    if to_magic == 0:
        expected = [-1, -1, -1]
    elif stamped:
        expected = [NOW_MS] * 3
    elif from_magic == 0:
        expected = [-1, -1, -1]
    else:
        expected = [NOW_MS, NOW_MS + 5, NOW_MS + 2]
    assert [record.timestamp for record in records_of(result)] == expected
    in_place = from_magic == to_magic and source is target and not (from_magic == 0 and target is not NONE)
    assert result.converted_count == (0 if in_place else 3)
    if to_magic > 0:
        assert result.max_timestamp == max(expected)
        last = BASE_OFFSET + 2
        if max(expected) == -1:
            assert result.offset_of_max_timestamp == -1
        elif to_magic == 2 or target is not NONE:
            assert result.offset_of_max_timestamp == last
        elif stamped:
            assert result.offset_of_max_timestamp == BASE_OFFSET
        else:
            assert result.offset_of_max_timestamp == BASE_OFFSET + 1


def test_what_old_formats_cannot_keep() -> None:
    old = AppendPolicy(magic=1)
    with pytest.raises(UnsupportedForMessageFormat, match="v1"):
        validate(build(producer_id=4, base_sequence=0), old)
    with pytest.raises(UnsupportedForMessageFormat, match="headers"):
        validate(build(headers=(("h", b"v"),)), old)
    with pytest.raises(UnsupportedCompressionType, match="zstd"):
        validate(build(compression=ZSTD), old)


def test_wrappers_of_v1_keep_their_bytes_but_for_offset_and_time() -> None:
    original = build(magic=1, compression=GZIP)
    data = bytearray(original)
    result = validate(data, AppendPolicy(magic=1))
    assert result.data is data
    assert data[8:] == original[8:]
    assert struct.unpack_from(">q", data) == (BASE_OFFSET + 2,)
    assert result.headers[0].last_offset == BASE_OFFSET + 2
    stamped = validate(bytearray(original), AppendPolicy(magic=1, timestamp_type=LOG_APPEND_TIME))
    assert stamped.max_timestamp == stamped.headers[0].max_timestamp == NOW_MS
    assert stamped.data[30:] == original[30:]


@pytest.mark.parametrize("offsets", [(5, 6, 7), (0, 0, 0), (0, 2, 1)])
def test_messages_that_an_old_client_numbered_wrongly_are_numbered_anew(offsets: tuple[int, ...]) -> None:
    inner = b"".join(
        encode_message(1, Offset(offset), TimestampMs(NOW_MS + index), b"k", b"%d" % index)
        for index, offset in enumerate(offsets)
    )
    wrapper = encode_message(
        1, Offset(0), TimestampMs(NOW_MS), None, zlib.compress(inner, wbits=31), attributes=int(GZIP)
    )
    result = validate(wrapper, AppendPolicy(magic=1))
    assert result.converted_count == 3
    assert [record.value for record in records_of(result)] == [b"0", b"1", b"2"]


def test_messages_within_a_wrapper_are_checked_one_by_one() -> None:
    def wrapper(inner: bytes) -> bytes:
        value = zlib.compress(inner, wbits=31)
        return encode_message(1, Offset(0), TimestampMs(NOW_MS), None, value, attributes=int(GZIP))

    good = encode_message(1, Offset(0), TimestampMs(NOW_MS), b"k", b"v")
    with pytest.raises(CorruptMessage, match="checksum"):
        validate(wrapper(good[:-1] + b"?"))
    old = encode_message(0, Offset(1), TimestampMs(-1), b"k", b"v")
    with pytest.raises(RejectedRecords, match="magic 0 differs") as caught:
        validate(wrapper(good + old))
    assert [error.batch_index for error in caught.value.record_errors] == [1]
    with pytest.raises(RejectedRecords, match="compressed within"):
        validate(wrapper(wrapper(good)))


def test_malformed_records_are_noticed_where_records_are_read() -> None:
    data = bytearray(build())
    data[61] ^= 0x40
    broken = with_crc(bytes(data))
    assert validate_records(
        broken,
        base_offset=Offset(0),
        now_ms=NOW_MS,
        leader_epoch=LeaderEpoch(0),
        policy=AppendPolicy(),
    ).headers
    for policy in (
        AppendPolicy(validate_fully=True),
        AppendPolicy(is_compacted=True),
        AppendPolicy(compression=GZIP),
    ):
        with pytest.raises(InvalidRecord):
            validate(broken, policy)


def test_a_follower_takes_offsets_as_they_come() -> None:
    first = validate(build()).data
    second = bytearray(build(timestamps=(NOW_MS + 9,), keys=(None,), compression=LZ4))
    struct.pack_into(">qii", second, 0, 5_000, len(second) - 12, 8)
    third = build(magic=1, timestamps=(3,), keys=(None,))
    analyzed = analyze_records(bytes(first) + bytes(second) + third[:-1])
    assert analyzed.valid_bytes == len(first) + len(second)
    assert [header.base_offset for header in analyzed.headers] == [BASE_OFFSET, 5_000]
    assert (analyzed.first_offset, analyzed.last_offset) == (BASE_OFFSET, 5_000)
    assert analyzed.last_offset_of_first_batch == BASE_OFFSET + 2
    assert analyzed.last_leader_epoch == 8
    assert (analyzed.max_timestamp, analyzed.offset_of_max_timestamp) == (NOW_MS + 9, 5_000)
    assert analyzed.offsets_increase
    assert analyzed.source_compression is LZ4
    assert not analyze_records(bytes(second) + bytes(first)).offsets_increase
    old = analyze_records(third)
    assert (old.first_offset, old.last_offset_of_first_batch, old.last_leader_epoch) == (-1, 0, -1)
    with pytest.raises(KafkaError):
        analyze_records(bytes(first)[:-1] + b"?")
    with pytest.raises(MessageTooLarge):
        analyze_records(first, max_message_bytes=61)
    assert analyze_records(b"").valid_bytes == 0
    assert parse_header(first).base_offset == BASE_OFFSET
