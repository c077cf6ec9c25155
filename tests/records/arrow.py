"""Records back out of columns, bit by bit as Arrow's layout says, so that no Arrow is needed to check them."""

from __future__ import annotations

import itertools
import struct

from barnabas.records.columns import BinaryColumn, RecordColumns

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def records_of(columns: RecordColumns) -> list[Row]:
    count = columns.record_count
    offsets = struct.unpack(f"<{count}q", columns.offsets)
    timestamps = struct.unpack(f"<{count}q", columns.timestamps)
    timestamp_types = struct.unpack(f"<{count}b", columns.timestamp_types)
    keys = strings_of(columns.keys, count)
    values = strings_of(columns.values, count)
    header_offsets = struct.unpack(f"<{count + 1}i", columns.header_offsets)
    names = strings_of(columns.header_names, header_offsets[-1])
    header_values = strings_of(columns.header_values, header_offsets[-1])
    headers = []
    for start, end in itertools.pairwise(header_offsets):
        pairs = zip(names[start:end], header_values[start:end], strict=True)
        headers.append(tuple(((name or b"").decode(), value) for name, value in pairs))
    return list(zip(offsets, timestamps, timestamp_types, keys, values, headers, strict=True))


def strings_of(column: BinaryColumn, count: int) -> list[bytes | None]:
    offsets = struct.unpack(f"<{count + 1}i", column.offsets)
    assert offsets[0] == 0
    assert offsets[-1] == len(column.data)
    strings: list[bytes | None] = []
    for index in range(count):
        if column.validity is None or column.validity[index // 8] >> (index % 8) & 1:
            strings.append(column.data[offsets[index] : offsets[index + 1]])
        else:
            assert offsets[index] == offsets[index + 1]
            strings.append(None)
    assert strings.count(None) == column.null_count
    if column.validity is not None:
        assert len(column.validity) == (count + 7) // 8
    return strings
