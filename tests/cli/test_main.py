from __future__ import annotations

import os
import subprocess
import sys

import pytest

from barnabas import __version__
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
