"""One process of a host: the store, or a broker, over all its runs.

A process is a fork of the supervisor. It reports once through a pipe: that it is ready, or why it will never be.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn

from barnabas.errors import KafkaError

log = logging.getLogger("barnabas.server")

Report = dict[str, Any]
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
RESTART_DELAY_S: Final = 0.25
RESTART_DELAY_MAX_S: Final = 15.0
# A process that has been ready for this long has not failed to start.
STEADY_S: Final = 3.0
# For one process to end in order. Then it is killed: what it has acknowledged is in its files.
STOP_TIMEOUT_S: Final = 120.0
REPORT_BYTES_MAX: Final = 64 << 10


class _Reporter:
    """A process's end of the pipe to the supervisor. It reports once: that it is ready, or why it will never be."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, report: Report) -> None:
        os.write(self._descriptor, json.dumps(report).encode() + b"\n")
        os.close(self._descriptor)
        self._descriptor = -1

    def complain(self, text: str) -> None:
        if self._descriptor < 0:
            log.critical("%s", text)
        else:
            self.send({"error": text})


class Process:
    """The store, or one broker, over all its runs."""

    def __init__(self, name: str, run: Callable[[Callable[[Report], None]], None]) -> None:
        """`run` runs in the new process and calls its argument with a report when it is ready."""
        self.name = name
        self.run = run
        self.pid = 0
        self.is_ready = False
        self.is_given_up = False
        self.report: Report = {}
        # Why the last run ended before it was ready.
        self.error = ""
        # When to start it again; None while it runs or is not wanted.
        self.due_s: float | None = None
        self.failures = 0
        # When it is killed because it does not stop; None if nothing has asked it to.
        self.stop_deadline_s: float | None = None
        self._ready_since_s = 0.0
        self._pipe = -1
        self._received = b""

    @property
    def is_running(self) -> bool:
        return self.pid != 0

    @property
    def descriptor(self) -> int:
        """Readable when there is something to read for `receive`; -1 if there is nothing to wait for."""
        return self._pipe

    def start(self, prepare: Callable[[], None]) -> None:
        """Forks. `prepare` runs first in the new process. Raises OSError if the system has no room for another."""
        self.due_s = self.stop_deadline_s = None
        self.is_ready = False
        self.error = ""
        self._received = b""
        self._pipe, report_end = os.pipe()
        os.set_blocking(self._pipe, False)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                self._become(prepare, report_end)
        except OSError:
            os.close(self._pipe)
            self._pipe = -1
            os.close(report_end)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.close(report_end)
        self.pid = pid

    def _become(self, prepare: Callable[[], None], report_end: int) -> NoReturn:
        """The life of the new process. It never returns into the supervisor's code."""
        code = 1
        reporter = _Reporter(report_end)
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # Signals to the whole group, such as Ctrl-C, reach the supervisor alone, and it stops the others in order.
            os.setpgid(0, 0)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            os.close(self._pipe)
            # The command has switched it off while it loads modules.
            gc.enable()
            prepare()
            self.run(reporter.send)
            code = 0
        except KafkaError as error:
            reporter.complain(str(error))
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            reporter.complain(f"{where}{error.strerror or error}")
        except BaseException:
            log.critical("This is a bug in barnabas", exc_info=True)
        finally:
            for handler in logging.root.handlers:
                handler.flush()
            os._exit(code)

    def stop(self, number: int) -> None:
        """Asks it to end with this signal, the first time; kills it when its time is over."""
        now_s = time.monotonic()
        if self.stop_deadline_s is None:
            self.stop_deadline_s = now_s + STOP_TIMEOUT_S
            os.kill(self.pid, number)
        elif now_s > self.stop_deadline_s:
            self.stop_deadline_s = now_s + STOP_TIMEOUT_S
            log.error("%s did not stop within %.0f s, and is killed", self.name.capitalize(), STOP_TIMEOUT_S)
            os.kill(self.pid, signal.SIGKILL)

    def receive(self) -> bool:
        """Reads from the pipe. Returns whether the process is ready now, and was not before."""
        try:
            data = os.read(self._pipe, REPORT_BYTES_MAX)
        except BlockingIOError:
            return False
        self._received += data
        if data and not self._received.endswith(b"\n"):
            return False
        os.close(self._pipe)
        self._pipe = -1
        if not self._received.endswith(b"\n"):
            # It has ended.
            return False
        report = json.loads(self._received)
        if "error" in report:
            self.error = report["error"]
            return False
        self.report = report
        self.is_ready = True
        self._ready_since_s = time.monotonic()
        return True

    def note_end(self) -> float:
        """The process has ended. Returns the delay until it may be started again."""
        if self._pipe >= 0:
            # It may have reported in its last moment.
            self.receive()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        self.pid = 0
        self.stop_deadline_s = None
        if self.is_ready and time.monotonic() - self._ready_since_s > STEADY_S:
            self.failures = 0
        self.is_ready = False
        self.failures += 1
        if self.failures == 1:
            return 0.0
        return float(min(RESTART_DELAY_S * 2 ** (self.failures - 2), RESTART_DELAY_MAX_S))
