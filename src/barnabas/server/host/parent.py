"""The process that has started the supervisor and wants to know about its brokers, such as a test."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Mapping
from typing import Any


class Parent:
    """Reports to it are lines, and the latest one counts. A parent that does not read does not hold up the supervisor.

    The parent never sends anything: a readable socket means its end.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._connected = connected
        # The rest of the line that the parent has in part, and the report that follows it.
        self._unsent = b""
        self._next = b""

    def fileno(self) -> int:
        return self._connected.fileno()

    @property
    def events(self) -> int:
        """What to wait for, for `handle`."""
        return select.POLLIN | select.POLLOUT if self._unsent or self._next else select.POLLIN

    def handle(self, events: int) -> bool:
        """Returns whether the parent is still there."""
        if events & ~select.POLLOUT:
            return False
        self._send()
        return True

    def send(self, report: Mapping[str, Any]) -> None:
        """At once as far as possible, and the rest when the parent has read."""
        self._next = json.dumps(report).encode() + b"\n"
        self._send()

    def _send(self) -> None:
        while self._unsent or self._next:
            if not self._unsent:
                self._unsent, self._next = self._next, b""
            try:
                sent = self._connected.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                # The parent has ended, as `handle` is about to find out.
                self._unsent = self._next = b""
                return
            self._unsent = self._unsent[sent:]
