from __future__ import annotations

import asyncio

import pytest

from tests.waiting import Deadline, wait_until, wait_until_async


def test_what_became_true_is_returned() -> None:
    found: list[int] = []
    assert wait_until(lambda: found[2:], meanwhile=lambda: found.append(len(found))) == [2]


def test_the_message_says_what_did_not_happen() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: the end"):
        wait_until(lambda: False, "the end", timeout_s=0.01)
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: state 7"):
        wait_until(lambda: False, lambda: f"state {3 + 4}", timeout_s=0.01)
    never = 0
    with pytest.raises(AssertionError, match="lambda: never == 1"):
        wait_until(lambda: never == 1, timeout_s=0.01)


def test_a_loop_waits_too() -> None:
    async def test() -> None:
        is_set = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, is_set.set)
        assert await wait_until_async(is_set.is_set)
        with pytest.raises(AssertionError, match="nothing"):
            await wait_until_async(lambda: False, "nothing", timeout_s=0.01)

    asyncio.run(test())


def test_a_deadline_is_over_in_time() -> None:
    deadline = Deadline(60)
    deadline.check("still time")
    assert 59 < deadline.left_s <= 60
    over = Deadline(0)
    assert over.is_over
    assert over.left_s == 0
    with pytest.raises(AssertionError, match="not within 0 s: done"):
        over.check("done")
