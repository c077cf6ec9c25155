"""Damaged log directories, read without a broker: no record is invented, and none is lost in silence."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest

from barnabas.errors import CorruptMessage
from barnabas.records.layout import CompressionType
from tests.log.compacted import CompactedLog
from tests.sampling import seeds
from tests.spark.log_reading import read_rows
from tests.spark.log_writing import COMPRESSIONS, Writer, flip, offsets, save


def test_a_damaged_batch_is_an_error_or_a_row_or_left_out(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    path = writer.segment(40)
    position = writer.positions[100]
    flip(path, position + 80)
    with pytest.raises(CorruptMessage) as raised:
        read_rows(tmp_path)
    assert str(path) in str(raised.value)
    assert f"position {position}: the checksum" in str(raised.value)
    assert "onCorruption" in str(raised.value)
    good = [*range(100), *range(105, 200)]
    assert offsets(read_rows(tmp_path, onCorruption="skip")) == good
    rows = read_rows(tmp_path, onCorruption="rows", splitBytes=4096)
    assert offsets([row for row in rows if row["error"] is None]) == good
    (bad,) = [row for row in rows if row["error"] is not None]
    assert (bad["topic"], bad["partition"], bad["file"], bad["position"]) == (
        "numbers",
        0,
        str(path),
        position,
    )
    assert (bad["offset"], bad["value"]) == (None, None)
    assert f"reading goes on at position {writer.positions[105]}" in bad["error"]


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("field", [0, 8, 16], ids=["base offset", "length", "magic"])
def test_after_a_damaged_header_reading_goes_on_where_the_index_knows_a_batch(
    tmp_path: Path, field: int, indexed: bool
) -> None:
    writer = Writer(tmp_path)
    path = writer.segment(40, indexed=indexed, compressions=[CompressionType.NONE])
    writer.segment(1)
    flip(path, writer.positions[100] + field)
    rows = read_rows(tmp_path, onCorruption="rows")
    found = offsets([row for row in rows if row["error"] is None])
    errors = [row for row in rows if row["error"] is not None]
    assert errors[0]["position"] == writer.positions[100]
    if indexed:
        assert len(errors) == 1
        assert found == [*range(100), *range(105, 205)]
    else:
        # Nobody knows where the next batch begins, unless the length is still right.
        assert set(found) >= {*range(100), *range(200, 205)}
        assert not {100, 101, 102, 103, 104} & set(found)


def test_records_that_contradict_their_batch_are_told_of_and_cost_no_other(tmp_path: Path) -> None:
    from barnabas.primitives.crc32c import crc32c

    writer = Writer(tmp_path)
    path = writer.segment(10, compressions=[CompressionType.NONE])
    data = bytearray(path.read_bytes())
    start, end = writer.positions[20], writer.positions[25]
    data[end - 1] ^= 0x7F
    data[start + 17 : start + 21] = crc32c(bytes(data[start + 21 : end])).to_bytes(4, "big")
    path.write_bytes(data)
    rows = read_rows(tmp_path, onCorruption="rows", includeHeaders=True)
    assert offsets([row for row in rows if row["error"] is None]) == [*range(20), *range(25, 50)]
    (bad,) = [row for row in rows if row["error"] is not None]
    assert bad["position"] == start
    assert "cannot be read" in bad["error"]
    with pytest.raises(CorruptMessage, match="cannot be read"):
        read_rows(tmp_path, includeHeaders=True)


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZSTD])
def test_a_torn_tail_of_the_last_segment_ends_the_log_at_any_byte(
    tmp_path: Path, compression: CompressionType
) -> None:
    writer = Writer(tmp_path)
    writer.segment(2)
    path = writer.segment(3, compressions=[compression])
    data = path.read_bytes()
    last = writer.positions[20]
    for size in {*range(last, last + 70, 3), *range(last, len(data), 17), len(data) - 1}:
        path.write_bytes(data[:size])
        assert offsets(read_rows(tmp_path)) == list(range(20)), size
    # Space that was preallocated, or what a crash has left of a write.
    path.write_bytes(data[:last] + bytes(3000))
    assert offsets(read_rows(tmp_path)) == list(range(20))


def test_a_segment_before_the_last_must_be_whole(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    path = writer.segment(3)
    writer.segment(1)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptMessage, match=r"a batch of \d+ bytes begins here, of which"):
        read_rows(tmp_path)
    assert offsets(read_rows(tmp_path, onCorruption="skip")) == [*range(10), *range(15, 20)]


def test_a_wrong_length_in_the_last_segment_is_no_torn_tail(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    path = writer.segment(10)
    flip(path, writer.positions[20] + 9)
    with pytest.raises(CorruptMessage, match=f"position {writer.positions[20]}: "):
        read_rows(tmp_path)


@pytest.mark.slow
def test_an_index_that_is_wrong_does_not_lead_astray(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    path = writer.segment(400)
    index = path.with_suffix(".index")
    good = index.read_bytes()
    rng = Random(7)
    for damaged in (
        rng.randbytes(len(good)),
        bytes(len(good)),
        good[8:] + good[:8],
        good + bytes(64_000),
        good[: len(good) // 2] + b"\x01",
        b"",
    ):
        index.write_bytes(damaged)
        assert offsets(read_rows(tmp_path, splitBytes=4096)) == list(range(2000))
        start = '{"numbers":{"0":1234}}'
        assert offsets(read_rows(tmp_path, startingOffsets=start)) == list(range(1234, 2000))
        end = '{"numbers":{"0":1234}}'
        assert offsets(read_rows(tmp_path, endingOffsets=end)) == list(range(1234))


def test_a_marker_that_cannot_be_read_does_not_hide_records_in_silence(tmp_path: Path) -> None:
    log = CompactedLog()
    log.append((b"a", b"1"), producer_id=1, transactional=True)
    log.end_transaction(1, commits=True)
    log.append((b"b", b"2"))
    save(log, tmp_path)
    (path,) = tmp_path.glob("compacted-0/*.log")
    rows = read_rows(tmp_path, mode="batches")
    marker = next(row for row in rows if row["isControl"])
    flip(path, marker["position"] + 16)
    with pytest.raises(CorruptMessage, match="corrupt at position"):
        read_rows(tmp_path, isolation="read_committed")


@pytest.mark.parametrize("seed", seeds(40, fast=5))
def test_whatever_is_damaged_no_record_is_invented(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    log = CompactedLog()
    for number in range(60):
        producer = rng.randrange(-1, 3)
        log.append(
            (b"key-%d" % number, rng.randbytes(40)),
            producer_id=producer,
            transactional=producer >= 0,
            compression=rng.choice(COMPRESSIONS),
        )
        if producer in log.transaction_of and rng.random() < 0.4:
            log.end_transaction(producer, commits=rng.random() < 0.5)
    log.log.flush()
    save(log, tmp_path)
    written = {(row.record.key, row.record.value) for row in log.written.values()}
    for path in rng.sample(files := sorted(tmp_path.rglob("*.*")), k=min(3, len(files))):
        if not path.is_file() or not path.stat().st_size:
            continue
        data = bytearray(path.read_bytes())
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        if rng.random() < 0.3:
            data += rng.randbytes(rng.randrange(200))
        path.write_bytes(data)
    for isolation in ("read_uncommitted", "read_committed"):
        rows = read_rows(tmp_path, isolation=isolation, onCorruption="skip", splitBytes=4096)
        assert {(row["key"], row["value"]) for row in rows} <= written
        told = read_rows(tmp_path, isolation=isolation, onCorruption="rows", splitBytes=4096)
        assert [row["offset"] for row in told if row["error"] is None] == offsets(rows)
        with contextlib.suppress(CorruptMessage):
            assert offsets(read_rows(tmp_path, isolation=isolation)) == offsets(rows)
    read_rows(tmp_path, mode="batches", onCorruption="rows")
