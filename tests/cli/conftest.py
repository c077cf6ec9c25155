from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.cli.main import main


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
