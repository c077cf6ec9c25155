"""Back to 0.1 by the recipe of docs/UPGRADING.md: the old version itself runs on a directory of today."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas import ConfigResource, ResourceType
from barnabas.testing import Broker
from tests.upgrading.old_directory import CLEAN, seen
from tests.upgrading.test_directories import ARCHIVES, SETTINGS, unpacked

ROOT: Final = Path(__file__).parents[2]
# The last commit of 0.1.
LAST_OF_0_1: Final = "d063abe^"
TIMEOUT_S: Final = 120
# In the old version: what it serves from a directory, and what it can still do there.
PROGRAM: Final = """
import json, sys
sys.path.insert(0, sys.argv[1])
from old_directory import seen
from barnabas.testing import Broker

with Broker(directory=sys.argv[2], **json.loads(sys.argv[3])) as broker:
    with broker.producer(transactional_id="bank") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("payments", b"by 0.1", timestamp_ms=1_700_000_000_000).result()
        producer.commit_transaction()
    found = seen(broker.bootstrap)
    log = broker.log()
print(json.dumps({"seen": found, "log": log}))
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def old_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`src` of the last commit of 0.1, from the history of this repository."""
    folder = tmp_path_factory.mktemp("old")
    archive = folder / "src.tar"
    try:
        subprocess.run(
            ["git", "archive", "--output", str(archive), LAST_OF_0_1, "src"],
            cwd=ROOT,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"needs git and the history of the repository, with the commit {LAST_OF_0_1}")
    subprocess.run(["tar", "-xf", str(archive)], cwd=folder, timeout=TIMEOUT_S, check=True)
    return folder / "src"


def old_version_serves(sources: Path, directory: Path) -> dict[str, Any]:
    done = subprocess.run(
        [
            *(sys.executable, "-c", PROGRAM),
            *(str(ROOT / "tests" / "upgrading"), str(directory), json.dumps(SETTINGS)),
        ],
        env={**os.environ, "PYTHONPATH": str(sources)},
        cwd=sources,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_old_version_serves_what_the_new_one_has_written(old_sources: Path, tmp_path: Path) -> None:
    archive = next(each for each in ARCHIVES if each.name == "0.1.tar.gz")
    directory, _ = unpacked(archive, CLEAN, tmp_path)
    # The upgrade: new records, a new topic, and a change of settings.
    with Broker(directory=directory, **SETTINGS) as broker:
        with broker.admin() as admin:
            admin.create_topics(["later"])
            resource = ConfigResource(ResourceType.TOPIC, "orders")
            admin.alter_configs({resource: {"retention.ms": "1000000000000"}})
        with broker.producer() as producer:
            for topic in ("orders", "later"):
                producer.send(topic, b"after the upgrade", partition=0, timestamp_ms=1_700_000_000_000)
        upgraded = seen(broker.bootstrap)
    assert upgraded["configs"]["orders"]["retention.ms"] == "1000000000000"

    # The recipe.
    (directory / "barnabas-store.sqlite.moved").rename(directory / "barnabas-store.sqlite")
    served = old_version_serves(old_sources, directory)
    old = served["seen"]
    # All records and offsets; settings as before the upgrade.
    added = old["records"]["payments-0 read_committed"]["rows"].pop()
    assert added[3] == "by 0.1"
    for partition, records in upgraded["records"].items():
        if not partition.startswith("payments"):
            assert old["records"][partition] == json.loads(json.dumps(records)), partition
    assert old["offsets"] == json.loads(json.dumps(upgraded["offsets"]))
    assert old["configs"]["orders"]["retention.ms"] == "-1"
    assert "ERROR" not in served["log"]

    # And the new version again: its own settings, and what 0.1 has written.
    with Broker(directory=directory, **SETTINGS) as broker:
        again = seen(broker.bootstrap)
        assert "ERROR" not in broker.log()
    assert again["configs"] == upgraded["configs"]
    assert again["records"]["payments-0 read_committed"]["rows"][-1][3] == "by 0.1"
    for part in ("topics", "offsets", "quotas"):
        assert again[part] == upgraded[part], part
