"""How long a client waits for a change of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from barnabas.errors import RequestTimedOut

T = TypeVar("T")

# For clients that give no timeout.
DEFAULT_TIMEOUT_MS: Final = 30_000
# How long the response to a completed change waits for the logs of new partitions, which a busy disk may delay.
OPENING_WAIT_S: Final = 10.0


async def within(timeout_ms: int, change: Awaitable[T]) -> T:
    """The result of the change. Raises RequestTimedOut if it takes too long; the change continues nevertheless."""
    wait_ms = timeout_ms if timeout_ms > 0 else DEFAULT_TIMEOUT_MS
    try:
        async with asyncio.timeout(wait_ms / 1_000):
            return await change
    except TimeoutError:
        raise RequestTimedOut(f"the change was not complete after {wait_ms} ms; it may be later") from None
