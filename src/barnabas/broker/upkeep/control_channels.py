"""The controller's channels to the brokers of a cluster.

Each broker has a queue, first in first out, with one request in flight. A request that fails is repeated for ever,
with a short back-off, until the registration of its broker ends or changes; then the queue is dropped. The controller
does not wait for any of this. Requests to the broker in this process take the same path without the network.

A broker may be registered and yet take no requests, as when its process hangs. What waits for it is merged when it
has become much (`control_merging.py`), so that the queue has a bound.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Final

from barnabas.broker.upkeep.control_merging import merged, partition_count
from barnabas.broker.upkeep.control_requests import LocalLinks
from barnabas.broker.upkeep.control_versions import as_answered, as_sent
from barnabas.coordination.controller.events import ControlRequest
from barnabas.coordination.controller.links import ControlResponse, OnAnswer
from barnabas.coordination.metadata.image import BrokerImage
from barnabas.errors import KafkaError
from barnabas.model import BrokerId
from barnabas.peers.link import PeerLink
from barnabas.peers.node import Node
from barnabas.peers.peers import CONTROL, Peers
from barnabas.protocol.errors import EncodeError

log = logging.getLogger(__name__)

RETRY_MS: Final = 100
# More than this many requests for a broker, or more partitions in them, are merged.
WAITING_MAX: Final = 100
PARTITIONS_MAX: Final = 10_000


class ControlChannels:
    """`listener` is the name of the listener for requests between brokers."""

    def __init__(
        self, broker_id: BrokerId, here: LocalLinks, peers: Peers, *, listener: str, timeout_ms: int
    ) -> None:
        self._broker_id = broker_id
        self._here = here
        self._peers = peers
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._channels: dict[BrokerId, _Channel] = {}
        self._on_answer: OnAnswer | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def queue_sizes(self) -> dict[BrokerId, int]:
        """How many requests wait for each of the other brokers, with the one in flight."""
        return {broker_id: len(channel.waiting) for broker_id, channel in self._channels.items()}

    def listen(self, on_answer: OnAnswer) -> None:
        self._on_answer = on_answer
        self._here.listen(on_answer)

    def connect(self, brokers: Mapping[BrokerId, BrokerImage]) -> None:
        for broker_id, channel in list(self._channels.items()):
            broker = brokers.get(broker_id)
            if broker is None or broker.epoch != channel.broker.epoch:
                del self._channels[broker_id]
                self._end(channel)
        for broker_id, broker in brokers.items():
            if broker_id != self._broker_id and broker_id not in self._channels:
                self._channels[broker_id] = _Channel(
                    broker, self._link(broker), self._answer, self._timeout_ms
                )

    def send(self, broker_id: BrokerId, request: ControlRequest) -> None:
        if broker_id == self._broker_id:
            self._here.send(broker_id, request)
            return
        channel = self._channels.get(broker_id)
        if channel is None:
            log.info("Not sending %s to broker %d: it is offline", type(request).__name__, broker_id)
            self._answer_soon(broker_id, request)
        else:
            channel.send(request)

    async def close(self) -> None:
        self.connect({})
        await self._here.close()
        while self._ending:
            await asyncio.wait(self._ending)

    def _link(self, broker: BrokerImage) -> PeerLink:
        endpoint = broker.endpoint(self._listener)
        if endpoint is None:
            log.error("Broker %d has no listener %s", broker.id, self._listener)
        # The controller learns addresses from registrations, before they are in any metadata.
        node = None if endpoint is None else Node(broker.id, endpoint.host, endpoint.port, broker.rack)
        return self._peers.private_link(broker.id, node, CONTROL)

    def _end(self, channel: _Channel) -> None:
        for request in channel.drop():
            self._answer_soon(channel.broker.id, request)
        ending = asyncio.get_running_loop().create_task(channel.close())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _answer_soon(self, broker_id: BrokerId, request: ControlRequest) -> None:
        asyncio.get_running_loop().call_soon(self._answer, broker_id, request, None)

    def _answer(self, broker_id: BrokerId, request: ControlRequest, response: ControlResponse | None) -> None:
        if self._on_answer is not None:
            self._on_answer(broker_id, request, response)


class _Channel:
    """The queue of one registration of a broker. The controller decides and cannot wait, so what is much is merged."""

    def __init__(self, broker: BrokerImage, link: PeerLink, on_answer: OnAnswer, timeout_ms: int) -> None:
        self.broker = broker
        # The first one may be in flight.
        self.waiting: deque[ControlRequest] = deque()
        self._link = link
        self._on_answer = on_answer
        self._timeout_ms = timeout_ms
        # Runs while there are requests.
        self._worker: asyncio.Task[None] | None = None
        self._is_failing = False
        # How many partitions wait, the one in flight not counted, and how many were left when they were merged.
        self._partitions = 0
        self._merged_partitions = 0

    def send(self, request: ControlRequest) -> None:
        if self.waiting:
            self._partitions += partition_count(request)
        self.waiting.append(request)
        if len(self.waiting) > WAITING_MAX or self._partitions > PARTITIONS_MAX + 2 * self._merged_partitions:
            self._merge()
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._run())

    def _merge(self) -> None:
        """The first one may be in flight, and stays as it is."""
        in_flight = self.waiting.popleft()
        left = merged(self.waiting)
        self._partitions = self._merged_partitions = sum(map(partition_count, left))
        self.waiting = deque([in_flight, *left])

    def drop(self) -> list[ControlRequest]:
        """Gives up. Returns the requests that have no answer."""
        dropped = list(self.waiting)
        self.waiting.clear()
        if self._worker is not None:
            self._worker.cancel()
        return dropped

    async def close(self) -> None:
        if self._worker is not None:
            await asyncio.wait([self._worker])
        await self._link.close()

    async def _run(self) -> None:
        try:
            while self.waiting:
                response = await self._deliver(self.waiting[0])
                request = self.waiting.popleft()
                if self.waiting:
                    self._partitions -= partition_count(self.waiting[0])
                else:
                    self._partitions = self._merged_partitions = 0
                self._on_answer(self.broker.id, request, response)
        finally:
            self._worker = None

    async def _deliver(self, request: ControlRequest) -> ControlResponse | None:
        """The answer of the broker; None if the request cannot be sent at all."""
        name = type(request).__name__.removesuffix("Request")
        version = self._link.level.version_of(name)
        try:
            responses = [await self._deliver_one(name, each, version) for each in as_sent(request, version)]
            return as_answered(request, responses)
        except Exception:
            # The change is stored, and other requests have to follow.
            log.exception("%s cannot be sent to broker %d", name, self.broker.id)
            return None

    async def _deliver_one(self, name: str, request: ControlRequest, version: int) -> ControlResponse:
        while True:
            try:
                response: ControlResponse = await self._link.ask(
                    name, request, version=version, timeout_ms=self._timeout_ms
                )
            except EncodeError:
                # It would fail each time.
                raise
            except (KafkaError, OSError) as error:
                # Also if there are no descriptors left, or a key is being replaced.
                if not self._is_failing:
                    log.warning("Broker %d does not take requests: %s", self.broker.id, error)
                self._is_failing = True
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            if self._is_failing:
                log.info("Broker %d takes requests again", self.broker.id)
                self._is_failing = False
            return response
