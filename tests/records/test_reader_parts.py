"""A batch that is decoded in parts."""

from __future__ import annotations

import pytest

from barnabas.model import TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.records.header import parse_header
from barnabas.records.layout import MAGIC_V1, MAGIC_V2, CompressionType
from barnabas.records.reader import PART_RECORDS, decode_batch, decode_parts
from barnabas.records.record import MalformedRecord


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.LZ4])
@pytest.mark.parametrize("count", [1, PART_RECORDS, PART_RECORDS + 1, 3 * PART_RECORDS + 7])
def test_parts_are_the_whole(magic: int, compression: CompressionType, count: int) -> None:
    builder = BatchBuilder(magic=magic, compression=compression)
    for number in range(count):
        builder.append(TimestampMs(number), b"key-%d" % number, b"value" if number % 3 else None)
    data = b"ahead" + bytes(builder.build())
    header = parse_header(data, 5)
    parts = list(decode_parts(data, 5, header))
    together = [
        (record.offset, record.timestamp, record.key, record.value) for part in parts for record in part
    ]
    assert together == [
        (record.offset, record.timestamp, record.key, record.value)
        for record in decode_batch(data, 5, header=header)
    ]
    if magic == MAGIC_V2:
        assert max(map(len, parts)) <= PART_RECORDS


def test_faults_in_later_parts() -> None:
    builder = BatchBuilder()
    for number in range(2 * PART_RECORDS):
        builder.append(TimestampMs(number), b"key", b"value")
    data = bytes(builder.build())
    header = parse_header(data)
    header.record_count -= 1
    with pytest.raises(MalformedRecord, match=r"bytes follow the 1999 records"):
        list(decode_parts(data, 0, header))
    header.record_count += 2
    with pytest.raises(MalformedRecord, match=r"end within record 2000 of 2001|length"):
        list(decode_parts(data, 0, header))
