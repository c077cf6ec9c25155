"""Other brokers as coordinators see them: the test answers each request when it wants."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from barnabas.errors import KafkaError
from barnabas.model import BrokerId
from barnabas.protocol.message import Message


class Sent(NamedTuple):
    broker_id: BrokerId
    purpose: str
    api_name: str
    request: Any
    timeout_ms: float
    answer: asyncio.Future[Any]
    version: int | None = None


class OtherBrokers:
    """The requests on their way, oldest first."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    def link(self, broker_id: BrokerId, purpose: str) -> _Link:
        return _Link(self, broker_id, purpose)

    async def next(self) -> Sent:
        """The one request that is on its way now."""
        await settle()
        [sent] = self.sent
        return sent

    async def answer(self, answer: Message | KafkaError) -> Sent:
        sent = await self.next()
        self.sent.clear()
        if isinstance(answer, KafkaError):
            sent.answer.set_exception(answer)
        else:
            sent.answer.set_result(answer)
        await settle()
        return sent


class _Link:
    def __init__(self, brokers: OtherBrokers, broker_id: BrokerId, purpose: str) -> None:
        self._brokers = brokers
        self._broker_id = broker_id
        self._purpose = purpose

    async def ask(
        self, api_name: str, request: Message, *, version: int | None = None, timeout_ms: float
    ) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._brokers.sent.append(
            Sent(self._broker_id, self._purpose, api_name, request, timeout_ms, answer, version)
        )
        return await answer


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
