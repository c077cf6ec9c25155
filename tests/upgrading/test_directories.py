"""Directories of older versions: today's broker serves everything that their own version served."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.testing import Broker
from tests.upgrading.old_directory import CLEAN, KILLED, end_open_transaction, fill, seen

ARCHIVES: Final = sorted((Path(__file__).parents[1] / "data" / "upgrading").glob("*.tar.gz"))
# Offsets and transactional ids of a directory of years ago are as good as new ones.
SETTINGS: Final[dict[str, Any]] = {
    "offsets_retention_minutes": 2**31 - 1,
    "transactional_id_expiration_ms": 2**31 - 1,
    "log_index_size_max_bytes": 4096,
}

pytestmark = pytest.mark.slow


def unpacked(archive_path: Path, kind: str, folder: Path) -> tuple[Path, Any]:
    """The directory, and what its own version saw in it."""
    with tarfile.open(archive_path) as archive:
        archive.extractall(folder, filter="data")
    return folder / kind, json.loads((folder / f"{kind}.json").read_text())


def test_there_is_a_directory_of_the_first_version() -> None:
    assert "0.1.tar.gz" in [archive.name for archive in ARCHIVES]


@pytest.mark.parametrize("kind", [CLEAN, KILLED])
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_a_newer_version_serves_all(archive: Path, kind: str, tmp_path: Path) -> None:
    directory, expected = unpacked(archive, kind, tmp_path)
    with Broker(directory=directory, **SETTINGS) as broker:
        if kind == KILLED:
            end_open_transaction(broker.bootstrap)
        first = seen(broker.bootstrap)
        assert_equal(first, expected)
        assert "ERROR" not in broker.log()
        # What the newer version has written is good for another start, after a crash too.
        broker.kill()
        broker.start()
        assert_equal(seen(broker.bootstrap), expected)
        # And the old transactional id goes on.
        with broker.producer(transactional_id="bank") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("payments", b"later").result()
            producer.commit_transaction()
        records = seen(broker.bootstrap)["records"]["payments-0 read_committed"]["rows"]
        old_records = expected["records"]["payments-0 read_committed"]["rows"]
        assert records[: len(old_records)] == old_records
        assert [row[3] for row in records[len(old_records) :]] == ["later"]


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["records"].keys() == expected["records"].keys()
    for partition, records in expected["records"].items():
        assert found["records"][partition] == records, partition
    assert json.loads(json.dumps({**found, "records": None})) == {**expected, "records": None}


def test_what_the_directory_has_is_what_would_be_written_today(tmp_path: Path) -> None:
    """The archive is not poorer than its writer: every kind of content is in it."""
    with Broker(directory=tmp_path / "new", **SETTINGS) as broker:
        fill(broker, leaves_a_transaction_open=False)
        today = seen(broker.bootstrap)
    for archive in ARCHIVES:
        _, expected = unpacked(archive, CLEAN, tmp_path)
        for part in ("topics", "configs", "offsets", "transactions", "records"):
            assert expected[part].keys() == today[part].keys(), part
        assert {name: found["rows"] for name, found in expected["records"].items()} == {
            name: found["rows"] for name, found in today["records"].items()
        }
        assert (expected["configs"], expected["offsets"], expected["quotas"]) == (
            today["configs"],
            today["offsets"],
            today["quotas"],
        )
