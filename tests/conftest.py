from __future__ import annotations

import gc
import os

import pytest

from barnabas.log import file_system
from tests import sampling
from tests.log.golden.images import Image, extract


def pytest_configure(config: pytest.Config) -> None:
    sampling.is_fast_run = config.option.markexpr == "not slow"
    if sampling.is_fast_run:
        leave_files_unsynced()


def leave_files_unsynced() -> None:
    """No test cuts the power of this machine: crashes are simulated, or end a process. Runs with slow tests sync."""
    for name in ("_sync_all", "_sync_data"):
        # Of a descriptor that is not open it raises what a sync raises.
        setattr(file_system, name, os.fstat)


def pytest_collection_finish() -> None:
    """Leaves what is there now out of garbage collections: it stays to the end, and each of them would visit it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image]:
    """All log directories that Kafka has left, for reading: a test that writes copies what it writes to."""
    return extract(tmp_path_factory.mktemp("kafka-logdirs"))
