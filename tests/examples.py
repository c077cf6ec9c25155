"""Runs the examples of a page in their order, in one shell, as a reader would.

- A block `console` has commands after `$` (`>` continues one) with the output below. A line … stands for any lines,
  and … within a line for any text.
- A block `python` is a program. It must end without an error or a warning.
- A block with a `title` is a file of this name in the directory of the page.

Ports of the page (localhost:9092 and so on) are free ports of this machine instead. A page that starts no broker finds
one there, and a page that uses a schema registry finds one, too. A command that ends with `&` and writes its log to a
file runs until the page ends or kills it; the next command waits until the log says that the broker is ready.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.testing import Broker
from barnabas.testing.ports import free_ports
from tests.client.schemas.registry_server import RegistryServer

ROOT: Final = Path(__file__).parents[1]
TIMEOUT_S: Final = 120
FIRST_PORT: Final = 9092
# 9092 and the ports after it; the metrics, and the ports after those.
PORT_COUNT: Final = 4
METRICS_PORT: Final = 9404
REGISTRY: Final = "http://localhost:8081"
_BLOCK: Final = re.compile(
    r"^```(\w*)(?:[^\S\n]+title=\"([^\"]+)\")?[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_COMMAND: Final = re.compile(r"^\$ (.*\n(?:> .*\n)*)((?:(?!\$ ).*\n)*)", re.MULTILINE)
_IN_BACKGROUND: Final = re.compile(r"2> ?(\S+) &$")


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    title: str
    text: str

    def commands(self) -> list[tuple[str, str]]:
        """Those of a block `console`, each with the output below it."""
        return [
            (command.replace("\n> ", "\n").strip(), output) for command, output in _COMMAND.findall(self.text)
        ]


def blocks(text: str) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(text)]


def matches(output: str, shown: str) -> bool:
    """Empty lines at the end do not count, and the last line need not end."""
    lines = [
        "(?:.*\n)*" if line == "…\n" else re.escape(line).replace("…", ".*")
        for line in _ended(shown).splitlines(keepends=True)
    ]
    return re.fullmatch("".join(lines), _ended(output)) is not None


def _ended(text: str) -> str:
    lines = text.rstrip("\n")
    return f"{lines}\n" if lines else ""


class Shell:
    """A shell that runs one command after the other, and ends with all that it has started."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._buffer = b""
        self._number = 0

    def run(self, command: str) -> tuple[int, str]:
        """Its exit code and what it has printed, errors too."""
        self._number += 1
        mark = f"end-of-command-{self._number}"
        log = _IN_BACKGROUND.search(command)
        if log is not None:
            # That of an earlier broker says that it is ready.
            (self._directory / log[1]).unlink(missing_ok=True)
        script = self._directory / f".{mark}"
        script.write_text(f"{command}\n", encoding="utf-8")
        assert self._process.stdin is not None
        self._process.stdin.write(f'. "{script}" < /dev/null; echo "{mark} $?"\n'.encode())
        self._process.stdin.flush()
        output, code = self._read_until(mark.encode(), command)
        if log is not None:
            self._await_ready(self._directory / log[1])
        return code, output

    def _read_until(self, mark: bytes, command: str) -> tuple[str, int]:
        deadline_s = time.monotonic() + TIMEOUT_S
        assert self._process.stdout is not None
        end = re.compile(re.escape(mark) + rb" (\d+)\n")
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while (found := end.search(self._buffer)) is None:
                assert selector.select(deadline_s - time.monotonic()), f"no end: {command}\n{self._buffer!r}"
                piece = os.read(self._process.stdout.fileno(), 1 << 16)
                assert piece, f"the shell ended: {command}\n{self._buffer!r}"
                self._buffer += piece
        output, self._buffer = self._buffer[: found.start()], self._buffer[found.end() :]
        return output.decode(), int(found[1])

    def _await_ready(self, log: Path) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while " Ready after " not in (text := log.read_text(encoding="utf-8") if log.exists() else ""):
            assert time.monotonic() < deadline_s, f"the broker is not ready:\n{text}"
            assert self._process.poll() is None
            time.sleep(0.02)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            # Brokers stop in order; a shell that waits for them ends after them.
            self._process.stdin.write(b"kill $(jobs -p) 2> /dev/null; wait\n")
            self._process.stdin.close()
            self._process.wait(TIMEOUT_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(TIMEOUT_S)
        finally:
            self._process.stdout.close()


# A broker without a file, and without listeners on the command line, would listen on port 9092. Groups need not wait
# for more members than a page has.
_START: Final = """
if [ "$1" = start ]; then
    set -- "$@" --override group.initial.rebalance.delay.ms=0
    case "$*" in
        *listeners=* | *.properties*) ;;
        *) set -- "$@" --override listeners=PLAINTEXT://localhost:{port} ;;
    esac
fi
"""


def environment_of(directory: Path, port: int) -> dict[str, str]:
    """With `barnabas`, `python` and `pytest` of this interpreter and these sources."""
    programs = directory / "bin"
    programs.mkdir()
    for name, arguments in (
        ("barnabas", "-m barnabas"),
        ("python", ""),
        ("pytest", "-m pytest -p no:cacheprovider"),
    ):
        program = programs / name
        first = _START.format(port=port) if name == "barnabas" else ""
        program.write_text(f'#!/bin/sh\n{first}exec "{sys.executable}" {arguments} "$@"\n')
        program.chmod(0o755)
    import_path = os.pathsep.join(
        str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry
    )
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("BARNABAS_", "PYTEST_"))
    }
    return {
        **kept,
        "HOME": str(directory),
        "XDG_CONFIG_HOME": str(directory / ".config"),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": import_path,
        "PYTHONUTF8": "1",
        "COLUMNS": "80",
    }


