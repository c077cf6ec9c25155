"""Arrays that Arrow makes of columns: the same records once more, and nothing kept alive but them."""

from __future__ import annotations

import sys
from random import Random
from typing import Any

import pytest

from barnabas.model import Offset, TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.records.columns import PART_BYTES_MIN, ColumnsBuilder, RecordColumns
from barnabas.records.header import parse_header
from tests.records.columns import decode_columns, records_of
from tests.records.golden import GoldenSegment, golden_segments

pa = pytest.importorskip("pyarrow", reason="pyarrow is needed for Arrow's arrays: install barnabas[arrow]")

from barnabas.records import arrow  # noqa: E402

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def rows_of(columns: RecordColumns) -> list[tuple[Any, ...]]:
    count = columns.record_count
    arrays = [
        arrow.fixed_array(pa.int64(), count, columns.offsets),
        arrow.fixed_array(pa.int64(), count, columns.timestamps),
        arrow.fixed_array(pa.int8(), count, columns.timestamp_types),
        arrow.key_array(columns),
        arrow.value_array(columns),
        arrow.headers_array(HEADERS, columns),
    ]
    for array in arrays:
        array.validate(full=True)
        assert len(array) == count
    rows = zip(*(array.to_pylist() for array in arrays), strict=True)
    return [(*row, tuple((each["key"], each["value"]) for each in headers)) for *row, headers in rows]


@pytest.mark.parametrize("segment", golden_segments(), ids=lambda segment: segment.name)
def test_arrays_hold_the_records_of_the_columns(segment: GoldenSegment) -> None:
    columns = decode_columns(segment.data)
    assert rows_of(columns) == records_of(columns)


@pytest.mark.parametrize("seed", range(20))
def test_keys_and_values_that_are_null_or_empty(seed: int) -> None:
    rng = Random(seed)
    kinds = ((None,), (b"",), (None, b""), (None, b"", b"value"))[seed % 4]
    builder = BatchBuilder()
    for _ in range(rng.randrange(1, 40)):
        builder.append(TimestampMs(1), rng.choice(kinds), rng.choice([*kinds, b"x" * rng.randrange(9)]))
    columns = decode_columns(builder.build())
    assert rows_of(columns) == records_of(columns)


@pytest.mark.parametrize("sizes", [[100] * 50, [1, *[100] * 49], [9_000, *[1] * 49], [0, 5_000, 1, 70]])
def test_sizes_of_any_kind(sizes: list[int]) -> None:
    builder = BatchBuilder()
    for number, size in enumerate(sizes):
        builder.append(TimestampMs(1), b"%d" % number, bytes([number]) * size)
    columns = decode_columns(builder.build())
    assert rows_of(columns) == records_of(columns)


def test_room_for_values_is_reserved_once() -> None:
    builder = BatchBuilder()
    for number in range(1_000):
        builder.append(TimestampMs(1), b"key", bytes([number % 256]) * 200)
    columns = decode_columns(builder.build())
    before = arrow.POOL.num_allocations()
    arrow.key_array(columns)
    after = arrow.POOL.num_allocations()
    arrow.value_array(columns)
    # As often as for keys, which are short: their room is never too small.
    assert arrow.POOL.num_allocations() - after == after - before


def test_no_records() -> None:
    assert rows_of(ColumnsBuilder().finish()) == []


@pytest.mark.parametrize("count", [99, 100, 101, 300])
def test_as_many_records_as_numbers_are_kept_ready_for_and_more(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "FOURTHS", arrow.FOURTHS.slice(0, 100))
    builder = BatchBuilder()
    for number in range(count):
        builder.append(TimestampMs(1), b"%d" % number, b"v%d" % number)
    columns = decode_columns(builder.build())
    assert arrow.key_array(columns).to_pylist() == [b"%d" % number for number in range(count)]
    assert arrow.value_array(columns).to_pylist() == [b"v%d" % number for number in range(count)]


def test_parts_are_joined() -> None:
    rng = Random(5)
    columns = ColumnsBuilder()
    for number in range(5):
        builder = BatchBuilder(base_offset=Offset(100 * number))
        for size in (10, PART_BYTES_MIN // rng.choice((1, 3)), 0):
            builder.append(TimestampMs(1), rng.choice((None, b"key")), rng.randbytes(size))
        builder.append(TimestampMs(1), None, None)
        data = builder.build()
        columns.append_batch(data, 0, header=parse_header(data))
    found = columns.finish()
    assert len(found.parts) > 1
    assert rows_of(found) == records_of(found)


def test_arrays_keep_alive_only_their_own_bytes() -> None:
    builder = BatchBuilder()
    for number in range(100):
        builder.append(TimestampMs(1), None if number % 2 else b"key", bytes(100), (("name", bytes(1_000)),))
    data = builder.build()
    references = sys.getrefcount(data)
    columns = decode_columns(data)
    assert sys.getrefcount(data) > references
    before_bytes = arrow.POOL.bytes_allocated()
    keys, values = arrow.key_array(columns), arrow.value_array(columns)
    del columns
    assert sys.getrefcount(data) == references
    assert keys.nbytes < 2_000
    assert 10_000 <= values.nbytes < 11_000
    assert arrow.POOL.bytes_allocated() - before_bytes < 16_000
    keys.validate(full=True)
    values.validate(full=True)
