"""Commands on a terminal: a pseudo-terminal of a given width, whose input is typed and whose screen is read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tests.waiting import Deadline, wait_until

# This bounds a wait on a busy machine; it is not what is expected.
TIMEOUT_S = 60
CTRL_C = "\x03"
CTRL_D = "\x04"
_STYLE = re.compile(rb"\x1b\[[0-9;]*m")


class Terminal:
    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self._process = process
        self._seen = b""

    @property
    def screen(self) -> str:
        """All that was shown, without colours; other control characters are still there."""
        return _STYLE.sub(b"", self._seen).replace(b"\r\n", b"\n").decode()

    @property
    def raw(self) -> bytes:
        return self._seen

    def wait_for(self, text: str) -> None:
        deadline = Deadline(TIMEOUT_S)
        while text not in self.screen:
            assert self._read(deadline), self.screen

    def wait_until_it_reads(self) -> None:
        """After a question. A Ctrl-C between the question and the read would only be seen with the next key."""
        status = Path(f"/proc/{self._process.pid}/stat")
        wait_until(
            lambda: status.read_text().rpartition(")")[2].split()[0] == "S",
            timeout_s=TIMEOUT_S,
            poll_s=0.002,
        )

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def finish(self) -> int:
        """The exit code, when all has been read."""
        deadline = Deadline(TIMEOUT_S)
        while self._read(deadline):
            pass
        return self._process.wait(TIMEOUT_S)

    def _read(self, deadline: Deadline) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], deadline.left_s)
        assert ready, f"nothing came: {self.screen}"
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            # Linux says so when the last process has closed its end.
            return False
        self._seen += data
        return bool(data)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Shells start what runs in the background with Ctrl-C ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def on_terminal(
    *arguments: str,
    columns: int = 80,
    stdout: BinaryIO | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Terminal]:
    """Runs `barnabas` on a terminal of its own, which does not outlive the test; its output may go elsewhere."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    removed = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", *arguments],
        stdin=theirs,
        stdout=theirs if stdout is None else stdout,
        stderr=theirs,
        env={
            **{name: value for name, value in os.environ.items() if name not in removed},
            "TERM": "xterm-256color",
            **(environment or {}),
        },
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(theirs)
    try:
        yield Terminal(mine, process)
    finally:
        process.kill()
        process.wait()
        os.close(mine)
