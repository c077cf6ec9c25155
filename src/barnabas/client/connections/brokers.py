"""The connections of one client: to the brokers that it knows, opened when they are first needed.

A node id identifies a broker. The addresses of `bootstrap.servers` have negative ids, as in Kafka's own clients. The
client uses them until it has the brokers of the cluster, and again if it can reach none of those. On every new
connection the client first asks for the versions of the broker's APIs. After a failed connection the client does not
try the broker for a while, longer after each failure, with a random variation.

This module does not repeat requests; use `retrying` for that.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from barnabas.client.connections.outage import Outage, addresses
from barnabas.client.samples import Samples
from barnabas.client.settings import ClientSettings
from barnabas.errors import KafkaError, NetworkException, RequestTimedOut
from barnabas.net.requester import OnDone, Requester
from barnabas.net.transport import connect
from barnabas.peers.handshake import Link, VersionRange, answer_to, shake_hands
from barnabas.peers.node import Node
from barnabas.protocol.apis import Api, api_for_name
from barnabas.protocol.frames import RECEIVE_BUFFER_BYTES
from barnabas.protocol.message import Message

log = logging.getLogger(__name__)

T = TypeVar("T")

BACKOFF_JITTER: Final = 0.2
IDLE_CHECKS: Final = 4


class _Peer:
    """The state of the connection to one broker."""

    __slots__ = ("connecting", "failure", "failures", "link", "next_attempt_s", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.link: Link | None = None
        self.connecting: asyncio.Task[Link] | None = None
        # Why the last attempt to connect has failed; None after a successful one.
        self.failure: BaseException | None = None
        self.failures = 0
        self.next_attempt_s = 0.0


class Brokers:
    def __init__(
        self,
        settings: ClientSettings,
        *,
        outage: Outage | None = None,
        chooser: random.Random | None = None,
    ) -> None:
        """Must be created on the loop that uses it. A client that has several of these gives them one `outage`."""
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._outage = outage or Outage()
        self._random = chooser or random.Random()
        self._receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._bootstrap = tuple(
            Node(-1 - number, host, port) for number, (host, port) in enumerate(settings.bootstrap)
        )
        self._peers: dict[int, _Peer] = {node.id: _Peer(node) for node in self._bootstrap}
        self._known: dict[int, Node] = {}
        self._idle_timer: asyncio.TimerHandle | None = None
        self.is_closed = False
        self._connections_created = 0
        self._connections_failed = 0
        self._requests = 0
        # Milliseconds until an answer; those of `submit` are added by the caller, who may count them apart.
        self.request_latency = Samples("request-latency")
        # Called with a node id when its connection is open, and when it has ended or could not be opened.
        self.on_change: list[Callable[[int], None]] = []

    def metrics(self) -> dict[str, float]:
        """Connections and requests, with the names of Kafka's own metrics."""
        return self.counters() | self.request_latency.metrics(self._loop.time())

    def counters(self) -> dict[str, float]:
        """Those metrics that can be added up."""
        links = [peer.link for peer in self._peers.values() if peer.link is not None]
        return {
            "connection-count": len(links),
            "connection-creation-total": self._connections_created,
            "failed-connection-total": self._connections_failed,
            "request-total": self._requests,
            "requests-in-flight": sum(link.requester.in_flight for link in links),
        }

    @property
    def nodes(self) -> list[Node]:
        """The brokers in the metadata of the cluster."""
        return list(self._known.values())

    def node(self, node_id: int) -> Node | None:
        peer = self._peers.get(node_id)
        return None if peer is None else peer.node

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Takes over what a metadata answer says of the brokers. Connections to brokers that are gone end."""
        known = {node.id: node for node in nodes}
        if not known:
            return
        for node_id, node in known.items():
            peer = self._peers.get(node_id)
            if peer is None:
                self._peers[node_id] = _Peer(node)
            elif (peer.node.host, peer.node.port) != (node.host, node.port):
                self._drop(peer, f"broker {node_id} has moved to {node}")
                self._peers[node_id] = _Peer(node)
            else:
                peer.node = node
        for node_id in [each for each in self._peers if each >= 0 and each not in known]:
            self._drop(self._peers.pop(node_id), f"broker {node_id} is not in the cluster any more")
        self._known = known

    def learn(self, node: Node) -> None:
        """Takes note of a broker that another answer than metadata has named, such as a coordinator."""
        peer = self._peers.get(node.id)
        if peer is None:
            self._peers[node.id] = _Peer(node)
            self._known[node.id] = node
        elif (peer.node.host, peer.node.port) != (node.host, node.port):
            self._drop(peer, f"broker {node.id} has moved to {node}")
            self._peers[node.id] = _Peer(node)
            self._known[node.id] = node

    def link_of(self, node_id: int) -> Link | None:
        """The open connection to a broker, if there is one."""
        peer = self._peers.get(node_id)
        return None if peer is None else peer.link

    def connect_soon(self, node_id: int) -> None:
        """Starts to connect, unless an attempt is in progress or the back-off lasts; `on_change` reports the end."""
        peer = self._peers.get(node_id)
        if peer is None or peer.link is not None or peer.connecting is not None or self.is_closed:
            return
        if peer.next_attempt_s <= self._loop.time():
            self._begin(peer)

    def backoff_left_s(self, node_id: int) -> float:
        """The rest of the back-off of the broker."""
        peer = self._peers.get(node_id)
        return 0.0 if peer is None else max(0.0, peer.next_attempt_s - self._loop.time())

    async def link(self, node_id: int | None = None) -> Link:
        """A connection to the broker, or to any if none is named, opened if need be; else NetworkException."""
        if self.is_closed:
            raise NetworkException("the client is closed")
        if node_id is None:
            return await self._any_link()
        peer = self._peers.get(node_id)
        if peer is None:
            raise NetworkException(f"no broker with the id {node_id} is known")
        return await self._link_to(peer)

    async def request(
        self,
        node: int | None,
        request: Message,
        *,
        timeout_ms: float | None = None,
        max_version: int | None = None,
    ) -> Any:
        """The answer to a request, in the highest version that both sides know (and `max_version` allows).

        NetworkException and RequestTimedOut may be retried, UnsupportedVersion not. Error codes within the answer are
        the caller's to look at.
        """
        api = api_of(request)
        wait_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        link = await self.link(node)
        version = link.version_of(api, max_version)
        self._requests += 1
        sent_s = self._loop.time()
        answer = await answer_to(link.requester, api, version, request, timeout_s=wait_ms / 1000)
        now_s = self._loop.time()
        self.request_latency.add((now_s - sent_s) * 1000, now_s)
        return answer

    def submit(
        self,
        node: int,
        request: Message,
        version: int,
        on_done: OnDone,
        *,
        timeout_ms: float | None = None,
        expects_response: bool = True,
    ) -> None:
        """Sends a request on a connection that is open (`link_of`); `on_done` gets the answer, or None and why not."""
        link = self.link_of(node)
        if link is None:
            self._loop.call_soon(on_done, None, NetworkException(f"there is no connection to broker {node}"))
            return
        wait_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        self._requests += 1
        link.requester.send(
            api_of(request),
            version,
            request,
            on_done,
            timeout_s=wait_ms / 1000,
            expects_response=expects_response,
        )

    def version_of(self, node: int, api_key: int) -> VersionRange | None:
        """The versions of an API that the broker offers; None if it does not offer it, or is not connected."""
        link = self.link_of(node)
        return None if link is None else link.versions.get(api_key)

    async def close(self) -> None:
        self.is_closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        connecting = [peer.connecting for peer in self._peers.values() if peer.connecting is not None]
        for peer in self._peers.values():
            self._drop(peer, "the client is closed")
        if connecting:
            await asyncio.gather(*connecting, return_exceptions=True)

    async def _any_link(self) -> Link:
        """The connection with the fewest requests; otherwise any reachable broker, bootstrap addresses last."""
        open_links = [peer.link for peer in self._peers.values() if peer.link is not None]
        if open_links:
            return min(open_links, key=lambda link: (link.node.id < 0, link.requester.in_flight))
        peers = list(self._peers.values())
        self._random.shuffle(peers)
        peers.sort(key=lambda peer: (peer.next_attempt_s > self._loop.time(), peer.node.id < 0))
        failure: KafkaError | None = None
        for peer in peers:
            try:
                return await self._link_to(peer)
            except NetworkException as error:
                failure = error
        assert failure is not None
        tried = addresses(peer.node for peer in peers)
        raise NetworkException(f"no broker can be reached (tried {tried}): {failure}")

    async def _link_to(self, peer: _Peer) -> Link:
        if peer.link is not None:
            return peer.link
        if peer.connecting is None:
            wait_s = peer.next_attempt_s - self._loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if peer.link is not None:
                return peer.link
            if self._peers.get(peer.node.id) is not peer or self.is_closed:
                raise NetworkException(f"the broker at {peer.node} is not to be used any more")
            if peer.connecting is None:
                self._begin(peer)
        connecting = peer.connecting
        assert connecting is not None
        # A waiting task may be cancelled while others wait for the same connection.
        try:
            return await asyncio.shield(connecting)
        except KafkaError as error:
            raise error.with_traceback(None) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            if task.cancelling() or not connecting.cancelled():
                raise
            # The connection was cancelled, not the task that waits for it.
            raise NetworkException(
                "the client is closed"
                if self.is_closed
                else f"the broker at {peer.node} is not to be used any more"
            ) from None

    def _begin(self, peer: _Peer) -> None:
        peer.connecting = self._loop.create_task(self._connect(peer.node))
        peer.connecting.add_done_callback(lambda task: self._connected(peer, task))

    async def _connect(self, node: Node) -> Link:
        timeout_s = self._settings.socket_connection_setup_timeout_ms / 1000
        channel = await connect(
            node.host,
            node.port,
            timeout_s=timeout_s,
            send_buffer_bytes=self._settings.send_buffer_bytes,
            receive_buffer_bytes=self._settings.receive_buffer_bytes,
        )
        security = self._settings.security
        if security is not None:
            channel = await security.secure(channel, node.host, peer=str(node), timeout_s=timeout_s)
        requester = Requester(
            channel,
            loop=self._loop,
            receive_buffer=self._receive_buffer,
            client_id=self._settings.client_id,
            peer=str(node),
            on_close=lambda closed: self._closed(node.id, closed),
        )
        requester.open()
        answer_s = self._settings.request_timeout_ms / 1000
        link = await shake_hands(node, requester, timeout_s=answer_s)
        if security is not None:
            await security.authenticate(requester, node.host, timeout_s=answer_s)
        return link

    def _connected(self, peer: _Peer, task: asyncio.Task[Link]) -> None:
        peer.connecting = None
        failure = None if task.cancelled() else task.exception()
        if task.cancelled() or failure is not None:
            self._connections_failed += 1
            if isinstance(failure, KafkaError):
                self._settings.report(failure)
            elif failure is not None:
                log.error("connecting to %s failed in an unforeseen way", peer.node, exc_info=failure)
            self._back_off(peer)
            if failure is not None:
                peer.failure = failure
                self._notice_outage(failure)
        else:
            self._connections_created += 1
            link = task.result()
            if self._peers.get(peer.node.id) is not peer or self.is_closed:
                link.requester.close()
                return
            if link.requester.closed_by is not None:
                self._back_off(peer)
            else:
                peer.link = link
                peer.failure = None
                peer.failures = 0
                self._outage.end(peer.node)
                self._watch_idle()
        self._tell(peer.node.id)

    def _notice_outage(self, failure: BaseException) -> None:
        """One broker that can be reached is enough, and so is one that was not tried yet."""
        peers = self._peers.values()
        if all(peer.link is None and peer.failure is not None for peer in peers) and not self.is_closed:
            self._outage.begin((peer.node for peer in peers), failure, self._loop.time())

    def _closed(self, node_id: int, requester: Requester) -> None:
        peer = self._peers.get(node_id)
        if peer is not None and peer.link is not None and peer.link.requester is requester:
            peer.link = None
            log.debug("connection to %s ended: %s", peer.node, requester.closed_by)
            if requester.closed_by is not None and not self.is_closed:
                self._settings.report(requester.closed_by)
            self._back_off(peer)
            self._tell(node_id)

    def _back_off(self, peer: _Peer) -> None:
        backoff_ms = backoff_ms_after(
            peer.failures,
            first_ms=self._settings.reconnect_backoff_ms,
            max_ms=self._settings.reconnect_backoff_max_ms,
            chooser=self._random,
        )
        peer.failures += 1
        peer.next_attempt_s = self._loop.time() + backoff_ms / 1000

    def _drop(self, peer: _Peer, reason: str) -> None:
        if peer.connecting is not None:
            peer.connecting.cancel()
        if peer.link is not None:
            link = peer.link
            peer.link = None
            link.requester.close(NetworkException(reason))
            if not self.is_closed:
                self._tell(peer.node.id)

    def _tell(self, node_id: int) -> None:
        for listener in list(self.on_change):
            listener(node_id)

    def _watch_idle(self) -> None:
        idle_ms = self._settings.connections_max_idle_ms
        if idle_ms >= 0 and self._idle_timer is None:
            self._idle_timer = self._loop.call_later(
                max(idle_ms / 1000 / IDLE_CHECKS, 0.001), self._close_idle
            )

    def _close_idle(self) -> None:
        self._idle_timer = None
        oldest_s = self._loop.time() - self._settings.connections_max_idle_ms / 1000
        for peer in list(self._peers.values()):
            link = peer.link
            if link is not None and link.requester.is_idle_since(oldest_s):
                peer.link = None
                link.requester.close(NetworkException(f"the connection to {peer.node} was idle"))
                self._tell(peer.node.id)
        if any(peer.link is not None for peer in self._peers.values()):
            self._watch_idle()


_APIS_BY_REQUEST: Final[dict[type[Any], Api]] = {}


def api_of(request: Message) -> Api:
    kind = type(request)
    api = _APIS_BY_REQUEST.get(kind)
    if api is None:
        api = _APIS_BY_REQUEST[kind] = api_for_name(kind.__name__.removesuffix("Request"))
    return api


def backoff_ms_after(failures: int, *, first_ms: float, max_ms: float, chooser: random.Random) -> float:
    """The back-off after this many earlier failures: twice as long each time, a fifth more or less."""
    jitter = chooser.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER)
    return float(min(first_ms * 2.0 ** min(failures, 32), max(max_ms, first_ms))) * jitter


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    *,
    settings: ClientSettings,
    timeout_ms: float,
    what: str,
    is_retriable: Callable[[KafkaError], bool] = lambda error: error.retriable,
) -> T:
    """The result of the attempt, repeated after retriable errors, with back-off, until the time is over.

    RequestTimedOut then names the purpose (`what`, such as "creating topic t") and the last error.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    chooser = random.Random()
    last: KafkaError | None = None
    failures = 0
    try:
        async with asyncio.timeout_at(deadline_s):
            while True:
                try:
                    return await attempt()
                except KafkaError as error:
                    if not is_retriable(error):
                        raise
                    last = error
                backoff_ms = backoff_ms_after(
                    failures,
                    first_ms=settings.retry_backoff_ms,
                    max_ms=settings.retry_backoff_max_ms,
                    chooser=chooser,
                )
                failures += 1
                await asyncio.sleep(backoff_ms / 1000)
    except TimeoutError:
        because = "" if last is None else f": {last}" if str(last) == last.name else f": {last.name}: {last}"
        raise RequestTimedOut(f"{what} was not done within {timeout_ms:g} ms{because}") from last
