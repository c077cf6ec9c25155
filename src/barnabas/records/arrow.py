"""Columns of records as Arrow arrays, created from whole buffers and not from single records.

Arrow copies keys and values, so no array keeps the data of the records alive. This module needs pyarrow; nothing else
in this room does.

No array is made of Python objects (`pa.scalar`, `pa.array`): Arrow imports pandas for the first of them, if it is
installed, and that is half of the time that a Python worker of Spark needs to start.
"""

from __future__ import annotations

from array import array
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.records.columns import BinaryColumn, RecordColumns, Validity

# The allocator that Python's bytes come from: memory that one poll has freed serves the next, in Python or in Arrow.
POOL: Final = pa.system_memory_pool()
NO_BYTES: Final = pa.py_buffer(b"")
# Called without the detours of Array.take, which cost more than taking the records of a small poll does.
TAKE: Final = pc.get_function("array_take")
UNCHECKED: Final = pc.TakeOptions(boundscheck=False)


def _each_fourth(count: int) -> pa.Array:
    """0, 4, 8 …"""
    return fixed_array(pa.int32(), count, array("i", range(0, 4 * count, 4)))


def place_of(view: memoryview) -> tuple[bytes, int] | None:
    """The bytes of which this is a part, and where it begins in them; None if it is a part of something else."""
    whole = view.obj
    if not isinstance(whole, bytes):
        return None
    return whole, pa.py_buffer(view).address - pa.py_buffer(whole).address


def key_array(columns: RecordColumns) -> pa.Array:
    return _gather(columns, 0, columns.key_validity)


def value_array(columns: RecordColumns) -> pa.Array:
    return _gather(columns, 2, columns.value_validity)


def _gather(columns: RecordColumns, first: int, validity: Validity) -> pa.Array:
    """Each fourth element of the columns that the bounds make of the parts.

    Arrow reserves room as if the elements to take had the mean size of the array's. The mean with the small ones in
    between is far too little, and the room would grow twice, with a copy each time. So the array claims to have one
    element, the first key or value, unless that is so large that it cannot be like the others. The indexes are ours:
    Arrow need not compare them with the length.
    """
    if validity.null_count == columns.record_count:
        return pa.nulls(columns.record_count, pa.binary())
    bounds = pa.py_buffer(columns.bounds)
    positions = memoryview(columns.bounds).cast("i")
    gathered = []
    for part in columns.parts:
        count = part.record_count
        buffers = [None, bounds, pa.py_buffer(part.data)]
        is_like_others = (positions[first + 1] - positions[first]) * count <= len(part.data)
        length = 1 if is_like_others else 4 * count - 3
        everything = pa.Array.from_buffers(pa.binary(), length, buffers, null_count=0, offset=first)
        fourths = FOURTHS.slice(0, count) if count <= len(FOURTHS) else _each_fourth(count)
        gathered.append(TAKE.call([everything, fourths], UNCHECKED, POOL))
        first += 4 * count
    whole = gathered[0] if len(gathered) == 1 else pa.concat_arrays(gathered, memory_pool=POOL)
    _, offsets, data = whole.buffers()
    return pa.Array.from_buffers(
        pa.binary(),
        columns.record_count,
        # Arrow makes no buffer where there are no bytes.
        [_bits(validity), offsets, NO_BYTES if data is None else data],
        null_count=validity.null_count,
    )


def fixed_array(kind: pa.DataType, count: int, data: bytes | array[int]) -> pa.Array:
    """Numbers of one size, of which none is null."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)], null_count=0)


def repeated_text(text: str, count: int) -> pa.Array:
    data = text.encode()
    ends = array("i", (0, len(data)))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return _repeated(pa.Array.from_buffers(pa.string(), 1, buffers, null_count=0), count)


def repeated_number(number: int, count: int) -> pa.Array:
    """Of 32 bits."""
    return _repeated(fixed_array(pa.int32(), 1, array("i", (number,))), count)


def _repeated(one: pa.Array, count: int) -> pa.Array:
    return TAKE.call([one, fixed_array(pa.int32(), count, bytes(4 * count))], memory_pool=POOL)


# A MiB: enough for what a poll takes of records of 64 bytes or more.
FOURTHS: Final = _each_fourth(262_144)


def binary_array(kind: pa.DataType, column: BinaryColumn) -> pa.Array:
    return pa.Array.from_buffers(
        kind,
        len(column.offsets) // 4 - 1,
        [_bits(column.validity), pa.py_buffer(column.offsets), pa.py_buffer(column.data)],
        null_count=column.validity.null_count,
    )


def headers_array(kind: pa.ListType, columns: RecordColumns) -> pa.Array:
    """A list a record, empty where it has no headers; the kind is a list of structs of a string and a binary."""
    names = binary_array(pa.string(), columns.header_names)
    values = binary_array(pa.binary(), columns.header_values)
    pairs = pa.Array.from_buffers(kind.value_type, len(names), [None], null_count=0, children=[names, values])
    return pa.Array.from_buffers(
        kind,
        columns.record_count,
        [None, pa.py_buffer(columns.header_offsets)],
        null_count=0,
        children=[pairs],
    )


def _bits(validity: Validity) -> pa.Buffer | None:
    return None if validity.bits is None else pa.py_buffer(validity.bits)
