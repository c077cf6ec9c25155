"""The links of this broker to the others: one per broker and purpose, so that no purpose waits for another.

Purposes are "control" (requests of the controller), "controller" (requests to it), "markers" and "fetcher-N".
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.model import BrokerId
from barnabas.net.transport import Transport
from barnabas.peers.link import LinkEnvironment, PeerLink
from barnabas.peers.node import Node
from barnabas.peers.versions import ProtocolLevel
from barnabas.protocol.frames import RECEIVE_BUFFER_BYTES

if TYPE_CHECKING:
    from barnabas.peers.security import ConnectionSecurity

CONTROL: Final = "control"
CONTROLLER: Final = "controller"
MARKERS: Final = "markers"
FETCHER: Final = "fetcher-"


class Peers:
    def __init__(
        self,
        broker_id: BrokerId,
        find_node: Callable[[BrokerId], Node | None],
        transport: Transport,
        loop: AbstractEventLoop,
        level: ProtocolLevel,
        security: ConnectionSecurity | None = None,
    ) -> None:
        """`find_node` returns where a broker is reached now (inter-broker listener), or None if it is not alive."""
        self._broker_id = broker_id
        self._find_node = find_node
        self._environment = LinkEnvironment(loop, transport, level, bytearray(RECEIVE_BUFFER_BYTES), security)
        self._links: dict[tuple[BrokerId, str], PeerLink] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.level = level

    def link(self, broker_id: BrokerId, purpose: str) -> PeerLink:
        """The link to a broker. Callers ask for it again after a failure: links to brokers that are gone end."""
        found = self._links.get((broker_id, purpose))
        if found is None:
            found = PeerLink(
                broker_id, self._find_node, self._environment, client_id(self._broker_id, purpose)
            )
            self._links[broker_id, purpose] = found
        return found

    def private_link(self, broker_id: BrokerId, node: Node | None, purpose: str) -> PeerLink:
        """A link to this address, whatever the metadata says. The caller closes it."""
        return PeerLink(broker_id, lambda _: node, self._environment, client_id(self._broker_id, purpose))

    def check_addresses(self) -> None:
        """To be called when brokers may have come, gone or moved."""
        for key, link in list(self._links.items()):
            if self._find_node(link.broker_id) is None:
                del self._links[key]
                closing = self._environment.loop.create_task(link.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
            else:
                link.check_address()

    async def close(self) -> None:
        links = list(self._links.values())
        self._links.clear()
        await asyncio.gather(*(link.close() for link in links), *self._closing)


def client_id(broker_id: BrokerId, purpose: str) -> str:
    """The client id that a 3.9 broker uses for the same purpose."""
    if purpose.startswith(FETCHER):
        return f"broker-{broker_id}-{purpose}"
    if purpose == MARKERS:
        return f"broker-{broker_id}-txn-marker-sender"
    return str(broker_id)
