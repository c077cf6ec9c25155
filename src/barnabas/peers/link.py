"""One connection to another broker, opened when it is first needed.

Requests go out one at a time, in the order in which they were asked. The level of `inter.broker.protocol.version`
settles the versions of most of them; for the others the link asks the broker for its versions, once per connection.

A failed request ends the connection, because it is unknown how far the broker got; the next request opens another one,
after a back-off that grows with each failure. The link repeats no request.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.errors import (
    IllegalSaslState,
    KafkaError,
    NetworkException,
    RequestTimedOut,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from barnabas.model import BrokerId
from barnabas.net.requester import Requester
from barnabas.net.transport import Transport
from barnabas.peers.handshake import Link, answer_to, shake_hands
from barnabas.peers.node import Node
from barnabas.peers.versions import VERSIONS, ProtocolLevel
from barnabas.protocol.apis import Api, api_for_name
from barnabas.protocol.message import Message

if TYPE_CHECKING:
    from barnabas.peers.security import ConnectionSecurity

MAX_WAITING: Final = 1_000
BACKOFF_MS: Final = 50
BACKOFF_MS_MAX: Final = 400
CONNECT_TIMEOUT_MS: Final = 10_000
# The link's own time limit ends a request first.
REQUESTER_SLACK_S: Final = 1.0


class LinkEnvironment(NamedTuple):
    """What the links of one broker share."""

    loop: AbstractEventLoop
    transport: Transport
    level: ProtocolLevel
    receive_buffer: bytearray
    # None for PLAINTEXT.
    security: ConnectionSecurity | None = None


class PeerLink:
    def __init__(
        self,
        broker_id: BrokerId,
        find_node: Callable[[BrokerId], Node | None],
        environment: LinkEnvironment,
        client_id: str,
    ) -> None:
        """`find_node` returns the broker's present address, or None if the broker is not alive."""
        self.broker_id = broker_id
        self._find_node = find_node
        self._loop = environment.loop
        self._transport = environment.transport
        self.level = environment.level
        self._receive_buffer = environment.receive_buffer
        self._security = environment.security
        self._client_id = client_id
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._node: Node | None = None
        self._requester: Requester | None = None
        # What the broker has said on this connection, if it was asked.
        self._versions: Link | None = None
        self._connecting: asyncio.Task[Requester] | None = None
        self._failures = 0
        self._next_attempt_s = 0.0
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return self._requester is not None and self._requester.closed_by is None

    async def ask(
        self, api_name: str, request: Message, *, version: int | None = None, timeout_ms: float
    ) -> Any:
        """The answer to a request, within the time from when it is sent.

        Its turn and the connection, after a back-off, may take as long once more: otherwise a request that is answered
        late by design, as a Fetch is, would never be answered in time after a back-off.
        Raises NetworkException and RequestTimedOut, after which the broker may have carried the request out, and
        UnsupportedVersion.
        """
        api = api_for_name(api_name)
        if self._waiting >= MAX_WAITING:
            raise NetworkException(f"{self._waiting} requests wait for broker {self.broker_id}")
        timeout_s = timeout_ms / 1000
        self._waiting += 1
        try:
            async with asyncio.timeout_at(self._loop.time() + timeout_s) as timeout, self._turn:
                requester = await self._connected()
                deadline_s = self._loop.time() + timeout_s
                timeout.reschedule(deadline_s)
                return await self._ask_now(requester, api, request, version, deadline_s)
        except TimeoutError:
            raise RequestTimedOut(
                f"broker {self.broker_id} did not answer a {api_name} request within {round(timeout_ms)} ms"
            ) from None
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Ends the connection. Requests that wait get NetworkException, and so do later ones."""
        self._is_closed = True
        connecting = self._connecting
        if connecting is not None:
            connecting.cancel()
            await asyncio.wait([connecting])
        self._drop(f"the link to broker {self.broker_id} is closed")

    def check_address(self) -> None:
        """Ends the connection if the broker has moved, or is gone. A request under way gets NetworkException."""
        if self._node is not None:
            self._drop_if_moved(self._find_node(self.broker_id))

    async def _ask_now(
        self, requester: Requester, api: Api, request: Message, version: int | None, deadline_s: float
    ) -> Any:
        try:
            if version is None:
                version = await self._version_of(api, requester, deadline_s)
            timeout_s = deadline_s - self._loop.time() + REQUESTER_SLACK_S
            answer = await answer_to(requester, api, version, request, timeout_s=timeout_s)
        except UnsupportedVersion:
            raise
        except KafkaError:
            self._back_off()
            raise
        except asyncio.CancelledError:
            # The answer may still come, and the next request is not to wait for it. The request may be sent again.
            requester.close(aborts=True)
            self._back_off()
            raise
        self._failures = 0
        return answer

    async def _version_of(self, api: Api, requester: Requester, deadline_s: float) -> int:
        if api.name in VERSIONS:
            return self.level.version_of(api.name)
        if self._versions is None:
            assert self._node is not None
            timeout_s = deadline_s - self._loop.time() + REQUESTER_SLACK_S
            self._versions = await shake_hands(self._node, requester, timeout_s=timeout_s)
        return self._versions.version_of(api, self.level.max_version_of(api.name))

    async def _connected(self) -> Requester:
        self._drop_if_moved(self._find_node(self.broker_id))
        if self._requester is not None and self._requester.closed_by is None:
            return self._requester
        if self._is_closed:
            raise NetworkException(f"the link to broker {self.broker_id} is closed")
        self._connecting = connecting = self._loop.create_task(self._connect())
        try:
            return await connecting
        except NetworkException:
            self._back_off()
            raise
        except (
            SaslAuthenticationFailed,
            UnsupportedSaslMechanism,
            IllegalSaslState,
            RequestTimedOut,
        ) as error:
            # Between brokers this passes when an operator corrects the settings or the credentials.
            self._back_off()
            raise NetworkException(str(error)) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            if task.cancelling() or not self._is_closed:
                raise
            raise NetworkException(f"the link to broker {self.broker_id} is closed") from None
        finally:
            self._connecting = None

    async def _connect(self) -> Requester:
        wait_s = self._next_attempt_s - self._loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        node = self._find_node(self.broker_id)
        if node is None:
            raise NetworkException(f"broker {self.broker_id} is not alive")
        timeout_s = CONNECT_TIMEOUT_MS / 1000
        peer = f"broker {self.broker_id} at {node}"
        channel = await self._transport.connect(node.host, node.port, timeout_s=timeout_s)
        if self._security is not None:
            channel = await self._security.secure(channel, node.host, peer=peer, timeout_s=timeout_s)
        requester = Requester(
            channel,
            loop=self._loop,
            receive_buffer=self._receive_buffer,
            client_id=self._client_id,
            peer=peer,
            on_close=_ignore,
        )
        requester.open()
        if self._security is not None:
            await self._security.authenticate(requester, node.host, timeout_s=timeout_s)
        self._node, self._requester, self._versions = node, requester, None
        return requester

    def _drop_if_moved(self, node: Node | None) -> None:
        known = self._node
        if known is not None and (node is None or (known.host, known.port) != (node.host, node.port)):
            where = "is not alive" if node is None else f"has moved to {node}"
            # The failures were those of another address.
            self._failures = 0
            self._next_attempt_s = 0.0
            self._drop(f"broker {self.broker_id} {where}")

    def _drop(self, reason: str) -> None:
        requester = self._requester
        self._node, self._requester, self._versions = None, None, None
        if requester is not None:
            requester.close(NetworkException(reason), aborts=requester.in_flight > 0)

    def _back_off(self) -> None:
        wait_ms = min(BACKOFF_MS * 2.0 ** min(self._failures, 16), BACKOFF_MS_MAX)
        self._failures += 1
        self._next_attempt_s = self._loop.time() + wait_ms / 1000


def _ignore(requester: Requester) -> None:
    pass
