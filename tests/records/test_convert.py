from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import InvalidRecord, UnsupportedCompressionType
from barnabas.model import Offset, ProducerEpoch, ProducerId, TimestampMs
from barnabas.records.builder import BatchBuilder, end_transaction_marker
from barnabas.records.convert import down_convert
from barnabas.records.header import iterate_headers
from barnabas.records.layout import MAGIC_V0, CompressionType, ControlRecordType
from barnabas.records.reader import iterate_batches
from barnabas.records.record import Record
from tests.records.golden import golden_segments
from tests.records.strategies import SEEDED, BatchData, batches


def records_of(data: bytes) -> list[Record]:
    return [
        record for header, records in iterate_batches(data) if not header.is_control for record in records
    ]


def stripped(record: Record, magic: int) -> tuple[int, int, bytes | None, bytes | None]:
    return record.offset, -1 if magic == MAGIC_V0 else record.timestamp, record.key, record.value


@pytest.mark.parametrize("magic", [0, 1])
def test_kafkas_segments_keep_their_records(magic: int) -> None:
    converted_count = 0
    for segment in golden_segments():
        headers = iterate_headers(segment.data)
        if any(header.compression is CompressionType.ZSTD for header in headers):
            continue
        converted = down_convert(segment.data, to_magic=magic, first_offset=Offset(0))
        assert all(header.magic <= magic for header in iterate_headers(converted.data))
        assert [stripped(record, magic) for record in records_of(converted.data)] == [
            stripped(record, magic) for record in records_of(segment.data)
        ]
        converted_count += converted.converted_count
    assert converted_count > 1_000


@SEEDED
@given(batches(), st.sampled_from([0, 1]))
def test_any_batch(batch: BatchData, magic: int) -> None:
    data = batch.builder().build()
    if batch.compression is CompressionType.ZSTD:
        with pytest.raises(UnsupportedCompressionType, match="zstd"):
            down_convert(data, to_magic=magic, first_offset=Offset(0))
        return
    converted = down_convert(data, to_magic=magic, first_offset=Offset(0))
    if batch.magic <= magic:
        assert converted.data == data
        assert converted.converted_count == 0
        return
    assert converted.converted_count == len(batch.records)
    assert [stripped(record, magic) for record in records_of(converted.data)] == [
        stripped(record, magic) for record in records_of(data)
    ]
    for header in iterate_headers(converted.data):
        assert header.compression is batch.compression
        if magic == 1:
            assert header.timestamp_type is batch.timestamp_type


def test_uncompressed_records_begin_where_the_reader_asked() -> None:
    plain, zipped = (
        BatchBuilder(base_offset=Offset(10)),
        BatchBuilder(base_offset=Offset(10), compression=CompressionType.GZIP),
    )
    for builder in (plain, zipped):
        for value in (b"10", b"11", b"12"):
            builder.append(TimestampMs(5), None, value)
    converted = down_convert(plain.build(), to_magic=1, first_offset=Offset(11))
    assert [record.offset for record in records_of(converted.data)] == [11, 12]
    converted = down_convert(zipped.build(), to_magic=1, first_offset=Offset(11))
    assert [record.offset for record in records_of(converted.data)] == [10, 11, 12]
    assert down_convert(plain.build(), to_magic=1, first_offset=Offset(13)).data == b""


def test_markers_and_headers_are_left_out() -> None:
    marker = end_transaction_marker(
        control_type=ControlRecordType.COMMIT,
        timestamp=TimestampMs(1),
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        coordinator_epoch=0,
    )
    assert down_convert(marker, to_magic=1, first_offset=Offset(0)).data == b""
    builder = BatchBuilder()
    builder.append(TimestampMs(1), b"k", b"v", (("name", b"value"),))
    (record,) = records_of(down_convert(builder.build(), to_magic=1, first_offset=Offset(0)).data)
    assert (record.key, record.value, record.headers) == (b"k", b"v", ())


def test_a_batch_whose_producer_numbered_it_wrongly() -> None:
    builder = BatchBuilder()
    builder.append(TimestampMs(1), None, b"a")
    builder.append(TimestampMs(1), None, b"b")
    data = bytearray(builder.build())
    position = data.index(b"\x02a\x00") + 6
    assert data[position] == 2, "the second record's offset delta, 1"
    data[position] = 0
    with pytest.raises(InvalidRecord, match="offset 0 cannot follow 0"):
        down_convert(bytes(data), to_magic=1, first_offset=Offset(0))
