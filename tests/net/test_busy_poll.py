from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import time
from collections.abc import Iterator

import pytest

from barnabas.net.busy_poll import BusyPollSelector, new_event_loop

WAIT_S = 30.0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_it_sees_what_any_selector_sees(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    selector = BusyPollSelector(50)
    try:
        selector.register(one, 1, "data")
        assert selector.select(0) == []
        assert selector.select(0.001) == []
        other.send(b"x")
        for timeout in (0, 0.001, WAIT_S, None):
            [(key, events)] = selector.select(timeout)
            assert (key.data, events) == ("data", 1)
    finally:
        selector.close()


def test_it_looks_for_as_long_as_it_is_told_and_then_waits(pair: tuple[socket.socket, socket.socket]) -> None:
    selector = BusyPollSelector(1_000)
    try:
        selector.register(pair[0], 1)
        started_s, started_cpu_s = time.monotonic(), time.thread_time()
        assert selector.select(0.3) == []
        assert time.monotonic() - started_s >= 0.3
        assert time.thread_time() - started_cpu_s < 0.2
    finally:
        selector.close()


def test_it_sleeps_at_once_while_somebody_waits_to_write(pair: tuple[socket.socket, socket.socket]) -> None:
    """Looking for as long as it is told would take this test ten seconds of processor time."""
    one, other = pair
    one.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while one.send(bytes(65_536)):
            pass
    selector = BusyPollSelector(10_000_000)
    try:
        selector.register(one, selectors.EVENT_READ)
        selector.modify(one, selectors.EVENT_READ | selectors.EVENT_WRITE)
        started_cpu_s = time.thread_time()
        assert selector.select(0.01) == []
        assert time.thread_time() - started_cpu_s < 5
        # It waits for nobody any more, and looks again, until there is something to see.
        selector.modify(one, selectors.EVENT_READ)
        other.send(b"x")
        assert [key.fileobj for key, _ in selector.select(WAIT_S)] == [one]
        selector.unregister(one)
    finally:
        selector.close()


@pytest.mark.parametrize("busy_poll_us", [0, 50])
def test_a_loop_runs_on_it(busy_poll_us: int) -> None:
    async def pass_something_on() -> bytes:
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            other.setblocking(False)
            loop = asyncio.get_running_loop()
            receiving = asyncio.create_task(loop.sock_recv(one, 10))
            await asyncio.sleep(0.01)
            await loop.sock_sendall(other, b"here")
            return await asyncio.wait_for(receiving, WAIT_S)

    with asyncio.Runner(loop_factory=lambda: new_event_loop(busy_poll_us)) as runner:
        assert runner.run(pass_something_on()) == b"here"
