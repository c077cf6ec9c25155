"""Long work in a thread beside the event loop.

A thread that holds the interpreter's lock releases it only every few milliseconds, which is very long for the loop. A
thread that visits thousands of objects releases the lock between them, so the loop never waits for more than a few of
them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

AT_ONCE: Final = 32


def unhurried(items: Iterable[T], at_once: int = AT_ONCE) -> Iterator[T]:
    left = at_once
    for item in items:
        yield item
        left -= 1
        if left == 0:
            time.sleep(0)
            left = at_once
