"""The interface between the loop, where a group's member lives, and the polling caller: work for the caller's poll().

As in Kafka's own client, a rebalance listener is called in poll(), and partitions are assigned and revoked only there:
a caller that processes records between two polls keeps its partitions. The loop asks; the next poll answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum

from barnabas.errors import KafkaError
from barnabas.model import TopicPartition


class Change(Enum):
    REVOKED = "revoked"
    ASSIGNED = "assigned"
    LOST = "lost"


class Rebalance:
    """Partitions that come or go."""

    __slots__ = ("change", "done", "partitions")

    def __init__(self, change: Change, partitions: list[TopicPartition], done: asyncio.Future[None]) -> None:
        self.change = change
        self.partitions = partitions
        self.done = done


class Failure:
    """An error that stops a member until the caller handles it."""

    __slots__ = ("done", "error")

    def __init__(self, error: KafkaError, done: asyncio.Future[None]) -> None:
        self.error = error
        self.done = done


class Handover:
    def __init__(self, notify: Callable[[], None]) -> None:
        """`notify` wakes a caller that waits in poll()."""
        self.rebalances: deque[Rebalance] = deque()
        self.failures: deque[Failure] = deque()
        self.notify = notify
        self._loop = asyncio.get_running_loop()
        self._last_poll_s = time.monotonic()
        self._is_polling = False
        # How often partitions were assigned or revoked.
        self.rebalanced = 0

    @property
    def is_polling(self) -> bool:
        return self._is_polling

    def begin_poll(self) -> None:
        self._is_polling = True

    def end_poll(self) -> None:
        self._last_poll_s = time.monotonic()
        self._is_polling = False

    def poll_delay_s(self) -> float:
        """The time since the last poll."""
        return 0.0 if self._is_polling else time.monotonic() - self._last_poll_s

    async def fail(self, error: KafkaError) -> None:
        """Returns when a poll has raised it."""
        done: asyncio.Future[None] = self._loop.create_future()
        self.failures.append(Failure(error, done))
        self.notify()
        await done

    async def ask(self, change: Change, partitions: Iterable[TopicPartition]) -> None:
        """Returns when a poll has dealt with it."""
        done: asyncio.Future[None] = self._loop.create_future()
        self.rebalanced += 1
        self.rebalances.append(Rebalance(change, sorted(partitions), done))
        self.notify()
        await done

    def lose(self) -> None:
        """The partitions to revoke are lost already."""
        for rebalance in list(self.rebalances):
            if rebalance.change is Change.REVOKED:
                rebalance.change = Change.LOST

    def answer(self, asked: Rebalance | Failure) -> None:
        """From any thread. A listener may have closed the consumer, and then no task waits."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_finish, asked.done)

    def clear(self) -> None:
        """No task waits for answers any more."""
        self.rebalances.clear()
        self.failures.clear()


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