class Ports:
    """The ports of a page, and those that stand for them here."""

    def __init__(self) -> None:
        first, metrics = free_ports(PORT_COUNT), free_ports(PORT_COUNT)
        self.first = first
        self._actual = {
            **{str(FIRST_PORT + number): str(first + number) for number in range(PORT_COUNT)},
            **{str(METRICS_PORT + number): str(metrics + number) for number in range(PORT_COUNT)},
        }
        self._shown = {actual: shown for shown, actual in self._actual.items()}

    def actual(self, text: str) -> str:
        return self._replaced(text, self._actual)

    def shown(self, text: str) -> str:
        return self._replaced(text, self._shown)

    def _replaced(self, text: str, table: dict[str, str]) -> str:
        return re.sub(r"\b(?:" + "|".join(table) + r")\b", lambda found: table[found[0]], text)


def run_page(
    text: str,
    directory: Path,
    *,
    start: Callable[[int], AbstractContextManager[object]] | None = None,
    variables: Mapping[str, str] | None = None,
) -> int:
    """Runs all examples of a page; returns how many commands and programs there were.

    `start` starts what the page expects on a port, which is otherwise a broker.
    """
    found = blocks(text)
    commands = [command for block in found if block.language == "console" for command, _ in block.commands()]
    count = 0
    ports = Ports()
    with ExitStack() as stack:
        if start is not None:
            stack.enter_context(start(ports.first))
        elif not any(command.startswith("barnabas start") for command in commands):
            stack.enter_context(Broker(port=ports.first))
        if REGISTRY in text:
            registry = stack.enter_context(RegistryServer())
            text = text.replace(REGISTRY, registry.url)
            found = blocks(text)
        environment = environment_of(directory, ports.first)
        # The default of commands is localhost:9092.
        environment["BARNABAS_BOOTSTRAP"] = f"localhost:{ports.first}"
        shell = Shell(directory, environment | dict(variables or {}))
        stack.callback(shell.close)
        for block in found:
            if block.title:
                file = directory / block.title
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(ports.actual(block.text), encoding="utf-8")
            elif block.language == "console":
                for command, shown in block.commands():
                    code, output = shell.run(ports.actual(command))
                    output = ports.shown(output)
                    assert matches(output, shown), f"$ {command}\n{output}\ninstead of\n{shown}"
                    assert code == 0 or "barnabas: " in shown, f"exit code {code}: $ {command}\n{output}"
                    count += 1
            elif block.language == "python":
                program = directory / f".program-{count}.py"
                program.write_text(ports.actual(block.text), encoding="utf-8")
                is_ours = "barnabas" in block.text
                strictly = "-W error" if is_ours else ""
                code, output = shell.run(f'python {strictly} "{program}" > /dev/null')
                # Other clients may log and warn.
                assert (code, output if is_ours else "") == (0, ""), f"{block.text}\n{output}"
                count += 1
    return count
