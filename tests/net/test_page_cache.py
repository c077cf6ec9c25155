from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.net import page_cache
from tests.net.plain_file import PlainFile


@pytest.mark.parametrize(
    "probe", [page_cache.choose_probe(), page_cache.probed_by_reading], ids=["chosen", "reading"]
)
def test_what_was_just_read_is_cached(tmp_path: Path, probe: page_cache.Probe) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(300_000))
    file = PlainFile(path)
    page_cache.read_ahead(file, 0, 300_000)
    assert probe(file.fileno(), 0, 300_000)
    assert probe(file.fileno(), 4_095, 2)
    assert probe(file.fileno(), 299_999, 1)
    page_cache.read_ahead(file, 290_000, 1 << 30)


@pytest.mark.parametrize(
    "probe", [page_cache.choose_probe(), page_cache.probed_by_reading], ids=["chosen", "reading"]
)
def test_what_was_dropped_is_not_cached(tmp_path: Path, probe: page_cache.Probe) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(300_000))
    file = PlainFile(path)
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if page_cache.always_cached is page_cache.choose_probe() or probe(file.fileno(), 0, 300_000):
        pytest.skip("this file system keeps its pages whatever it is told, so there is nothing to see")
    page_cache.read_ahead(file, 0, 300_000)
    assert probe(file.fileno(), 0, 300_000)


@pytest.mark.parametrize(
    "probe", [page_cache.choose_probe(), page_cache.probed_by_reading], ids=["chosen", "reading"]
)
def test_a_descriptor_that_cannot_be_probed_counts_as_cached(probe: page_cache.Probe) -> None:
    assert probe(-1, 0, 10)
