"""A world in one thread: processes with an event loop each, a virtual clock, a network, and one seed for all of it.

A process is an event loop that the world runs, one turn at a time. Time stands still while there is work, and jumps to
the next timer or delivery when there is none, so minutes take milliseconds. Everything that happens follows from the
seed: the same seed gives the same bytes at the same times.

A process that is killed is never run again. Its files stay as they were written, and its connections break.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, Final, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

START_MS: Final = 1_700_000_000_000
# A world that does so much work at one moment of its time does not get on.
TURNS_AT_A_TIME_MAX: Final = 20_000
# A coroutine that is closed has at most so many places to wait at while it ends.
CLOSES_MAX: Final = 100
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
        self._processes: list[Process] = []
        # Loops of killed processes are kept, so that nothing of them runs when their memory is freed.
        self._dead: list[Process] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        # What went wrong in processes without anybody noticing.
        self.failures: list[BaseException] = []

    def process(self, name: str) -> Process:
        process = Process(self, name, Random(self.rng.getrandbits(64)))
        self._processes.append(process)
        return process

    def forget(self, process: Process) -> None:
        self._processes.remove(process)
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
        turns = 0
        while not is_so():
            if self._take_turn():
                turns += 1
                if turns > TURNS_AT_A_TIME_MAX:
                    raise Stuck(f"the world stands still at {self.now_s} s")
            else:
                turns = 0
                self._advance()
            if self.failures:
                raise self.failures[0]

    def close(self) -> None:
        for process in [*self._processes]:
            process.kill()
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            with warnings.catch_warnings():
                # Python complains about coroutines that do not end as they should. These were killed.
                warnings.simplefilter("ignore")
                for process in self._dead:
                    process.bury()
                self._dead.clear()
                gc.collect()
        finally:
            sys.unraisablehook = hook

    def _take_turn(self) -> bool:
        has_worked = False
        while self._events and self._events[0][0] <= self.now_s:
            has_worked = True
            heapq.heappop(self._events)[2]()
        for process in [*self._processes]:
            if process.is_alive and process.loop.has_work():
                has_worked = True
                process.loop.take_turn()
        return has_worked

    def _advance(self) -> None:
        times_s = [process.loop.next_timer_s() for process in self._processes]
        if self._events:
            times_s.append(self._events[0][0])
        next_s = min((time_s for time_s in times_s if time_s is not None), default=None)
        if next_s is None:
            raise Stuck(f"nothing is left to happen at {self.now_s} s")
        assert next_s > self.now_s
        self.now_s = next_s


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
        self.is_alive = True
        self._is_in_job = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def kill(self) -> None:
        if self.is_alive:
            self.is_alive = False
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


class ProcessClock:
    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return START_MS + int(self._world.now_s * 1_000)

    def monotonic_ns(self) -> int:
        return int(self._world.now_s * 1_000_000_000)


class _Selector:
    """What the base class of event loops asks for; it never waits."""

    def __init__(self, loop: ProcessLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[asyncio.Handle]:
        return self._loop.ready_handles()


class ProcessLoop(asyncio.BaseEventLoop):
    """A loop without a system below it: its time is the world's, and its descriptors name objects of the network."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._selector = _Selector(self)
        self._clock_resolution = 1e-9
        self._watched: dict[int, Watched] = {}
        self._readers: dict[int, asyncio.Handle] = {}
        self._writers: dict[int, asyncio.Handle] = {}
        self._next_descriptor = 3

    def time(self) -> float:
        return self._world.now_s

    def take_turn(self) -> None:
        # A loop that is stopped before it runs takes one turn.
        self.stop()
        self.run_forever()

    def has_work(self) -> bool:
        return bool(self._ready) or self._is_timer_due() or bool(self.ready_handles())  # type: ignore[attr-defined]

    def next_timer_s(self) -> float | None:
        return min((each.when() for each in self._scheduled if not each.cancelled()), default=None)  # type: ignore[attr-defined]

    def _is_timer_due(self) -> bool:
        next_s = self.next_timer_s()
        return next_s is not None and next_s <= self._world.now_s

    def watch(self, watched: Watched) -> int:
        """A descriptor for an object of the network."""
        descriptor = self._next_descriptor
        self._next_descriptor += 1
        self._watched[descriptor] = watched
        return descriptor

    def unwatch(self, descriptor: int) -> None:
        self._watched.pop(descriptor, None)
        self._readers.pop(descriptor, None)
        self._writers.pop(descriptor, None)

    def ready_handles(self) -> list[asyncio.Handle]:
        return [
            *(handle for number, handle in self._readers.items() if self._watched[number].is_readable),
            *(handle for number, handle in self._writers.items() if self._watched[number].is_writable),
        ]

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._readers[fd] = asyncio.Handle(callback, args, self)

    def remove_reader(self, fd: Any) -> bool:
        return self._cancel(self._readers.pop(fd, None))

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._writers[fd] = asyncio.Handle(callback, args, self)

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

    def _process_events(self, handles: list[asyncio.Handle]) -> None:
        for handle in handles:
            self._ready.append(handle)  # type: ignore[attr-defined]

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
