"""A broker that stops: nothing writes any more when its logs are closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.broker.waiting.loop_timer import LoopTimer
from barnabas.broker.waiting.tasks import Tasks
from barnabas.broker.waiting.timing_wheel import TimerTask
from barnabas.log.manager.manager import LogManager
from barnabas.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from barnabas.server.server import Server
from tests.broker.group_requests import commit, join_alone, wait_for_coordinator
from tests.broker.record_requests import batch, create_topic, produce
from tests.broker.running import RunningBroker

HOUR_MS = 3_600_000


Hook = Callable[[Server], Awaitable[None]]


class Closing:
    """Hooks around the closing of a broker's logs; to be made before the broker starts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before: Hook | None = None
        self.after: Hook | None = None
        close_logs = Server._close_logs

        async def close(server: Server, manager: LogManager) -> None:
            if self.before is not None:
                await self.before(server)
            await close_logs(server, manager)
            if self.after is not None:
                await self.after(server)

        monkeypatch.setattr(Server, "_close_logs", close)


async def is_answered(ask: Callable[[], object]) -> bool:
    def run() -> bool:
        try:
            ask()
        except ConnectionError:
            return False
        return True

    return await asyncio.get_running_loop().run_in_executor(None, run)


def test_groups_do_not_write_to_logs_that_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client leaves its group, and sessions and offsets expire, while the logs are being closed."""
    closing = Closing(monkeypatch)
    answered: list[bool] = []
    with (
        RunningBroker(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker,
        broker.client() as client,
    ):
        create_topic(client, "topic")
        for group_id in ("left", "expired", "unused"):
            wait_for_coordinator(client, group_id)
        member_id = join_alone(client, "left").member_id
        join_alone(client, "expired")
        commit(client, "unused", {("topic", 0): 1})
        leave = LeaveGroupRequest(group_id="left", members=[MemberIdentity(member_id=member_id)])

        async def go_on(server: Server) -> None:
            answered.append(await is_answered(lambda: client.ask("LeaveGroup", 5, leave)))
            timer = server.broker.groups._timer
            timer.advance(timer.now_ms + 8 * 24 * HOUR_MS)

        closing.after = go_on
        broker.stop()
    assert answered == [False]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_produce_that_comes_too_late_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last flush of a log and its end a batch would be acknowledged without being on the disk."""
    closing = Closing(monkeypatch)
    answered: list[bool] = []
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        create_topic(client, "topic")
        assert produce(client, "topic", batch(b"in time")).error_code == 0

        async def go_on(server: Server) -> None:
            answered.append(await is_answered(lambda: produce(client, "topic", batch(b"late"))))

        closing.before = go_on
        broker.stop()
    assert answered == [False]


class Counted(TimerTask):
    def __init__(self) -> None:
        super().__init__()
        self.is_due = asyncio.Event()

    def expire(self) -> None:
        self.is_due.set()


def test_a_timer_that_is_closed_stays_silent() -> None:
    async def run() -> list[bool]:
        loop = asyncio.get_running_loop()
        timers = [LoopTimer(loop), LoopTimer(loop)]
        tasks = [Counted(), Counted()]
        timers[0].close()
        for timer, task in zip(timers, tasks, strict=True):
            timer.add(task, 1)
        async with asyncio.timeout(60):
            await tasks[1].is_due.wait()
        timers[1].close()
        return [task.is_due.is_set() for task in tasks]

    assert asyncio.run(run()) == [False, True]


def test_no_task_starts_after_the_stop() -> None:
    ran = []

    async def work() -> None:
        ran.append(True)

    async def run() -> None:
        tasks = Tasks()
        await tasks.stop()
        tasks.start(work())
        assert len(tasks) == 0

    asyncio.run(run())
    assert ran == []
