"""The ways in which a broker runs work: at once, later, in turns, beside the requests, in threads."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from concurrent.futures import Executor

from barnabas.broker.waiting.background import Background
from barnabas.broker.waiting.loop_timer import LoopTimer
from barnabas.broker.waiting.tasks import Tasks
from barnabas.broker.waiting.turns import Turns
from barnabas.clock import Clock


class Scheduling:
    __slots__ = ("background", "clock", "loop", "tasks", "timer", "turns")

    def __init__(self, loop: AbstractEventLoop, clock: Clock, executor: Executor) -> None:
        self.loop = loop
        self.clock = clock
        self.tasks = Tasks()
        self.timer = LoopTimer(loop)
        self.turns = Turns(loop, clock)
        self.background = Background(loop, executor)
