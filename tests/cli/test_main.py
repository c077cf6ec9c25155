from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from barnabas import __version__
from barnabas.broker import dispatch
from barnabas.cli import version
from barnabas.cli.main import COMMANDS
from tests.cli.conftest import Barnabas


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_the_commands(barnabas: Barnabas, flag: str) -> None:
    result = barnabas(flag)
    assert result.exit_code == 0
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name}" in result.stdout
        assert summary in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_there(barnabas: Barnabas, command: str) -> None:
    result = barnabas(command, "--help")
    assert result.exit_code == 0
    assert f"Usage: barnabas {command}" in result.stdout


def test_help_is_a_command_too(barnabas: Barnabas) -> None:
    assert barnabas("help") == barnabas("--help")
    assert barnabas("help", "topics", "create") == barnabas("topics", "create", "--help")


def test_without_a_command_there_is_help(barnabas: Barnabas) -> None:
    for words in ((), ("topics",), ("groups",), ("profile",)):
        result = barnabas(*words)
        assert result.exit_code == 2
        assert result.stderr.strip() == barnabas(*words, "--help").stdout.strip()


def test_version(barnabas: Barnabas) -> None:
    assert barnabas("--version").stdout == f"barnabas, version {__version__}\n"


def test_version_as_a_command(barnabas: Barnabas) -> None:
    assert barnabas("version") == barnabas("--version")
    assert json.loads(barnabas("version", "--json").stdout) == {"version": __version__}


def test_version_for_a_bug_report(barnabas: Barnabas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_SECRET", "hidden")
    shown = barnabas("version", "--verbose")
    assert shown.exit_code == 0
    assert "hidden" not in shown.stdout
    found = json.loads(barnabas("version", "--verbose", "--json").stdout)
    assert found["variables"].count("BARNABAS_SECRET") == 1
    assert found["compiled"] == (not str(dispatch.__file__).endswith(".py"))
    assert (found["python"], found["cores"]) == (platform.python_version(), len(os.sched_getaffinity(0)))
    assert all(found["libraries"].values()), "a test needs all of them"
    assert found["libraries"]["crc32c"] == metadata.version("crc32c")
    for text in (__version__, found["platform"], found["python"], found["openssl"], "[spark]"):
        assert text in shown.stdout


def test_version_knows_what_the_package_needs() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]

    def names(requirements: list[str]) -> tuple[str, ...]:
        return tuple(re.split(r"[<>=~; ]", each, maxsplit=1)[0] for each in requirements)

    assert names(project["dependencies"]) == version.LIBRARIES
    extras = project["optional-dependencies"]
    assert {extra: names(requirements) for extra, requirements in extras.items()} == version.EXTRAS
    assert project["version"] == __version__


@pytest.mark.parametrize("java", [None, "missing", "other"])
def test_version_without_a_working_java(
    barnabas: Barnabas, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, java: str | None
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if java is not None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / java))
    if java == "other":
        program = tmp_path / java / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\necho no such machine\nexit 3\n")
        program.chmod(0o755)
    found = json.loads(barnabas("version", "--verbose", "--json").stdout)["java"]
    expected = {None: "None", "missing": "No such file", "other": "exit code 3"}
    assert expected[java] in str(found)


def test_an_unknown_command_is_named(barnabas: Barnabas) -> None:
    result = barnabas("wrie")
    assert result.exit_code == 2
    assert "There is no command 'wrie'; did you mean wire?" in result.stderr
    assert "There is no command 'topic'; did you mean topics?" in barnabas("topic", "list").stderr
    assert "There is no command 'lst'; did you mean list?" in barnabas("topics", "lst").stderr
    assert "There is no command 'zap'; there are describe, problems" in barnabas("cluster", "zap").stderr
    assert "Did you mean '--json'?" in barnabas("topics", "list", "--jsn").stderr


def test_a_reader_that_has_gone_is_no_fault_of_ours() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as output:
        child = subprocess.run(
            [sys.executable, "-m", "barnabas", "wire", "apis"],
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert child.returncode == 1
    assert child.stderr == b""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(closed: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m barnabas --help {closed}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
