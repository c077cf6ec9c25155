from __future__ import annotations

import random

import pytest

from barnabas.broker.waiting.timing_wheel import Timer, TimerTask


class Recorded(TimerTask):
    def __init__(self, name: int, expired: list[tuple[int, int]], timer: Timer) -> None:
        super().__init__()
        self.name = name
        self.expired = expired
        self.timer = timer

    def expire(self) -> None:
        self.expired.append((self.name, self.timer.now_ms))


def run_until_idle(timer: Timer, limit: int = 1_000) -> None:
    """Sleeps exactly as long as the timer asks for, as the event loop does."""
    for _ in range(100_000):
        due_ms = timer.next_due_ms()
        if due_ms is None:
            return
        timer.advance(max(due_ms, timer.now_ms), limit)
    pytest.fail("the timer never comes to rest")


@pytest.mark.parametrize("delay_ms", [0, -5, 1, 19, 20, 21, 399, 400, 401, 450, 7_999, 8_000, 10**9])
def test_a_task_expires_at_its_millisecond(delay_ms: int) -> None:
    timer = Timer(1_000_003)
    expired: list[tuple[int, int]] = []
    timer.add(Recorded(1, expired, timer), delay_ms)
    assert expired == []
    run_until_idle(timer)
    assert expired == [(1, 1_000_003 + max(delay_ms, 0))]
    assert timer.next_due_ms() is None


def test_never_early_and_never_missed_against_a_plain_model() -> None:
    rng = random.Random(20)
    for _ in range(30):
        timer = Timer(rng.randrange(10**6))
        expired: list[tuple[int, int]] = []
        due: dict[int, int] = {}
        tasks: dict[int, Recorded] = {}
        for name in range(400):
            delay_ms = rng.choice([rng.randrange(30), rng.randrange(500), rng.randrange(100_000)])
            tasks[name] = Recorded(name, expired, timer)
            timer.add(tasks[name], delay_ms)
            due[name] = timer.now_ms + delay_ms
            if rng.random() < 0.3:
                victim = rng.choice(list(tasks))
                assert tasks[victim].cancel() == (victim in due)
                due.pop(victim, None)
            if rng.random() < 0.2:
                timer.advance(timer.now_ms + rng.randrange(300), limit=10**6)
                now_ms = timer.now_ms
                assert sorted(name for name, at_ms in due.items() if at_ms <= now_ms) == sorted(
                    n for n, _ in expired
                )
                for gone, _ in expired:
                    del due[gone]
                expired.clear()
        run_until_idle(timer)
        assert dict(expired) == due


def test_cancelling_tells_whether_the_task_was_still_waiting() -> None:
    timer = Timer(0)
    expired: list[tuple[int, int]] = []
    task = Recorded(1, expired, timer)
    assert not task.cancel()
    timer.add(task, 50)
    assert task.is_scheduled
    assert task.cancel()
    assert not task.cancel()
    run_until_idle(timer)
    assert expired == []
    timer.add(task, 7)
    run_until_idle(timer)
    assert [name for name, _ in expired] == [1]


def test_many_tasks_at_one_time_expire_in_bounded_portions_and_in_order() -> None:
    timer = Timer(0)
    expired: list[tuple[int, int]] = []
    for name in range(2_500):
        timer.add(Recorded(name, expired, timer), 5)
    assert timer.advance(5, limit=1_000) == 1_000
    assert timer.next_due_ms() == 5
    assert timer.advance(5, limit=1_000) == 1_000
    assert timer.advance(5, limit=1_000) == 500
    assert [name for name, _ in expired] == list(range(2_500))


def test_a_task_that_adds_itself_again_does_not_hold_the_loop() -> None:
    class Again(TimerTask):
        runs = 0

        def expire(self) -> None:
            self.runs += 1
            timer.add(self, 0)

    timer = Timer(0)
    task = Again()
    timer.add(task, 0)
    assert timer.advance(1, limit=10) == 10
    assert task.runs == 10


def test_a_clock_that_goes_back_changes_nothing() -> None:
    timer = Timer(1_000)
    expired: list[tuple[int, int]] = []
    timer.add(Recorded(1, expired, timer), 10)
    assert timer.advance(500) == 0
    assert timer.now_ms == 1_000
    assert timer.advance(1_010) == 1


def test_the_heap_holds_buckets_not_tasks() -> None:
    timer = Timer(0)
    expired: list[tuple[int, int]] = []
    rng = random.Random(3)
    for name in range(20_000):
        timer.add(Recorded(name, expired, timer), rng.randrange(60_000))
    assert len(timer._due) <= 20 * len(timer._wheels)
