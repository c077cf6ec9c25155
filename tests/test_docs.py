"""The documents are correct: their examples run, their tables match the code, and the files that they name exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.requests.routes import ROUTES
from barnabas.protocol.apis import APIS
from barnabas.testing import Broker

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
# Paths of a user's files, in examples.
NOT_FILES = {"checkpoints/NAME"}

TIMEOUT_S = 120


def walks() -> list[tuple[str, list[str]]]:
    """The walks of docs/ARCHITECTURE.md, each with its files in order."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("\n## Walks\n")[2].partition("\n## ")[0]
    return [
        (heading, re.findall(r"^\d+\. `([\w/]+\.py)`", body, re.MULTILINE))
        for heading, body in re.findall(r"^### (.*)\n((?:(?!### ).*\n?)*)", section, re.MULTILINE)
    ]


WALKS = walks()


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


@pytest.mark.slow
def test_the_lines_of_a_start(tmp_path: Path) -> None:
    """The README shows all lines that a broker logs when it starts."""
    variable = re.compile(r"^\[.*?\]|cluster \S+|in /\S+|PLAINTEXT://\S+|after [\d.]+ s")
    shown = re.findall(r"^    (\[\d{4}-.*)$", README, re.MULTILINE)
    with Broker(directory=tmp_path) as first:
        logged = first.log().splitlines()
    assert [variable.sub("…", line) for line in logged] == [variable.sub("…", line) for line in shown]


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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_exist(document: Path) -> None:
    """Files of the repository, and modules by their path below `src/barnabas`."""
    folders = (ROOT, ROOT / "src" / "barnabas", document.parent)
    for name in re.findall(r"`((?:\w+/)+[\w.-]*)`", document.read_text(encoding="utf-8")):
        is_found = any((folder / name).exists() for folder in folders)
        assert is_found or name in NOT_FILES, name


def test_the_picture_of_the_house_is_the_contract() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    picture = re.findall(r"^    (.+)$", text.partition("## Rooms")[2].partition("\n| ")[0], re.MULTILINE)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    assert contract["containers"] == ["barnabas"]
    assert picture == contract["layers"]


def test_architecture_names_every_part() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "barnabas"
    parts = {path.parent.relative_to(package).as_posix() for path in package.rglob("__init__.py")} - {"."}
    assert parts
    assert not [part for part in sorted(parts) if f"`{part}`" not in text]


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk[0])
def test_walks_go_forward(walk: tuple[str, list[str]]) -> None:
    """At most one step of a walk leads back to a file that it has passed already."""
    _, files = walk
    assert len(files) >= 5
    assert len(files) - len(set(files)) <= 1
