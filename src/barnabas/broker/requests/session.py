"""The broker's state of the client behind a connection."""

from __future__ import annotations

import math
from typing import Final

from barnabas.security.principal import ANONYMOUS, Principal

# The time that the worker process has spent on a client counts half as much after this long.
WORKER_HALF_LIFE_NS: Final = 10_000_000_000


class ClientSession:
    """One connection's client. The listener's security protocol decides who it is, before its first request."""

    __slots__ = (
        "_worker_ns",
        "_worker_used_ns",
        "authentication",
        "client_software_name",
        "client_software_version",
        "host",
        "last_job_ns",
        "listener",
        "principal",
    )

    def __init__(self, *, listener: str, host: str, principal: Principal = ANONYMOUS) -> None:
        self.listener = listener
        self.host = host
        self.principal = principal
        # The state of the authentication on a listener with SASL (`broker/authentication`).
        self.authentication: object = None
        self.client_software_name = ""
        self.client_software_version = ""
        # The time that the worker process has spent on this connection, and when that was counted.
        self.last_job_ns = 0
        self._worker_used_ns = 0.0
        self._worker_ns = 0

    @property
    def user(self) -> str:
        """The name that quotas go by."""
        return self.principal.name

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
