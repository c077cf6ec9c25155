"""A world in one thread: processes with an event loop each, a virtual clock, a network, and one seed for all of it.

A process is an event loop that the world runs, one turn at a time. Time stands still while there is work, and jumps to
the next timer or delivery when there is none, so minutes take milliseconds. What a process does at one
moment does not reach others at that moment, so each of them takes all its turns of a moment before the next one.
Everything that happens follows from the seed: the same seed gives the same bytes at the same times.

A process that is killed is never run again. Its files stay as they were written, and its connections break.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
import math
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from random import Random
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from barnabas.clock import Clock

P = ParamSpec("P")
T = TypeVar("T")

START_MS: Final = 1_700_000_000_000
# A world that does so much work at one moment of its time does not get on.
TURNS_AT_A_TIME_MAX: Final = 20_000
# A coroutine that is closed has at most so many places to wait at while it ends.
CLOSES_MAX: Final = 100
# So many worlds may be closed before their memory is freed.
WORLDS_AT_ONCE: Final = 20
# A job in a thread takes up to this long.
JOB_S_MAX: Final = 0.005


class Stuck(AssertionError):
    """Nothing can happen any more, or the same happens for ever, and the test still waits."""


class Watched(Protocol):
    """What a loop watches by its descriptor."""

    @property
    def is_readable(self) -> bool: ...

    @property
    def is_writable(self) -> bool: ...


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now_s = 0.0
        self._processes: tuple[Process, ...] = ()
        # Loops of killed processes are kept, so that nothing of them runs when their memory is freed.
        self._dead: list[Process] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        # What went wrong in processes without anybody noticing.
        self.failures: list[BaseException] = []

    def process(self, name: str) -> Process:
        process = Process(self, name, Random(self.rng.getrandbits(64)))
        self._processes = (*self._processes, process)
        return process

    def forget(self, process: Process) -> None:
        self._processes = tuple(each for each in self._processes if each is not process)
        self._dead.append(process)

    def call_at(self, time_s: float, action: Callable[[], None]) -> None:
        """For what belongs to no process, like a delivery on the network."""
        heapq.heappush(self._events, (time_s, next(self._sequence), action))

    def run(self, process: Process, work: Coroutine[Any, Any, T]) -> T:
        """Runs the world until this work of a process is done."""
        task = process.loop.create_task(work)
        self.run_until(task.done)
        return task.result()

    def run_for(self, duration_s: float) -> None:
        is_over: list[bool] = []
        self.call_at(self.now_s + duration_s, lambda: is_over.append(True))
        self.run_until(lambda: bool(is_over))

    def run_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            if not self._take_turns():
                self._advance()
            if self.failures:
                raise self.failures[0]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        with _collecting():
            for process in self._dead:
                process.bury()
            self._dead.clear()
            if not _are_many:
                gc.collect()

    def _take_turns(self) -> bool:
        """Whether there was anything to do at this moment."""
        has_worked = False
        events, now_s = self._events, self.now_s
        while events and events[0][0] <= now_s:
            has_worked = True
            heapq.heappop(events)[2]()
        for process in self._processes:
            loop = process.loop
            # Most loops have nothing to do at most moments.
            if not (loop.ready or loop.touched or (loop.timers and loop.timers[0]._when <= now_s)):  # type: ignore[attr-defined]
                continue
            turns = 0
            while not process.is_paused and loop.take_turn():
                has_worked = True
                if process.is_alive:
                    process.on_turn()
                turns += 1
                if turns > TURNS_AT_A_TIME_MAX:
                    raise Stuck(f"the world stands still at {now_s} s")
        return has_worked

    def _advance(self) -> None:
        next_s = self._events[0][0] if self._events else math.inf
        for process in self._processes:
            # A heap of handles. Those at its top that were cancelled are removed.
            timers = process.loop.timers
            while timers and timers[0]._cancelled:
                heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]
            if timers and timers[0]._when < next_s and not process.is_paused:  # type: ignore[attr-defined]
                next_s = timers[0]._when  # type: ignore[attr-defined]
        if next_s == math.inf:
            raise Stuck(f"nothing is left to happen at {self.now_s} s")
        assert next_s > self.now_s
        self.now_s = next_s


@contextmanager
def _collecting() -> Iterator[None]:
    """Python complains about coroutines that do not end as they should. These were killed."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = hook


# Whether the worlds that are closed now are collected later.
_are_many = False


@contextmanager
def many_worlds() -> Iterator[Callable[[], None]]:
    """For worlds one after the other: Python collects no garbage but when the caller says so, between them.

    What exists before is left out for good: visiting it would take longer than a world.
    """
    global _are_many
    was_enabled, were_many, _are_many = gc.isenabled(), _are_many, True
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield _collect
    finally:
        _collect()
        _are_many = were_many
        if was_enabled:
            gc.enable()


def _collect() -> None:
    with _collecting():
        gc.collect()


