from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas.broker.waiting.background import Background


def test_work_runs_in_threads_and_in_time() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        background = Background(loop, ThreadPoolExecutor(2))
        done = asyncio.Event()
        seen: list[tuple[str, int]] = []

        def note(name: str) -> None:
            seen.append((name, threading.get_ident()))
            if len(seen) == 2:
                loop.call_soon_threadsafe(done.set)

        started_s = loop.time()
        background.schedule("later", lambda: note("later"), 50)
        background.schedule("now", lambda: note("now"))
        await asyncio.wait_for(done.wait(), 30)
        assert loop.time() - started_s >= 0.05
        assert [name for name, _ in seen] == ["now", "later"]
        assert threading.get_ident() not in {thread for _, thread in seen}
        background.stop()

    asyncio.run(test())


def test_repeated_work_goes_on_after_a_failure_and_ends_with_stop(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> int:
        loop = asyncio.get_running_loop()
        background = Background(loop, ThreadPoolExecutor(1))
        enough = asyncio.Event()
        runs = 0

        def work() -> None:
            nonlocal runs
            runs += 1
            if runs == 3:
                loop.call_soon_threadsafe(enough.set)
            if runs == 1:
                raise RuntimeError("once")

        background.repeat("work", work, first_ms=1, every_ms=1)
        await asyncio.wait_for(enough.wait(), 30)
        background.stop()
        after_stop = runs
        background.schedule("never", work)
        background.schedule("never", work, 1)
        await asyncio.sleep(0.02)
        assert runs == after_stop
        return runs

    assert asyncio.run(test()) >= 3
    assert "work failed" in caplog.text
