"""Columns of whole batches, and records back out of columns, bit by bit as their layout says: without any Arrow."""

from __future__ import annotations

import itertools
import struct

from barnabas.model import Offset
from barnabas.records.columns import BinaryColumn, ColumnsBuilder, RecordColumns, Validity
from barnabas.records.compression import MAX_DECOMPRESSED_BYTES
from barnabas.records.header import iterate_headers

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def decode_columns(
    data: bytes, *, start_offset: int = 0, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> RecordColumns:
    """The columns of all whole batches but control batches, as they come in the answer to a fetch."""
    builder = ColumnsBuilder(max_decompressed_bytes=max_decompressed_bytes)
    position = 0
    for header in iterate_headers(data):
        if not header.is_control:
            builder.append_batch(data, position, header=header, start_offset=Offset(start_offset))
        position += header.size_bytes
    return builder.finish()


def records_of(columns: RecordColumns) -> list[Row]:
    count = columns.record_count
    offsets = struct.unpack(f"<{count}q", columns.offsets)
    timestamps = struct.unpack(f"<{count}q", columns.timestamps)
    timestamp_types = struct.unpack(f"<{count}b", columns.timestamp_types)
    bounds = struct.unpack(f"<{4 * count}i", columns.bounds)
    keys: list[bytes] = []
    values: list[bytes] = []
    for part in columns.parts:
        assert part.record_count > 0
        start = 4 * len(keys)
        within = bounds[start : start + 4 * part.record_count]
        assert list(within) == sorted(within)
        assert within[0] >= 0
        assert within[-1] <= len(part.data)
        keys += [bytes(part.data[a:b]) for a, b in zip(within[0::4], within[1::4], strict=True)]
        values += [bytes(part.data[a:b]) for a, b in zip(within[2::4], within[3::4], strict=True)]
    header_offsets = struct.unpack(f"<{count + 1}i", columns.header_offsets)
    names = _strings_of(columns.header_names, header_offsets[-1])
    header_values = _strings_of(columns.header_values, header_offsets[-1])
    headers = []
    for start, end in itertools.pairwise(header_offsets):
        pairs = zip(names[start:end], header_values[start:end], strict=True)
        headers.append(tuple(((name or b"").decode(), value) for name, value in pairs))
    return list(
        zip(
            offsets,
            timestamps,
            timestamp_types,
            _with_nulls(keys, columns.key_validity),
            _with_nulls(values, columns.value_validity),
            headers,
            strict=True,
        )
    )


def _strings_of(column: BinaryColumn, count: int) -> list[bytes | None]:
    offsets = struct.unpack(f"<{count + 1}i", column.offsets)
    assert offsets[0] == 0
    assert offsets[-1] == len(column.data)
    strings = [column.data[start:end] for start, end in itertools.pairwise(offsets)]
    return _with_nulls(strings, column.validity)


def _with_nulls(strings: list[bytes], validity: Validity) -> list[bytes | None]:
    found: list[bytes | None] = []
    for index, string in enumerate(strings):
        if validity.bits is None or validity.bits[index // 8] >> (index % 8) & 1:
            found.append(string)
        else:
            assert string == b""
            found.append(None)
    assert found.count(None) == validity.null_count
    assert (validity.bits is None) == (validity.null_count == 0)
    if validity.bits is not None:
        assert len(validity.bits) == (len(strings) + 7) // 8
    return found
