from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.cli.main import main
from barnabas.testing import Broker

# The first record of the topic `numbered`.
START_MS: Final = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    exit_code: int
    stdout: str
    stderr: str


Barnabas = Callable[..., Result]


@pytest.fixture
def barnabas(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Barnabas:
    """`barnabas("wire", "apis", stdin=b"…")` runs the command in this process."""

    def run(*arguments: str | Path, stdin: bytes = b"") -> Result:
        input_path = tmp_path / "stdin"
        input_path.write_bytes(stdin)
        monkeypatch.setattr(sys, "argv", ["barnabas", *map(str, arguments)])
        with io.TextIOWrapper(input_path.open("rb")) as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            with pytest.raises(SystemExit) as caught:
                main()
        captured = capfd.readouterr()
        assert isinstance(caught.value.code, int)
        assert "Traceback" not in captured.err
        return Result(exit_code=caught.value.code, stdout=captured.out, stderr=captured.err)

    return run


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One for all tests of a module."""
    with Broker() as running:
        yield running
        assert "Traceback" not in running.log()


@pytest.fixture
def run(barnabas: Barnabas, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Barnabas:
    """Runs a command against the broker."""
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", broker.bootstrap)
    return barnabas


@pytest.fixture
def ok(run: Barnabas) -> Callable[..., str]:
    """What a command prints that succeeds."""

    def call(*arguments: str | Path, stdin: bytes = b"") -> str:
        result = run(*arguments, stdin=stdin)
        assert result.exit_code == 0, result
        return result.stdout

    return call


@pytest.fixture
def rows(ok: Callable[..., str]) -> Callable[..., Any]:
    """What a command prints with --json."""
    return lambda *arguments: json.loads(ok(*arguments, "--json"))


@pytest.fixture
def numbered(broker: Broker) -> Iterator[str]:
    """A topic of two partitions with ten records each, a second apart: r-<partition>-<number>."""
    with broker.admin() as admin:
        admin.create_topics({"numbered": 2})
        with broker.producer() as producer:
            for partition in range(2):
                for number in range(10):
                    producer.send(
                        "numbered",
                        f"r-{partition}-{number}".encode(),
                        key=f"k{number}".encode(),
                        partition=partition,
                        timestamp_ms=START_MS + number * 1000,
                        headers={"n": str(number).encode()},
                    )
        yield "numbered"
        admin.delete_topics("numbered")
