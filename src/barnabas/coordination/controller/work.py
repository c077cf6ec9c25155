"""The controller's work: one thing after the other, and how long each has waited and taken.

Kafka's metrics of the controller name what it is doing by the states below, and have a time for most of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from barnabas.clock import Clock

log = logging.getLogger(__name__)

Work: TypeAlias = Callable[[], Awaitable[None]]


class Activity(IntEnum):
    """What a controller does, with the numbers of Kafka's ControllerState."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    CONTROLLER_SHUTDOWN = 12
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    LIST_PARTITION_REASSIGNMENT = 15
    UPDATE_METADATA_RESPONSE_RECEIVED = 16
    UPDATE_FEATURES = 17


class Timed(NamedTuple):
    """Called with seconds."""

    waited: Callable[[float], None]
    took: Callable[[Activity, float], None]


_UNTIMED: Final = Timed(lambda waited_s: None, lambda activity, took_s: None)


class WorkQueue:
    """A task runs while there is any work."""

    def __init__(self, clock: Clock) -> None:
        self.activity = Activity.IDLE
        self.timed = _UNTIMED
        self._clock = clock
        self._waiting: deque[tuple[Activity, int, Work]] = deque()
        self._worker: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        return self._worker is None and not self._waiting

    def add(self, activity: Activity, work: Work, *, is_urgent: bool = False) -> None:
        item = (activity, self._clock.monotonic_ns(), work)
        if is_urgent:
            self._waiting.appendleft(item)
        else:
            self._waiting.append(item)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._run())

    async def do(self, activity: Activity, work: Work) -> None:
        """Runs work in its turn, and raises its error."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                await work()
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self.add(activity, run)
        await asyncio.shield(done)

    async def _run(self) -> None:
        try:
            while self._waiting:
                activity, since_ns, work = self._waiting.popleft()
                began_ns = self._clock.monotonic_ns()
                self.activity = activity
                self.timed.waited((began_ns - since_ns) / 1e9)
                try:
                    await work()
                except Exception:
                    log.exception("The controller failed")
                self.timed.took(activity, (self._clock.monotonic_ns() - began_ns) / 1e9)
        finally:
            self.activity = Activity.IDLE
            self._worker = None
