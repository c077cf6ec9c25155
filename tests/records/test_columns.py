"""Columns hold the same records as reading them one by one gives, wherever the batches stand."""

from __future__ import annotations

from random import Random
from struct import unpack

import pytest

from barnabas.errors import InvalidRecord, KafkaError
from barnabas.model import Offset, TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.records.columns import PART_BYTES_MIN, ColumnsBuilder
from barnabas.records.header import parse_header
from barnabas.records.layout import CompressionType, TimestampType
from barnabas.records.reader import decode_batch
from tests.records.columns import Row, records_of


def random_batch(rng: Random, magic: int, base_offset: int) -> bytes:
    compressions = list(CompressionType)[: 5 if magic == 2 else 4]
    # Messages of v0 and v1 are entries of their own if they are not compressed.
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


def rows_of(data: bytes, position: int, start_offset: int) -> list[Row]:
    header = parse_header(data, position)
    kind = int(header.timestamp_type)
    return [
        (each.offset, each.timestamp, kind, each.key, each.value, each.headers)
        for each in decode_batch(data, position, header=header)
        if each.offset >= start_offset
    ]


def append(builder: ColumnsBuilder, data: bytes, position: int = 0, start_offset: int = 0) -> None:
    header = parse_header(data, position)
    builder.append_batch(data, position, header=header, start_offset=Offset(start_offset))


def broken(data: bytes) -> bytes:
    """A batch whose last record is longer than it says."""
    return data[:-1] + b"\x02"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("magics", [(0,), (1,), (2,), (0, 1, 2)])
def test_columns_are_the_records_wherever_these_stand(seed: int, magics: tuple[int, ...]) -> None:
    rng = Random(seed)
    data = b""
    positions = []
    for number in range(8):
        positions.append(len(data))
        data += random_batch(rng, rng.choice(magics), 20 * number)
    builder = ColumnsBuilder()
    expected: list[Row] = []
    for position in positions:
        # What begins within a batch and what does not go together.
        start_offset = rng.choice((0, 25, parse_header(data, position).base_offset + 3))
        if rng.random() < 0.1:
            continue
        if rng.random() < 0.1:
            # Back in the same bytes.
            position = rng.choice(positions)
        # Some batches stand in the same bytes, some in bytes of their own.
        apart = data[position:] if rng.random() < 0.5 else None
        append(builder, data if apart is None else apart, position if apart is None else 0, start_offset)
        expected += rows_of(data, position, start_offset)
    assert builder.record_count == len(expected)
    assert records_of(builder.finish()) == expected


def test_batches_that_follow_one_another_in_the_same_bytes_are_not_copied() -> None:
    rng = Random(1)
    batches = []
    for number in range(3):
        builder = BatchBuilder(base_offset=Offset(number))
        builder.append(TimestampMs(1), b"key", rng.randbytes(100))
        batches.append(builder.build())
    data = b"before" + b"".join(batches) + b"behind"
    columns = ColumnsBuilder()
    append(columns, data, 6)
    # The second one is left out, as one of an aborted transaction is.
    append(columns, data, 6 + len(batches[0]) + len(batches[1]))
    assert columns.size_bytes == sum(map(len, batches)) - 61
    found = columns.finish()
    [part] = found.parts
    assert isinstance(part.data, memoryview)
    assert part.data.obj is data
    assert len(part.data) == sum(map(len, batches)) - 61
    assert records_of(found) == rows_of(batches[0], 0, 0) + rows_of(batches[2], 0, 0)


def test_only_what_batches_stand_in_is_held() -> None:
    builder = BatchBuilder()
    builder.append(TimestampMs(1), None, b"value")
    batch = builder.build()
    data = bytes(1_000) + batch + bytes(1_000)
    columns = ColumnsBuilder()
    append(columns, data, 1_000)
    append(columns, batch)
    append(columns, data, 1_000)
    assert columns.size_bytes == 3 * (len(batch) - 61)
    found = columns.finish()
    [part] = found.parts
    assert len(part.data) == 3 * (len(batch) - 61)
    assert records_of(found) == 3 * rows_of(batch, 0, 0)


def test_large_pieces_of_data_are_parts_of_their_own() -> None:
    batches = []
    for number, size in enumerate((10, PART_BYTES_MIN, PART_BYTES_MIN, 10, PART_BYTES_MIN - 1_000, 10)):
        builder = BatchBuilder(base_offset=Offset(number))
        builder.append(TimestampMs(1), b"%d" % number, bytes(size))
        batches.append(builder.build())
    columns = ColumnsBuilder()
    for batch in batches:
        append(columns, batch)
    with pytest.raises(InvalidRecord):
        append(columns, broken(batches[1]))
    found = columns.finish()
    # What is copied together is so because it began with something small.
    assert [part.record_count for part in found.parts] == [2, 1, 3]
    assert [isinstance(part.data, memoryview) for part in found.parts] == [False, True, False]
    assert records_of(found) == [row for batch in batches for row in rows_of(batch, 0, 0)]


@pytest.mark.parametrize("seed", range(20))
def test_of_a_batch_that_cannot_be_read_nothing_is_added(seed: int) -> None:
    rng = Random(seed)
    builder = ColumnsBuilder()
    expected: list[Row] = []
    for number in range(10):
        good = BatchBuilder(base_offset=Offset(20 * number))
        for _ in range(rng.randrange(1, 12)):
            key, value = rng.choice((None, b"key")), rng.choice((None, b"value"))
            good.append(TimestampMs(5), key, value, rng.choice(((), (("name", b"x"), ("", None)))))
        good.append(TimestampMs(5), None, b"last")
        data = good.build()
        if rng.random() < 0.5:
            with pytest.raises(InvalidRecord):
                append(builder, broken(data))
        else:
            append(builder, data)
            expected += rows_of(data, 0, 0)
        assert builder.record_count == len(expected)
    assert records_of(builder.finish()) == expected


def test_no_batches_are_no_records() -> None:
    found = ColumnsBuilder().finish()
    assert records_of(found) == []
    assert found.record_count == 0
    assert found.parts == []


def test_headers_are_left_out_if_they_are_not_wanted() -> None:
    builder = BatchBuilder()
    builder.append(TimestampMs(1), b"k", b"v", (("name", b"value"),))
    builder.append(TimestampMs(1), b"k", b"w")
    columns = ColumnsBuilder(with_headers=False)
    append(columns, builder.build())
    found = columns.finish()
    assert records_of(found) == [(0, 1, 0, b"k", b"v", ()), (1, 1, 0, b"k", b"w", ())]
    assert unpack("<3i", found.header_offsets) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(200))
def test_bytes_that_are_no_records_are_refused_or_lead_nowhere_else(seed: int) -> None:
    rng = Random(seed)
    builder = BatchBuilder()
    for _ in range(3):
        builder.append(TimestampMs(1), b"key", b"value", (("h", b"x"),))
    good = builder.build()
    data = bytearray(good)
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(61, len(data))] = rng.randrange(256)
    columns = ColumnsBuilder()
    append(columns, good)
    try:
        append(columns, bytes(data))
    except KafkaError:
        assert records_of(columns.finish()) == rows_of(good, 0, 0)
        return
    assert records_of(columns.finish())[:3] == rows_of(good, 0, 0)
