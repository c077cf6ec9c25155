"""The executor of work that must not delay the log's caller: syncing files, deleting them after a delay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Scheduler(Protocol):
    def schedule(self, name: str, action: Callable[[], None], delay_ms: int = 0) -> None:
        """Runs the action once, in any thread, not before the delay is over. Actions do not raise."""


class InlineScheduler:
    """Runs everything at once and without delay: for tools that open a log and have no loop to wait on."""

    __slots__ = ()

    def schedule(self, name: str, action: Callable[[], None], delay_ms: int = 0) -> None:
        action()
