"""Keys and values gathered by Arrow: columns of records whose bytes are copied once, by a kernel of Arrow's."""

from __future__ import annotations

from array import array
from typing import Final

import pyarrow as pa

from barnabas.records.spans import RecordSpans

NOTHING: Final = pa.py_buffer(b"")
FOURTHS_MIN: Final = 16_384

_fourths: dict[int, pa.Array] = {}


class GatheredColumn:
    """A column in buffers of Arrow's."""

    __slots__ = ("data", "null_count", "offsets", "validity")

    def __init__(self, taken: pa.Array, validity: bytes | None, null_count: int) -> None:
        _, self.offsets, data = taken.buffers()
        self.data = NOTHING if data is None else data
        self.validity = validity
        self.null_count = null_count


class Gathered:
    """Columns as `RecordColumns` has them, of which Arrow has gathered keys and values."""

    __slots__ = (
        "header_names",
        "header_offsets",
        "header_values",
        "keys",
        "offsets",
        "record_count",
        "timestamp_types",
        "timestamps",
        "values",
    )

    def __init__(self, spans: RecordSpans) -> None:
        count = self.record_count = spans.record_count
        self.offsets = spans.offsets
        self.timestamps = spans.timestamps
        self.timestamp_types = spans.timestamp_types
        self.header_offsets = spans.header_offsets
        self.header_names = spans.header_names
        self.header_values = spans.header_values
        buffers = [None, pa.py_buffer(spans.bounds), pa.py_buffer(spans.data)]
        everything = pa.Array.from_buffers(pa.binary(), max(4 * count - 1, 0), buffers, null_count=0)
        self.keys = GatheredColumn(
            everything.take(_each_fourth(0, count)), spans.key_validity, spans.key_null_count
        )
        self.values = GatheredColumn(
            everything.take(_each_fourth(2, count)), spans.value_validity, spans.value_null_count
        )


def _each_fourth(first: int, count: int) -> pa.Array:
    """0, 4, 8 … or 2, 6, 10 …, of an array that is made once."""
    known = _fourths.get(first)
    if known is None or len(known) < count:
        numbers = array("i", range(first, first + 4 * max(count, FOURTHS_MIN), 4))
        known = pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
        _fourths[first] = known
    return known.slice(0, count)
