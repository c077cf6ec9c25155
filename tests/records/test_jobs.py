"""Jobs for the worker process: what comes back is what would have been done here."""

from __future__ import annotations

import pytest

from barnabas.errors import KafkaError, MessageTooLarge
from barnabas.model import LeaderEpoch, Offset, TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.records.convert import down_convert
from barnabas.records.header import iterate_headers, verify_crc
from barnabas.records.jobs import (
    converted_records,
    down_convert_job,
    find_timestamp_job,
    found_timestamp,
    run_job,
    validate_job,
    validated_records,
)
from barnabas.records.layout import MAGIC_V0, MAGIC_V1, MAGIC_V2, CompressionType, TimestampType
from barnabas.records.policy import AppendPolicy
from barnabas.records.reader import decode_batch
from barnabas.records.rejection import RejectedRecords, RejectedTimestamps
from barnabas.records.validate import (
    BUILT_BRIEFLY_RECORDS,
    SCANNED_BRIEFLY_BYTES,
    RecordsTakeLong,
    validate_records,
)

NOW_MS = 1_700_000_000_000
EPOCH = LeaderEpoch(7)


def batch(
    count: int = 3,
    *,
    magic: int = MAGIC_V2,
    compression: CompressionType = CompressionType.NONE,
    size: int = 10,
) -> bytes:
    builder = BatchBuilder(magic=magic, compression=compression)
    for number in range(count):
        builder.append(TimestampMs(NOW_MS + number), b"key-%d" % number, bytes(size))
    return bytes(builder.build())


def decoded(data: bytes | bytearray | memoryview) -> list[tuple[int, int, bytes | None, bytes | None]]:
    records: list[tuple[int, int, bytes | None, bytes | None]] = []
    position = 0
    for header in iterate_headers(bytes(data)):
        verify_crc(data, position, header)
        records += [
            (each.offset, each.timestamp, each.key, each.value)
            for each in decode_batch(bytes(data), position, header=header)
        ]
        position += header.size_bytes
    return records


