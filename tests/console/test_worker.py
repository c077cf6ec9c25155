"""What a worker process does with a file, in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from barnabas.console.search import worker
from barnabas.console.search.chunks import Bounds
from barnabas.console.search.pieces import Piece, piece_of
from barnabas.console.search.worker import Searcher
from barnabas.log.reader.partition_files import SegmentFile
from barnabas.log.reader.transactions import Aborted
from tests.console.test_matcher import batch

ALL = Bounds(start_offset=0, end_offset=2**63 - 1, start_ms=-(2**63), end_ms=2**63 - 1)


def piece(path: Path, *, is_last: bool = True) -> Piece:
    status = path.stat()
    segment = SegmentFile(
        path=str(path),
        inode=status.st_ino,
        size_bytes=status.st_size,
        base_offset=0,
        end_base_offset=None if is_last else 1_000,
    )
    return Piece(
        partition=0, bounds=ALL, size_bytes=status.st_size, segment=segment, end_position=status.st_size
    )


def searched(wanted: Piece, query: str, **fields: Any) -> tuple[list[int], list[str], int]:
    """The offsets of hits, the warnings, and the number of records that were seen."""
    told: list[dict[str, Any]] = []
    form = {"topic": "t", "query": query, "hits_max": 100, "preview_bytes": 1_000, "settings": {}}
    form |= {"is_newest_first": False, **fields}
    for _ in Searcher(form, told.append).search(wanted):
        pass
    return (
        [each["hit"]["offset"] for each in told if "hit" in each],
        [each["warning"] for each in told if "warning" in each],
        sum(each.get("records", 0) for each in told),
    )


def segment_file(folder: Path, *parts: bytes) -> Path:
    path = folder / "00000000000000000000.log"
    path.write_bytes(b"".join(parts))
    return path


BATCHES = [batch(number * 2, [(b"k%d" % number, b"needle", ()), (None, b"hay", ())]) for number in range(5)]


@pytest.mark.parametrize("chunk_bytes", [20, 70, 200, 1 << 20])
def test_chunks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(worker, "CHUNK_BYTES", chunk_bytes)
    path = segment_file(tmp_path, *BATCHES)
    assert searched(piece(path), "needle") == ([0, 2, 4, 6, 8], [], 10)


def test_the_number_of_hits_is_bounded(tmp_path: Path) -> None:
    path = segment_file(tmp_path, *BATCHES)
    assert searched(piece(path), "needle", hits_max=2)[0] == [0, 2]


@pytest.mark.parametrize("chunk_bytes", [70, 1 << 20])
def test_the_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(worker, "CHUNK_BYTES", chunk_bytes)
    path = segment_file(tmp_path, *BATCHES)
    assert searched(piece(path), "", is_newest_first=True) == (list(range(9, -1, -1)), [], 10)
    assert searched(piece(path), "needle", is_newest_first=True, hits_max=2)[0] == [8, 6]


@pytest.mark.parametrize("is_last", [True, False])
def test_a_batch_that_is_being_written(tmp_path: Path, is_last: bool) -> None:
    """At the end of the log it is normal; in the middle it is damage."""
    path = segment_file(tmp_path, *BATCHES[:2], BATCHES[2][:-1])
    found, warnings, _ = searched(piece(path, is_last=is_last), "needle")
    assert found == [0, 2]
    assert bool(warnings) is not is_last


def test_damage_is_reported(tmp_path: Path) -> None:
    wrong = bytearray(BATCHES[1])
    wrong[-3] ^= 1
    path = segment_file(tmp_path, BATCHES[0], bytes(wrong), BATCHES[2])
    found, warnings, _ = searched(piece(path), "k")
    assert found == [0, 4]
    assert len(warnings) == 1
    path.write_bytes(BATCHES[0] + b"\\xff" * 500 + BATCHES[1])
    found, warnings, _ = searched(piece(path, is_last=False), "needle")
    assert found == [0]
    assert "is damaged at position" in warnings[0]


def test_a_file_that_is_gone_or_truncated(tmp_path: Path) -> None:
    path = segment_file(tmp_path, *BATCHES)
    wanted = piece(path)
    os.truncate(path, 0)
    assert searched(wanted, "needle")[1] == [f"{path} was truncated while it was searched"]
    path.unlink()
    (warning,) = searched(wanted, "needle")[1]
    assert "was deleted or compacted" in warning


def test_the_json_form_of_a_piece(tmp_path: Path) -> None:
    wanted = piece(segment_file(tmp_path, *BATCHES))
    assert piece_of(wanted.as_json()) == wanted
    form = {**wanted.as_json(), "aborted": [[7, 0, 5]]}
    assert piece_of(form).aborted == (Aborted(7, 0, 5),)
