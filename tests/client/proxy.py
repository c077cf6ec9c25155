"""A proxy between a client and a broker that cuts and delays connections at any byte.

It listens on a port of its own, so a broker that is to be reached through it advertises that port. What it does to the
bytes of a connection is up to a plan, which it asks anew for every connection; all numbers come from a seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from barnabas.testing import free_port

WAIT_S = 60
CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What happens to one connection; None is never, and counts are of bytes that have passed."""

    cut_requests_after: int | None = None
    cut_responses_after: int | None = None
    delay_responses_s: float = 0.0


Planner = Callable[[int], Plan]


def untouched(number: int) -> Plan:
    return Plan()


def seeded(seed: int, *, longest: int, share: float = 0.8) -> Planner:
    """Plans that cut most connections after a random number of bytes, in one direction or the other."""

    def plan(number: int) -> Plan:
        chooser = random.Random(f"{seed}-{number}")
        if chooser.random() >= share:
            return Plan(delay_responses_s=chooser.uniform(0, 0.02))
        after = int(longest ** chooser.random())
        if chooser.random() < 0.5:
            return Plan(cut_requests_after=after)
        return Plan(cut_responses_after=after)

    return plan


class Proxy:
    def __init__(self, *, planner: Planner = untouched) -> None:
        self.port = free_port()
        self.target_port = 0
        self.planner = planner
        self.connections = 0
        self.cuts = 0
        self._open: set[asyncio.Task[None]] = set()
        self._is_held = False
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="proxy", daemon=True
        )
        self._thread.start()
        assert started.wait(WAIT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def cut_all(self) -> None:
        """Ends every connection, wherever it is."""

        def cut() -> None:
            for task in list(self._open):
                task.cancel()

        self._loop.call_soon_threadsafe(cut)

    def hold(self) -> None:
        """From now on nothing passes, as if the other side had frozen; connections stay open."""
        self._loop.call_soon_threadsafe(self._passing.clear)

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._passing.set)

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._passing = asyncio.Event()
        self._passing.set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        started.set()
        await self._stopping.wait()
        server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        plan = self.planner(self.connections)
        self.connections += 1
        upstream: asyncio.StreamWriter | None = None
        try:
            answers, upstream = await asyncio.open_connection("127.0.0.1", self.target_port)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, upstream, plan.cut_requests_after, 0.0))
                both.create_task(
                    self._pass(answers, writer, plan.cut_responses_after, plan.delay_responses_s)
                )
        except* (OSError, _Cut, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            for each in (writer, upstream):
                if each is not None:
                    # A reset, so that the peer sees it in the middle of whatever it does.
                    each.transport.abort()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        cut_after: int | None,
        delay_s: float,
    ) -> None:
        passed = 0
        while True:
            data = await reader.read(CHUNK_BYTES)
            await self._passing.wait()
            if not data:
                raise _Cut
            if delay_s:
                await asyncio.sleep(delay_s)
            if cut_after is not None and passed + len(data) >= cut_after:
                writer.write(data[: cut_after - passed])
                with contextlib.suppress(OSError):
                    await writer.drain()
                self.cuts += 1
                raise _Cut
            passed += len(data)
            writer.write(data)
            await writer.drain()


class _Cut(Exception):
    """The connection ends here."""