@pytest.mark.parametrize("target_magic", [MAGIC_V0, MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("target", [None, CompressionType.NONE, CompressionType.GZIP])
@pytest.mark.parametrize("magic", [MAGIC_V0, MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP])
@pytest.mark.parametrize("timestamp_type", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
def test_records_validated_elsewhere_are_those_validated_here(
    target_magic: int,
    target: CompressionType | None,
    magic: int,
    compression: CompressionType,
    timestamp_type: TimestampType,
) -> None:
    data = batch(magic=magic, compression=compression)
    policy = AppendPolicy(
        magic=target_magic, compression=target, timestamp_type=timestamp_type, is_compacted=True
    )
    here = validate_records(data, base_offset=Offset(500), now_ms=NOW_MS, leader_epoch=EPOCH, policy=policy)
    there = validated_records(run_job(validate_job(data, policy, 100, NOW_MS)))
    if not there.move_to(Offset(500), EPOCH):
        # Only these have offsets where they cannot be reached.
        assert (target_magic, any(header.is_compressed for header in there.headers)) == (MAGIC_V0, True)
        there = validated_records(run_job(validate_job(data, policy, 500, NOW_MS)))
        assert there.move_to(Offset(500), EPOCH)
    assert bytes(there.data) == bytes(here.data)
    for name in (
        "first_offset",
        "last_offset",
        "max_timestamp",
        "offset_of_max_timestamp",
        "log_append_time",
        "converted_count",
    ):
        assert getattr(there, name) == getattr(here, name), name
    assert [each.partition_leader_epoch for each in there.headers] == [
        each.partition_leader_epoch for each in here.headers
    ]
    assert decoded(there.data) == decoded(here.data)


def test_errors_come_back_with_their_records() -> None:
    builder = BatchBuilder()
    builder.append(TimestampMs(NOW_MS), None, b"value")
    with pytest.raises(RejectedRecords) as no_key:
        validated_records(
            run_job(validate_job(bytes(builder.build()), AppendPolicy(is_compacted=True), 0, NOW_MS))
        )
    assert [each.batch_index for each in no_key.value.record_errors] == [0]
    policy = AppendPolicy(timestamp_before_max_ms=10)
    with pytest.raises(RejectedTimestamps):
        validated_records(run_job(validate_job(batch(), policy, 0, NOW_MS + 1_000)))
    with pytest.raises(KafkaError):
        validated_records(run_job(validate_job(b"nonsense" * 10, AppendPolicy(), 0, NOW_MS)))


def test_a_batch_that_expands_too_far_is_too_large() -> None:
    data = batch(1, compression=CompressionType.GZIP, size=1_000_000)
    policy = AppendPolicy(is_compacted=True, max_decompressed_bytes=100_000)
    with pytest.raises(MessageTooLarge, match="expand"):
        validated_records(run_job(validate_job(data, policy, 0, NOW_MS)))


def test_batches_for_old_readers() -> None:
    data = batch(5, compression=CompressionType.GZIP)
    converted = converted_records(run_job(down_convert_job(data, MAGIC_V1, 0)))
    assert converted == down_convert(data, to_magic=MAGIC_V1, first_offset=Offset(0))


def test_batches_for_old_readers_come_in_parts() -> None:
    data = b"".join(batch(1, size=1_000) for _ in range(10))
    assert len(iterate_headers(down_convert(data, to_magic=MAGIC_V1, first_offset=Offset(0)).data)) == 10
    some = down_convert(data, to_magic=MAGIC_V1, first_offset=Offset(0), max_bytes=2_500)
    assert len(iterate_headers(some.data)) == 3
    one = down_convert(data, to_magic=MAGIC_V1, first_offset=Offset(0), max_bytes=1)
    assert len(iterate_headers(one.data)) == 1


def test_a_record_is_found_by_its_time() -> None:
    data = batch(5)
    assert found_timestamp(run_job(find_timestamp_job(data, NOW_MS + 3, 0, is_exact=False))) == (
        NOW_MS + 3,
        3,
    )
    assert found_timestamp(run_job(find_timestamp_job(data, NOW_MS, 4, is_exact=False))) == (NOW_MS + 4, 4)
    assert found_timestamp(run_job(find_timestamp_job(data, NOW_MS + 9, 0, is_exact=False))) is None
    assert found_timestamp(run_job(find_timestamp_job(data, NOW_MS - 1, 0, is_exact=True))) is None


@pytest.mark.parametrize(
    ("data", "policy"),
    [
        # Expanded or not, records that have to be looked at, or built anew, are many or large.
        (batch(1, compression=CompressionType.ZSTD, size=1 << 20), AppendPolicy(is_compacted=True)),
        (batch(1, compression=CompressionType.GZIP, size=1 << 20), AppendPolicy(is_compacted=True)),
        (batch(1, compression=CompressionType.LZ4, size=1 << 20), AppendPolicy(is_compacted=True)),
        (batch(1, compression=CompressionType.SNAPPY, size=1 << 20), AppendPolicy(is_compacted=True)),
        (batch(1, size=SCANNED_BRIEFLY_BYTES), AppendPolicy(is_compacted=True)),
        (batch(5_000, size=0), AppendPolicy(is_compacted=True)),
        (batch(1, size=64 * 1024), AppendPolicy(compression=CompressionType.GZIP)),
        (batch(BUILT_BRIEFLY_RECORDS + 1, size=0), AppendPolicy(compression=CompressionType.GZIP)),
        (batch(1, magic=MAGIC_V1, compression=CompressionType.GZIP, size=1 << 20), AppendPolicy()),
        # Many entries, of which each is small.
        (batch(2_000, magic=MAGIC_V1), AppendPolicy()),
        (batch(1) * 1_000, AppendPolicy()),
    ],
)
def test_what_takes_long_is_left_alone(data: bytes, policy: AppendPolicy) -> None:
    before = bytes(data)
    with pytest.raises(RecordsTakeLong):
        validate_records(
            data,
            base_offset=Offset(0),
            now_ms=NOW_MS,
            leader_epoch=EPOCH,
            policy=policy,
            only_briefly=True,
        )
    assert data == before


@pytest.mark.parametrize(
    ("data", "policy"),
    [
        (batch(100, compression=CompressionType.ZSTD, size=100), AppendPolicy(is_compacted=True)),
        (batch(100, size=100), AppendPolicy(compression=CompressionType.GZIP)),
        (batch(100, magic=MAGIC_V1, compression=CompressionType.GZIP, size=10), AppendPolicy()),
        # Records that stay closed may be as large as they like.
        (batch(1, compression=CompressionType.ZSTD, size=1 << 20), AppendPolicy()),
        (batch(1, size=900_000), AppendPolicy()),
    ],
)
def test_what_does_not_take_long_is_done_at_once(data: bytes, policy: AppendPolicy) -> None:
    validated = validate_records(
        data, base_offset=Offset(9), now_ms=NOW_MS, leader_epoch=EPOCH, policy=policy, only_briefly=True
    )
    assert validated.first_offset == 9
