"""The thread of a blocking client: what is handed over while it ends never waits for ever."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.failures import ClientClosed
from barnabas.client.loop_thread import LoopThread
from barnabas.testing import Broker

WAIT_S = 60
ROUNDS = 200


async def work() -> str:
    return "done"


def test_a_call_while_the_thread_ends_is_refused() -> None:
    for _ in range(ROUNDS):
        thread = LoopThread("ending")
        assert thread.call(work()) == "done"
        thread.close(timeout_ms=0)
        assert thread.is_closed
        with pytest.raises(ClientClosed, match="make another one"):
            thread.call(work(), timeout_ms=WAIT_S * 1000)
        thread.close()


def test_a_call_under_way_is_cancelled() -> None:
    thread = LoopThread("ending")
    thread.post(thread.loop.call_later, 0.01, thread.close)
    with pytest.raises(ClientClosed, match="while this call was under way"):
        thread.call(asyncio.sleep(WAIT_S), timeout_ms=WAIT_S * 1000)
    thread.close()


def test_an_admin_client_may_be_closed_twice_without_waiting(broker: Broker) -> None:
    for _ in range(20):
        with broker.admin() as admin:
            admin.close(timeout_ms=0)


@pytest.fixture
def broker(shared_barnabas_broker: Broker) -> Broker:
    return shared_barnabas_broker
