"""Spans lead to the same records as reading them one by one does."""

from __future__ import annotations

from random import Random
from struct import unpack

import pytest

from barnabas.errors import InvalidRecord
from barnabas.model import Offset, TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.records.columns import BinaryColumn, ColumnsBuilder, RecordColumns
from barnabas.records.header import parse_header
from barnabas.records.layout import CompressionType, TimestampType
from barnabas.records.spans import RecordSpans, SpansBuilder

Rows = list[tuple[bytes | None, bytes | None]]


def random_batch(rng: Random, magic: int, base_offset: int) -> bytes:
    compressions = list(CompressionType)[: 5 if magic == 2 else 4]
    builder = BatchBuilder(
        magic=magic,
        compression=rng.choice(compressions),
        base_offset=Offset(base_offset),
        timestamp_type=rng.choice((TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)),
        log_append_time=TimestampMs(7_000),
    )
    for number in range(rng.randrange(1, 20)):
        key = rng.choice((None, b"", b"a", rng.randbytes(rng.randrange(300))))
        value = rng.choice((None, b"", b"a", rng.randbytes(rng.randrange(3000))))
        headers = (("h", rng.randbytes(3)), ("", None)) if magic == 2 and rng.random() < 0.3 else ()
        builder.append(TimestampMs(5_000 + number), key, value, headers)
    return builder.build()


def bit(validity: bytes | None, index: int) -> bool:
    return validity is None or bool(validity[index // 8] >> index % 8 & 1)


def rows_of_columns(columns: RecordColumns) -> Rows:
    def values(column: BinaryColumn) -> list[bytes | None]:
        bounds = unpack(f"<{len(column.offsets) // 4}i", column.offsets)
        return [
            column.data[bounds[index] : bounds[index + 1]] if bit(column.validity, index) else None
            for index in range(len(bounds) - 1)
        ]

    return list(zip(values(columns.keys), values(columns.values), strict=True))


def rows_of_spans(spans: RecordSpans) -> Rows:
    bounds = unpack(f"<{len(spans.bounds) // 4}i", spans.bounds)
    assert list(bounds) == sorted(bounds)
    assert not bounds or bounds[-1] <= len(spans.data)
    return [
        (
            spans.data[bounds[4 * index] : bounds[4 * index + 1]] if bit(spans.key_validity, index) else None,
            spans.data[bounds[4 * index + 2] : bounds[4 * index + 3]]
            if bit(spans.value_validity, index)
            else None,
        )
        for index in range(spans.record_count)
    ]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_spans_and_columns_agree(seed: int, magic: int) -> None:
    rng = Random(seed)
    data = b""
    base_offset = 0
    start_offset = Offset(rng.choice((0, 25)))
    positions = []
    for _ in range(8):
        positions.append(len(data))
        data += random_batch(rng, magic, base_offset)
        base_offset += 20
    columns = ColumnsBuilder(start_offset=start_offset)
    spans = SpansBuilder(start_offset=start_offset)
    for position in positions:
        columns.append_batch(data, position)
        # Some batches stand in the same bytes, some in bytes of their own.
        if rng.random() < 0.5:
            spans.append_batch(data, position, header=parse_header(data, position))
        else:
            apart = data[position:]
            spans.append_batch(apart, 0, header=parse_header(apart, 0))
    expected, found = columns.finish(), spans.finish()
    assert rows_of_spans(found) == rows_of_columns(expected)
    assert found.record_count == expected.record_count
    assert found.offsets == expected.offsets
    assert found.timestamps == expected.timestamps
    assert found.timestamp_types == expected.timestamp_types
    assert found.header_offsets == expected.header_offsets
    assert found.header_names.data == expected.header_names.data
    assert found.header_values.validity == expected.header_values.validity
    assert found.key_null_count == expected.keys.null_count
    assert found.value_null_count == expected.values.null_count


def test_headers_are_left_out_if_they_are_not_wanted() -> None:
    builder = BatchBuilder()
    builder.append(TimestampMs(1), b"k", b"v", (("name", b"value"),))
    builder.append(TimestampMs(1), b"k", b"w")
    data = builder.build()
    spans = SpansBuilder(start_offset=Offset(0), with_headers=False)
    spans.append_batch(data, 0, header=parse_header(data))
    found = spans.finish()
    assert rows_of_spans(found) == [(b"k", b"v"), (b"k", b"w")]
    assert unpack("<3i", found.header_offsets) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(200))
def test_bytes_that_are_no_records_are_refused_or_lead_nowhere_else(seed: int) -> None:
    rng = Random(seed)
    builder = BatchBuilder()
    for _ in range(3):
        builder.append(TimestampMs(1), b"key", b"value", (("h", b"x"),))
    data = bytearray(builder.build())
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(61, len(data))] = rng.randrange(256)
    broken = bytes(data)
    spans = SpansBuilder(start_offset=Offset(0))
    try:
        spans.append_batch(broken, 0, header=parse_header(broken))
    except InvalidRecord:
        return
    rows_of_spans(spans.finish())
