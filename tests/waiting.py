"""Waiting for what happens elsewhere: with a time-out, and a message that says what did not happen."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

WAIT_S: Final = 60.0
POLL_S: Final = 0.01


def wait_until(
    is_so: Callable[[], T],
    what: object = None,
    *,
    timeout_s: float = WAIT_S,
    poll_s: float = POLL_S,
    meanwhile: Callable[[], object] | None = None,
) -> T:
    """Waits until the function returns something true, and returns that. Calls `meanwhile` in place of a sleep.

    `what` describes what is waited for, or is a function that does so after the time-out. Without it, the message shows
    the source of the condition.
    """
    deadline = Deadline(timeout_s)
    while not (found := is_so()):
        deadline.check(lambda: _source(is_so) if what is None else _text(what))
        if meanwhile is None:
            time.sleep(poll_s)
        else:
            meanwhile()
    return found


async def wait_until_async(
    is_so: Callable[[], T], what: object = None, *, timeout_s: float = WAIT_S, poll_s: float = POLL_S
) -> T:
    """The same on an event loop."""
    deadline = Deadline(timeout_s)
    while not (found := is_so()):
        deadline.check(lambda: _source(is_so) if what is None else _text(what))
        await asyncio.sleep(poll_s)
    return found


class Deadline:
    """A time-out for a loop that does more than wait: the loop calls `check` in every round."""

    def __init__(self, timeout_s: float = WAIT_S) -> None:
        self._timeout_s = timeout_s
        self._end_s = time.monotonic() + timeout_s

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._end_s - time.monotonic())

    def check(self, what: object) -> None:
        """Fails if the time is over. `what` says what has not happened, or is a function that does so."""
        if self.is_over:
            raise AssertionError(f"not within {self._timeout_s:g} s: {_text(what)}")


class Polled(Protocol):
    def poll(self) -> object: ...


def poll_each(members: Iterable[Polled]) -> None:
    """What members of a group do while something is waited for."""
    for member in members:
        member.poll()


def _text(what: object) -> object:
    return what() if callable(what) else what


def _source(function: Callable[[], object]) -> str:
    try:
        return inspect.getsource(function).strip()
    except (OSError, TypeError):
        return repr(function)