class Process:
    """A loop, a clock, randomness, descriptors and threads. `on_kill` is called when it is killed."""

    def __init__(self, world: World, name: str, rng: Random) -> None:
        self.world = world
        self.name = name
        self.rng = rng
        self.loop = ProcessLoop(world)
        self.loop.set_exception_handler(self._note_failure)
        self.clock = ProcessClock(world)
        self.on_kill: list[Callable[[], None]] = []
        self.on_turn: Callable[[], None] = lambda: None
        self.is_alive = True
        # A paused process does nothing, as after SIGSTOP. What arrives for it waits.
        self.is_paused = False
        self._is_in_job = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def kill(self) -> None:
        if self.is_alive:
            self.is_alive = False
            self.loop.is_dead = True
            self.world.forget(self)
            self._tasks = asyncio.all_tasks(self.loop)
            for task in self._tasks:
                # Nobody expects the tasks of a killed process to end.
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            for action in self.on_kill:
                action()

    def bury(self) -> None:
        """Ends the coroutines of a killed process. They may try anything: its loop and its disk are dead."""
        self.loop.close()
        for task in self._tasks:
            work: Any = task.get_coro()
            for _ in range(CLOSES_MAX):
                try:
                    work.close()
                    break
                except BaseException:
                    # It has caught that it is to end, and waits again or fails.
                    continue
        self._tasks.clear()

    def _note_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self.is_alive:
            self.world.failures.append(context.get("exception") or AssertionError(context["message"]))

    def new_executor(self, threads: int, name: str) -> Executor:
        return JobExecutor(self, threads)

    def run_job(self, job: Callable[[], None]) -> None:
        was_in_job, self._is_in_job = self._is_in_job, True
        try:
            job()
        finally:
            self._is_in_job = was_in_job

    @property
    def is_in_job(self) -> bool:
        return self._is_in_job


class ProcessClock(Clock):
    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return START_MS + int(self._world.now_s * 1_000)

    def monotonic_ns(self) -> int:
        return int(self._world.now_s * 1_000_000_000)


class ProcessLoop(asyncio.BaseEventLoop):
    """A loop without a system below it: its time is the world's, and its descriptors name objects of the network."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._clock_resolution = 1e-9
        self.is_dead = False
        # Those of asyncio, which never replaces them here.
        self.ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        self.timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        self._watched: dict[int, Watched] = {}
        # Descriptors that may be ready: of all others it is known that they are not.
        self.touched: dict[int, None] = {}
        self._readers: dict[int, asyncio.Handle] = {}
        self._writers: dict[int, asyncio.Handle] = {}
        self._next_descriptor = 3

    def time(self) -> float:
        return self._world.now_s

    def take_turn(self) -> bool:
        """Runs what is ready and due now, and nothing that this adds: a turn of a loop of asyncio.

        Returns whether there was anything.
        """
        if self.is_dead:
            return False
        ready, timers = self.ready, self.timers
        if self.touched:
            ready.extend(self._ready_handles())
        now_s = self._world.now_s
        while timers and timers[0]._when <= now_s:  # type: ignore[attr-defined]
            timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)
        if not ready:
            return False
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                    if self.is_dead:
                        break
        finally:
            asyncio._set_running_loop(None)
        return True

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A timer that was cancelled is removed when it would be due."""

    def watch(self, watched: Watched) -> int:
        """A descriptor for an object of the network."""
        descriptor = self._next_descriptor
        self._next_descriptor += 1
        self._watched[descriptor] = watched
        return descriptor

    def unwatch(self, descriptor: int) -> None:
        self._watched.pop(descriptor, None)
        self.touched.pop(descriptor, None)
        self._readers.pop(descriptor, None)
        self._writers.pop(descriptor, None)

    def touch(self, descriptor: int) -> None:
        """A watched object may have become readable or writable."""
        if descriptor in self._watched:
            self.touched[descriptor] = None

    def _ready_handles(self) -> list[asyncio.Handle]:
        handles = []
        for number in [*self.touched]:
            watched = self._watched[number]
            reader, writer = self._readers.get(number), self._writers.get(number)
            is_ready = False
            if reader is not None and watched.is_readable:
                handles.append(reader)
                is_ready = True
            if writer is not None and watched.is_writable:
                handles.append(writer)
                is_ready = True
            if not is_ready:
                del self.touched[number]
        return handles

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._readers[fd] = asyncio.Handle(callback, args, self)
        self.touch(fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._cancel(self._readers.pop(fd, None))

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._writers[fd] = asyncio.Handle(callback, args, self)
        self.touch(fd)

    def remove_writer(self, fd: Any) -> bool:
        return self._cancel(self._writers.pop(fd, None))

    @staticmethod
    def _cancel(handle: asyncio.Handle | None) -> bool:
        if handle is not None:
            # It may be among those that this turn runs.
            handle.cancel()
        return handle is not None

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        assert isinstance(executor, JobExecutor), "a simulated process has no threads"
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)

    def _write_to_self(self) -> None:
        """Nothing waits that would have to be woken up."""


class JobExecutor(Executor):
    """Runs jobs on the loop of a process, as many beside each other as it has threads, each after a time of the seed.

    A job that another job submits runs at once: the other one may wait for it.
    """

    def __init__(self, process: Process, threads: int) -> None:
        self._process = process
        # Until when each thread is busy.
        self._busy_s = [0.0] * max(threads, 1)
        self._pending: dict[Future[Any], Callable[[], None]] = {}

    def submit(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        assert threading.current_thread() is threading.main_thread()
        process = self._process
        future: Future[T] = Future()

        def run() -> None:
            self._pending.pop(future, None)
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*arguments, **named))
                except Exception as error:
                    future.set_exception(error)

        if process.is_in_job:
            run()
            return future
        thread = min(range(len(self._busy_s)), key=self._busy_s.__getitem__)
        start_s = max(self._busy_s[thread], process.loop.time())
        self._busy_s[thread] = end_s = start_s + process.rng.random() * JOB_S_MAX
        self._pending[future] = run
        process.loop.call_at(end_s, process.run_job, run)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for future, run in [*self._pending.items()]:
            if cancel_futures:
                future.cancel()
            elif wait:
                self._process.run_job(run)
