"""Whatever is built is read again, row by row and as columns, in every format."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from barnabas.model import NO_TIMESTAMP
from barnabas.records.columns import ColumnsBuilder
from barnabas.records.header import iterate_headers, parse_header, verify_crc
from barnabas.records.layout import BATCH_HEADER_BYTES, MAGIC_V0, MAGIC_V2, CompressionType, TimestampType
from barnabas.records.reader import decode_batch, iterate_batches
from barnabas.records.varint import read_varint, read_varlong, varint_size, write_varint
from tests.records.columns import decode_columns, records_of
from tests.records.strategies import SEEDED, BatchData, batches


@SEEDED
@given(batches())
def test_what_is_built_is_read(batch: BatchData) -> None:
    builder = batch.builder()
    data = builder.build()
    decoded = []
    for (header, records), whole in zip(iterate_batches(data), _entries(data), strict=True):
        verify_crc(whole, 0, header)
        assert header.magic == batch.magic
        assert header.compression is batch.compression
        decoded += records

    assert [record.offset for record in decoded] == batch.offsets()
    assert [record.timestamp for record in decoded] == _timestamps(batch)
    assert [(record.key, record.value, record.headers) for record in decoded] == [
        (record.key, record.value, record.headers) for record in batch.records
    ]
    if batch.magic == MAGIC_V2:
        assert [record.sequence for record in decoded] == [
            -1 if batch.base_sequence < 0 else (batch.base_sequence + offset - batch.base_offset) % 2**31
            for offset in batch.offsets()
        ]


@SEEDED
@given(batches(magics=(2,)))
def test_the_header_says_what_was_asked_for(batch: BatchData) -> None:
    builder = batch.builder()
    assert builder.record_count == len(batch.records)
    data = builder.build()
    header = parse_header(data)
    assert header.size_bytes == len(data)
    assert (batch.compression is not CompressionType.NONE) or builder.size_bytes == len(data)
    assert header.base_offset == batch.base_offset
    assert header.last_offset == batch.offsets()[-1] == header.next_offset - 1
    assert header.partition_leader_epoch == batch.leader_epoch
    assert header.producer_id == batch.producer_id
    assert header.producer_epoch == batch.producer_epoch
    assert header.base_sequence == batch.base_sequence
    assert header.record_count == len(batch.records)
    assert header.is_transactional == batch.is_transactional
    assert not header.is_control
    assert header.timestamp_type is batch.timestamp_type
    assert header.has_delete_horizon == (batch.delete_horizon_ms != -1)
    if header.has_delete_horizon:
        assert header.base_timestamp == batch.delete_horizon_ms
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        assert header.max_timestamp == batch.log_append_time
    else:
        assert header.max_timestamp == max(record.timestamp for record in batch.records)


@SEEDED
@given(batches(), batches(magics=(2,)), st.sampled_from([0, 1, 500, 2**40 + 3]))
def test_columns_hold_the_records_from_an_offset_on(first: BatchData, second: BatchData, start: int) -> None:
    data = first.builder().build() + second.builder().build()
    expected = [
        (
            record.offset,
            record.timestamp,
            int(header.timestamp_type),
            record.key,
            record.value,
            record.headers,
        )
        for header, records in iterate_batches(data)
        for record in records
        if record.offset >= start
    ]
    columns = decode_columns(data, start_offset=start)
    assert records_of(columns) == expected
    assert columns.record_count == len(expected)


@SEEDED
@given(batches(magics=(2,)))
def test_any_buffer_will_do(batch: BatchData) -> None:
    data = batch.builder().build()
    padded = b"in front" + data + b"behind"
    records = decode_batch(data)
    assert decode_batch(padded, 8) == records
    assert decode_batch(bytearray(padded), 8) == records
    assert decode_batch(memoryview(padded), 8) == records
    columns = ColumnsBuilder()
    columns.append_batch(padded, 8, header=parse_header(data))
    if batch.compression is CompressionType.NONE:
        assert columns.size_bytes == len(data) - BATCH_HEADER_BYTES
    assert records_of(columns.finish()) == records_of(decode_columns(data))


@SEEDED
@given(batches(), batches(), st.data())
def test_a_batch_that_is_cut_off_is_left_out(
    first: BatchData, second: BatchData, data: st.DataObject
) -> None:
    whole = first.builder().build()
    last = _entries(second.builder().build())[0]
    cut = data.draw(st.integers(0, len(last) - 1))
    assert [header.size_bytes for header in iterate_headers(whole + last[:cut])] == [
        len(entry) for entry in _entries(whole)
    ]


@SEEDED
@given(st.integers(-(2**63), 2**63 - 1))
def test_varints(number: int) -> None:
    writer = BytesWriter()
    write_varint(writer, number)
    encoded = writer.getvalue()
    assert len(encoded) == varint_size(number)
    assert read_varlong(b"\xff" + encoded, 1) == (number, 1 + len(encoded))
    if -(2**31) <= number < 2**31:
        assert read_varint(encoded, 0) == (number, len(encoded))


def test_varints_of_every_size() -> None:
    for shift in range(64):
        for number in ((1 << shift) - 1, -(1 << shift), (1 << shift) // 2):
            writer = BytesWriter()
            write_varint(writer, number)
            assert read_varlong(writer.getvalue(), 0) == (number, varint_size(number))


def _entries(data: bytes) -> list[bytes]:
    entries = []
    position = 0
    for header in iterate_headers(data):
        entries.append(data[position : position + header.size_bytes])
        position += header.size_bytes
    assert position == len(data)
    return entries


def _timestamps(batch: BatchData) -> list[int]:
    if batch.magic == MAGIC_V0:
        return [NO_TIMESTAMP] * len(batch.records)
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return [batch.log_append_time] * len(batch.records)
    return [record.timestamp for record in batch.records]
