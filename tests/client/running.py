from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from barnabas.client.connections.brokers import Brokers
from barnabas.client.settings import ClientSettings

WAIT_S = 60


def run(settings: ClientSettings, test: Callable[[Brokers], Awaitable[None]]) -> None:
    """Runs a test with connections of its own, which it does not outlive."""

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            brokers = Brokers(settings)
            try:
                await test(brokers)
            finally:
                await brokers.close()

    asyncio.run(bounded())
