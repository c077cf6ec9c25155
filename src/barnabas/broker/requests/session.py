"""The broker's state of the client behind a connection."""

from __future__ import annotations

import math
from typing import Final

# The time that the worker process has spent on a client counts half as much after this long.
WORKER_HALF_LIFE_NS: Final = 10_000_000_000


class ClientSession:
    """One connection's client. Security fills in the user."""

    __slots__ = (
        "_worker_ns",
        "_worker_used_ns",
        "client_software_name",
        "client_software_version",
        "host",
        "last_job_ns",
        "listener",
        "user",
    )

    def __init__(self, *, listener: str, host: str) -> None:
        self.listener = listener
        self.host = host
        self.user = "ANONYMOUS"
        self.client_software_name = ""
        self.client_software_version = ""
        # The time that the worker process has spent on this connection, and when that was counted.
        self.last_job_ns = 0
        self._worker_used_ns = 0.0
        self._worker_ns = 0

    def worker_used_ns(self, now_ns: int) -> float:
        """How long the worker process has worked for this connection lately."""
        if not self._worker_used_ns:
            return 0.0
        half_lives = (now_ns - self._worker_ns) / WORKER_HALF_LIFE_NS
        return self._worker_used_ns * math.pow(0.5, half_lives)

    def use_worker(self, duration_ns: int, now_ns: int) -> None:
        self._worker_used_ns = self.worker_used_ns(now_ns) + duration_ns
        self._worker_ns = now_ns
        self.last_job_ns = duration_ns
