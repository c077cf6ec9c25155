"""Every byte of Kafka's own segments, read, compared with what Kafka says of it, and written again."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.model import NO_TIMESTAMP, TimestampMs
from barnabas.records.builder import BatchBuilder, build_empty_batch, encode_message
from barnabas.records.control import parse_end_txn_marker
from barnabas.records.header import BatchHeader, verify_crc
from barnabas.records.layout import MAGIC_V2, CompressionType, ControlRecordType, TimestampType
from barnabas.records.legacy import decompress_wrapper
from barnabas.records.reader import decode_batch, iterate_batches
from barnabas.records.record import Record
from tests.records.columns import decode_columns, records_of
from tests.records.golden import GoldenPartition, GoldenSegment, golden_partitions, golden_segments, shown


@pytest.mark.parametrize("segment", golden_segments(), ids=lambda segment: segment.name)
def test_headers_and_records_are_what_kafka_dumps(segment: GoldenSegment) -> None:
    ours = []
    for position, header in segment.batches():
        verify_crc(segment.data, position, header)
        records = decode_batch(segment.data, position, header=header)
        ours.append(_dumped_batch(position, header))
        ours += [_dumped_record(header, record) for record in records]
    theirs = [_without_crc_of_inner_messages(line) for line in segment.dump]
    assert ours == theirs


def _dumped_batch(position: int, header: BatchHeader) -> str:
    tail = (
        f"position: {position} {header.timestamp_type.label}: {header.max_timestamp} size: {header.size_bytes} magic:"
        f" {header.magic} compresscodec: {header.compression.label} crc: {header.crc} isvalid: true"
    )
    if header.magic < MAGIC_V2:
        return f"offset: {header.last_offset} {tail}"
    horizon = f"[{header.base_timestamp}]" if header.has_delete_horizon else ".empty"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} baseSequence:"
        f" {header.base_sequence} lastSequence: {header.last_sequence} producerId: {header.producer_id} producerEpoch:"
        f" {header.producer_epoch} partitionLeaderEpoch: {header.partition_leader_epoch} isTransactional:"
        f" {str(header.is_transactional).lower()} isControl: {str(header.is_control).lower()} deleteHorizonMs:"
        f" OptionalLong{horizon} {tail}"
    )


def _dumped_record(header: BatchHeader, record: Record) -> str:
    line = (
        f"| offset: {record.offset} {header.timestamp_type.label}: {record.timestamp} keySize: {_size(record.key)}"
        f" valueSize: {_size(record.value)}"
    )
    if header.magic < MAGIC_V2:
        return f"{line} isValid: true"
    line += f" sequence: {record.sequence} headerKeys: [{','.join(name for name, _ in record.headers)}]"
    if header.is_control:
        marker = parse_end_txn_marker(record)
        if marker is not None:
            line += f" endTxnMarker: {marker.control_type.name} coordinatorEpoch: {marker.coordinator_epoch}"
    return line


def _size(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def _without_crc_of_inner_messages(line: str) -> str:
    if not line.startswith("| "):
        return line
    return line.split(" crc: ")[0].split(" LeaderChange: ")[0]


@pytest.mark.parametrize("partition", golden_partitions(), ids=lambda partition: partition.name)
def test_records_are_what_kafkas_consumer_reads(partition: GoldenPartition) -> None:
    if partition.records is None:
        assert partition.name.endswith("__cluster_metadata-0"), "only the cluster's own log has no consumers"
        return
    ours: list[list[Any]] = []
    for segment in partition.segments:
        for header, records in iterate_batches(segment.data):
            if header.is_control:
                continue
            leader_epoch = header.partition_leader_epoch if header.magic == MAGIC_V2 else None
            ours += [
                [
                    record.offset,
                    record.timestamp,
                    header.timestamp_type.label,
                    shown(record.key),
                    shown(record.value),
                    [[name, shown(value)] for name, value in record.headers],
                    leader_epoch,
                ]
                for record in records
                if record.offset >= partition.earliest_offset
            ]
    assert ours == partition.records


@pytest.mark.parametrize("segment", golden_segments(), ids=lambda segment: segment.name)
def test_columns_hold_the_same_records(segment: GoldenSegment) -> None:
    expected = [
        (
            record.offset,
            record.timestamp,
            int(header.timestamp_type),
            record.key,
            record.value,
            record.headers,
        )
        for header, records in iterate_batches(segment.data)
        if not header.is_control
        for record in records
    ]
    assert records_of(decode_columns(segment.data)) == expected


def test_uncompressed_batches_and_messages_are_written_byte_for_byte() -> None:
    written = 0
    for segment in golden_segments():
        for position, header in segment.batches():
            if header.is_compressed:
                continue
            original = segment.data[position : position + header.size_bytes]
            assert _rebuilt(original, header) == original, f"{segment.name} at {position}"
            written += 1
    assert written > 500


def _rebuilt(original: bytes, header: BatchHeader) -> bytes:
    records = decode_batch(original, header=header)
    if header.magic < MAGIC_V2:
        (record,) = records
        return encode_message(
            header.magic,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            attributes=header.attributes,
        )
    if not records:
        return build_empty_batch(header)
    stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    builder = BatchBuilder(
        timestamp_type=header.timestamp_type,
        base_offset=header.base_offset,
        log_append_time=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        partition_leader_epoch=header.partition_leader_epoch,
        delete_horizon_ms=header.base_timestamp if header.has_delete_horizon else NO_TIMESTAMP,
    )
    if stamped:
        # With LogAppendTime the producer's own times are still in the deltas, where no reader sees them.
        unstamped = BatchHeader(*[getattr(header, name) for name in _FIELDS])
        unstamped.attributes &= ~8
        records = decode_batch(original, header=unstamped)
    for record in records:
        builder.append_record(record)
    return builder.build(last_offset=header.last_offset)


_FIELDS = (
    "base_offset",
    "size_bytes",
    "partition_leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)


def test_wrappers_are_written_with_the_same_messages_inside() -> None:
    """The compressed bytes are another library's; what they decompress to is Kafka's, and so is the rest."""
    written = 0
    for segment in golden_segments():
        for position, header in segment.batches():
            if header.magic == MAGIC_V2 or not header.is_compressed:
                continue
            original = segment.data[position : position + header.size_bytes]
            records = decode_batch(original)
            if "compact" in segment.name or header.base_offset == 0:
                continue
            builder = BatchBuilder(
                magic=header.magic,
                compression=header.compression,
                timestamp_type=header.timestamp_type,
                base_offset=records[0].offset,
                log_append_time=TimestampMs(header.max_timestamp),
            )
            for record in records:
                builder.append_record(record)
            ours = builder.build()
            (our_header, our_records) = next(iterate_batches(ours))
            assert our_records == records
            assert our_header.last_offset == header.last_offset
            assert our_header.max_timestamp == header.max_timestamp
            assert our_header.attributes == header.attributes
            if header.timestamp_type is not TimestampType.LOG_APPEND_TIME:
                assert decompress_wrapper(ours, 0, our_header, 1 << 20) == decompress_wrapper(
                    original, 0, header, 1 << 20
                ), f"{segment.name} at {position}"
            written += 1
    assert written > 50


def test_the_segments_hold_every_kind_of_batch() -> None:
    """What the tests above would not show if the golden data lacked it."""
    seen: set[object] = set()
    for segment in golden_segments():
        for position, header in segment.batches():
            seen.add((header.magic, header.compression, header.timestamp_type))
            if header.is_control:
                marker = parse_end_txn_marker(decode_batch(segment.data, position)[0])
                seen.add(("control", marker.control_type if marker else None))
            if header.has_delete_horizon:
                seen.add("delete horizon")
            if header.record_count == 0:
                seen.add("empty")
    for magic, timestamp_types in {
        0: [TimestampType.NO_TIMESTAMP_TYPE],
        1: [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME],
        2: [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME],
    }.items():
        for timestamp_type in timestamp_types:
            for compression in CompressionType:
                if compression is not CompressionType.ZSTD or magic == MAGIC_V2:
                    assert (magic, compression, timestamp_type) in seen
    assert {
        "delete horizon",
        "empty",
        ("control", ControlRecordType.COMMIT),
        ("control", ControlRecordType.ABORT),
        ("control", None),
    } <= seen
