"""A client in a simulated world: one request at a time, on a connection that it makes again when it breaks."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from barnabas.errors import KafkaError, NetworkException
from barnabas.net.requester import Requester
from barnabas.net.transport import Transport
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.frames import RECEIVE_BUFFER_BYTES
from barnabas.protocol.message import Message
from tests.simulation.world import Process

TIMEOUT_S: Final = 30.0
# All connections of one thread receive into the same memory.
_BUFFER: Final = bytearray(RECEIVE_BUFFER_BYTES)


class SimulatedClient:
    def __init__(self, process: Process, transport: Transport, address: tuple[str, int], name: str) -> None:
        self.name = name
        self.rng = process.rng
        self._process = process
        self._transport = transport
        self._address = address
        self._requester: Requester | None = None

    async def ask(self, api_name: str, version: int, body: Message) -> Any:
        """The body of the answer. Raises KafkaError if there is none: the broker may have carried out the request."""
        requester = await self._connected()
        answered: asyncio.Future[Any] = self._process.loop.create_future()

        def done(response: Any, error: KafkaError | None) -> None:
            if error is None:
                answered.set_result(response)
            else:
                answered.set_exception(error)

        requester.send(api_for_name(api_name), version, body, done, timeout_s=TIMEOUT_S)
        return await answered

    async def _connected(self) -> Requester:
        if self._requester is None or self._requester.closed_by is not None:
            host, port = self._address
            channel = await self._transport.connect(host, port, timeout_s=TIMEOUT_S)
            self._requester = Requester(
                channel,
                loop=self._process.loop,
                receive_buffer=_BUFFER,
                client_id=self.name,
                peer=f"{host}:{port}",
                on_close=lambda _: None,
            )
            self._requester.open()
        return self._requester

    def look_again(self) -> None:
        """For clients that know more than one broker: what they know may be out of date."""

    async def pause(self, longest_s: float = 0.1) -> None:
        await asyncio.sleep(self.rng.random() * longest_s)

    def close(self) -> None:
        if self._requester is not None:
            self._requester.close(NetworkException("the client is done"))
