"""Changes that run one after the other, each to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from barnabas.errors import NotController

T = TypeVar("T")


class OneAtATime:
    """A change continues when its requester is cancelled, because store and metadata must agree."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._is_closed = False

    async def run(self, change: Coroutine[Any, Any, T]) -> T:
        async def take_turn() -> T:
            try:
                async with self._lock:
                    if self._is_closed:
                        raise NotController("the broker is stopping")
                    return await change
            finally:
                # Has no effect on a change that ran. A coroutine that never ran would cause a warning.
                change.close()

        return await asyncio.shield(asyncio.ensure_future(take_turn()))

    async def close(self) -> None:
        """Waits for the change under way and refuses later ones."""
        async with self._lock:
            self._is_closed = True
