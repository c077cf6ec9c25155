"""The offset map against a dictionary."""

from __future__ import annotations

import random

from barnabas.log.cleaner.offset_map import ENTRY_BYTES, OffsetMap


def test_last_offset_of_each_key() -> None:
    rng = random.Random(1)
    table = OffsetMap(64 * 1024)
    model: dict[bytes, int] = {}
    for offset in range(6000):
        key = rng.randbytes(rng.randrange(0, 3))
        if table.is_full and key not in model:
            continue
        table.put(key, offset)
        model[key] = offset
    assert table.size == len(model)
    assert {key: table.get(key) for key in model} == model
    assert table.get(b"never put") == -1


def test_doubles_up_to_its_bound() -> None:
    table = OffsetMap(8192 * ENTRY_BYTES + 1)
    assert table.capacity == int(8192 * 0.9)
    for offset in range(table.capacity):
        assert not table.is_full
        table.put(b"%d" % offset, offset)
    assert table.is_full
    assert all(table.get(b"%d" % offset) == offset for offset in range(table.capacity))
    table.put(b"0", 10**12)
    assert table.get(b"0") == 10**12


def test_clear_forgets() -> None:
    table = OffsetMap(1)
    table.put(b"k", 7)
    table.latest_offset = 7
    table.clear()
    assert table.size == 0
    assert table.get(b"k") == -1
    assert table.latest_offset == -1
