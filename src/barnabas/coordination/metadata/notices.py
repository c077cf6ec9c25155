"""Notices of changes: numbered nodes below one node, which every broker handles in order.

A broker that changes something leaves a notice, and every broker reads what the notice names. The broker that handles
notices removes those that are older than 15 minutes; a broker that was away for longer reads everything when it starts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from barnabas.clock import Clock
from barnabas.coordination.metadata.following import Following
from barnabas.coordination.store.contract import (
    NoNode,
    NotEmpty,
    Store,
    child_path,
    children_of,
    name_of,
    parent_of,
)

NOTICE_EXPIRATION_MS: Final = 15 * 60 * 1000
# So many old notices are looked at when there are new ones.
EXPIRED_AT_ONCE: Final = 100
# Of the number that the store appends.
_DIGITS_MAX: Final = 10


class Notices:
    """`prefix` is the path of a notice without its number. `handle` gets the new ones: their paths and data."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        prefix: str,
        handle: Callable[[Sequence[tuple[str, bytes]]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._folder = parent_of(prefix)
        self._name = name_of(prefix)
        self._handle = handle
        self._last_number = -1
        self._following = Following(f"Changes below {self._folder}", self._handle_new)

    async def begin(self, last_number: int) -> None:
        """Handles notices after this one, and those to come. Raises StoreError."""
        self._last_number = last_number
        await self._handle_new()

    async def close(self) -> None:
        """Waits for the notices under way."""
        await self._following.close()

    async def _handle_new(self) -> None:
        names, _ = await self._store.children(self._folder, self._following.on_news)
        # The store sorts them by name, and so by number. Names that are no notices stand at either end.
        if names and min(self._number(names[0]), self._number(names[-1])) < 0:
            names.sort(key=self._number)
        # Thousands of notices may wait for their expiration: the oldest show whether there is anything to remove.
        first_new = bisect_right(names, self._last_number, key=self._number)
        names = [*names[: min(first_new, EXPIRED_AT_ONCE)], *names[first_new:]]
        paths = [child_path(self._folder, name) for name in names]
        new: list[tuple[str, bytes]] = []
        expired: list[str] = []
        last_number = self._last_number
        for path, found in zip(paths, await self._store.get_all(paths), strict=True):
            if found is None:
                continue
            data, stat = found
            number = self._number(name_of(path))
            if number > self._last_number:
                last_number = max(last_number, number)
                new.append((path, data))
            elif self._clock.now_ms() - stat.ctime_ms > NOTICE_EXPIRATION_MS:
                expired.append(path)
        if new:
            await self._handle(new)
            # Not before: those that the store's failure kept from being handled come again.
            self._last_number = max(self._last_number, last_number)
        for path in expired:
            try:
                await self._store.delete(path)
            except (NoNode, NotEmpty):
                # Another broker has removed it, or it is no notice.
                continue

    def _number(self, name: str) -> int:
        return _number(self._name, name)


async def latest_notice(store: Store, prefix: str) -> int:
    """The number of the latest notice. To be read before the rest: later notices are handled after it."""
    names = await children_of(store, parent_of(prefix))
    return max((_number(name_of(prefix), name) for name in names), default=-1)


def _number(prefix: str, name: str) -> int:
    digits = name.removeprefix(prefix)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        # Not a notice: somebody has made it by hand.
        return -1
    return int(digits)
