"""`barnabas log` as a person calls it: output, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from barnabas.cli.log import log
from barnabas.model import TimestampMs
from barnabas.records.builder import BatchBuilder


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(log, [str(argument) for argument in arguments])


def partition(folder: Path) -> Path:
    directory = folder / "topic-0"
    directory.mkdir()
    builder = BatchBuilder()
    builder.append(TimestampMs(1000), b"key", b"value")
    (directory / "00000000000000000000.log").write_bytes(builder.build())
    (directory / "00000000000000000000.index").touch()
    (directory / "00000000000000000000.timeindex").write_bytes((1000).to_bytes(8, "big") + bytes(4))
    return directory


def test_dump(tmp_path: Path) -> None:
    file = partition(tmp_path) / "00000000000000000000.log"
    result = run("dump", file)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == str(file)
    assert "base_offset: 0 last_offset: 0 count: 1" in result.stdout
    lines = [json.loads(line) for line in run("dump", "--json", "--records", file).stdout.splitlines()]
    assert (lines[1]["key"], lines[1]["value"]) == (b"key".hex(), b"value".hex())
    file.write_bytes(file.read_bytes()[:-1])
    damaged = run("dump", file)
    assert damaged.exit_code == 1
    assert "position: 0 fault: " in damaged.stdout


def test_verify(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    assert run("verify", tmp_path).exit_code == 0
    assert run("verify", directory).exit_code == 0
    (directory / "00000000000000000000.index").unlink()
    result = run("verify", tmp_path)
    assert result.exit_code == 1
    assert result.stdout == f"{directory}/00000000000000000000.index: position 0: the index is not there\n"
    assert result.stderr == "1 fault\n"
