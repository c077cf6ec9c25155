"""A broker in a process of its own, as people run it: `barnabas start`.

The port stays the same over restarts. It is taken from below the range in which the system chooses ports: there no
client that tries to reconnect can be given the broker's own port by chance.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from barnabas.testing import free_port
from tests.broker.raw_client import RawClient
from tests.waiting import Deadline

# These bound a wait on a busy machine; they are not what is expected.
START_TIMEOUT_S: Final = 90
STOP_TIMEOUT_S: Final = 90
POLL_S: Final = 0.01

READY: Final = "Ready after"


class BrokerProcess:
    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.host = "127.0.0.1"
        self.port = free_port()
        self.overrides = dict(overrides or {})
        # A program that runs the broker elsewhere, as in a network namespace, with its arguments.
        self.prefix: list[str] = []
        # Resource limits by their number, as setrlimit takes them.
        self.limits: dict[int, int] = {}
        self.log_file = directory.with_name(f"{directory.name}.log")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self, client_id: str = "test") -> RawClient:
        return RawClient(self.port, host=self.host, client_id=client_id)

    def settings(self) -> dict[str, str]:
        return {
            "log.dirs": str(self.directory),
            "listeners": f"PLAINTEXT://{self.address}",
            # Records in tests may be years old: nobody is to delete them while a slow machine gets around to them.
            "log.initial.task.delay.ms": "3600000",
            # As good as Kafka's 50, with a tenth of the files.
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.num.partitions": "5",
            **self.overrides,
        }

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "barnabas", "start"),
            *(word for name, value in self.settings().items() for word in ("--override", f"{name}={value}")),
        ]

    def begin_start(self) -> None:
        assert self._process is None
        with self.log_file.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                [*self.prefix, *self._limiting(), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _limiting(self) -> list[str]:
        """A program that limits itself and then becomes the broker."""
        if not self.limits:
            return []
        setting = ";".join(
            f"setrlimit({number}, ({limit}, {limit}))" for number, limit in self.limits.items()
        )
        becoming = "os.execv(sys.argv[1], sys.argv[1:])"
        return [
            sys.executable,
            "-c",
            f"import os, sys; from resource import setrlimit; {setting}; {becoming}",
        ]

    def start(self) -> None:
        self.begin_start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        self.wait_for_line(READY, START_TIMEOUT_S)

    def log_text(self) -> str:
        """What this run of the broker has written so far."""
        with self.log_file.open("rb") as output:
            output.seek(self._log_start)
            return output.read().decode(errors="replace")

    def wait_for_line(self, text: str, timeout_s: float) -> str:
        """The first line of this run that has the text in it."""
        assert self._process is not None
        deadline = Deadline(timeout_s)
        while True:
            ended = self._process.poll() is not None
            for line in self.log_text().splitlines(keepends=True):
                if text in line and line.endswith("\n"):
                    return line.rstrip("\n")
            assert not ended, f"the broker ended without {text!r}:\n{self.log_text()[-4000:]}"
            deadline.check(lambda: f"no {text!r}:\n{self.log_text()[-4000:]}")
            time.sleep(POLL_S)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """The exit code of a broker that ends by itself."""
        assert self._process is not None
        code = self._process.wait(timeout_s)
        self._process = None
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tells the broker to stop in order; its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        assert self.stop() == 0, self.log_text()[-4000:]
        self.start()

    def cpu_seconds(self) -> float:
        """User and system time since its start."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def restarting(broker: BrokerProcess, *, times: int) -> Iterator[threading.Event]:
    """Restarts the broker in a thread while the test goes on; the event tells that it is up again for good."""
    is_over = threading.Event()
    failures: list[BaseException] = []

    def restart() -> None:
        try:
            for _ in range(times):
                broker.restart()
        except BaseException as error:
            failures.append(error)
        finally:
            is_over.set()

    thread = threading.Thread(target=restart, name="restarts")
    thread.start()
    try:
        yield is_over
    finally:
        thread.join()
    if failures:
        raise failures[0]
