"""What the documents say is so, and what the README shows is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.requests.routes import ROUTES
from barnabas.protocol.apis import APIS
from barnabas.testing import Broker

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

TIMEOUT_S = 120


def sessions() -> list[list[tuple[str, str]]]:
    """The console blocks, each as commands with the output below them; `>` continues a command."""
    blocks = re.findall(r"^```console\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [
        [
            (command.replace("\n>", "\n"), output)
            for command, output in re.findall(r"^\$ (.*\n(?:> .*\n)*)((?:[^$].*\n)*)", block, re.MULTILINE)
        ]
        for block in blocks
    ]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("session", sessions(), ids=lambda session: session[0][0].strip()[:40])
def test_the_tour(session: list[tuple[str, str]], tmp_path: Path, broker: Broker) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    programs = tmp_path / "bin"
    programs.mkdir()
    command_file = programs / "barnabas"
    command_file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m barnabas "$@"\n')
    command_file.chmod(0o755)
    import_path = os.pathsep.join(
        str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry
    )
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": import_path,
        "PYTHONUTF8": "1",
        "BARNABAS_BOOTSTRAP": broker.bootstrap,
    }
    for command, output in session:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.stdout == output, command


def programs() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_programs(broker: Broker) -> None:
    """In their order: the later ones use what the first ones have made."""
    for program in programs():
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program.replace("localhost:9092", broker.bootstrap)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), program


def test_the_tour_is_not_empty() -> None:
    assert sum(len(session) for session in sessions()) >= 15
    assert len(programs()) >= 5


def test_the_table_of_apis() -> None:
    text = (ROOT / "docs" / "COMPATIBILITY.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\w+) \| ([\d-]+) \| ([\d–-]+) \|", text, re.MULTILINE)
    advertised = {route.api.key: versions(route.first_version, route.last_version) for route in ROUTES}
    assert rows == [
        (str(api.key), api.name, versions(api.first_version, api.last_version), advertised.get(api.key, "–"))
        for api in APIS
    ]


def versions(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
