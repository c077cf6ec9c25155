"""Requests to the controller: they find it, wherever it goes, within their time."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import pytest

from barnabas.errors import NotController, RequestTimedOut
from barnabas.model import BrokerId
from barnabas.net.transport import SocketTransport
from barnabas.peers.controller_channel import ControllerChannel
from barnabas.peers.node import Node
from barnabas.peers.peers import Peers
from barnabas.peers.versions import NEWEST
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_request import AlterPartitionRequest
from barnabas.protocol.messages.alter_partition_response import AlterPartitionResponse
from barnabas.protocol.messages.create_topics_request import CreateTopicsRequest
from barnabas.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from tests.net.on_loop import on_loop
from tests.peers.link_peers import ScriptedBroker

VERSIONS = {19: (0, 7), 56: (0, 3)}
REQUEST = AlterPartitionRequest(broker_id=1)
TIMEOUT_MS = 60_000


class Controllers:
    """Two brokers, one of which is the controller."""

    def __init__(self) -> None:
        self.active = 2
        self.known: BrokerId | None = BrokerId(2)
        self.brokers = {id_: ScriptedBroker(self._answer_of(id_), VERSIONS) for id_ in (2, 3)}
        self.nodes: dict[int, Node] = {}
        loop = asyncio.get_running_loop()
        self.peers = Peers(BrokerId(1), self.nodes.get, SocketTransport(), loop, NEWEST)
        self.channel = ControllerChannel(self.peers, lambda: self.known, loop)

    async def __aenter__(self) -> Self:
        for id_, broker in self.brokers.items():
            await broker.start()
            self.nodes[id_] = Node(id_, "127.0.0.1", broker.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.peers.close()
        for broker in self.brokers.values():
            await broker.stop()

    def _answer_of(self, broker_id: int) -> Any:
        async def answer(request: Any) -> Message:
            code = 0 if broker_id == self.active else NotController.code
            if code:
                # What the broker learns of the new controller meanwhile.
                self.known = BrokerId(self.active)
            if request.api.name == "CreateTopics":
                return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code)])
            return AlterPartitionResponse(error_code=code)

        return answer


@on_loop
async def test_a_request_follows_the_controller() -> None:
    async with Controllers() as cluster:
        cluster.active = 3
        answer = await cluster.channel.ask("AlterPartition", REQUEST, timeout_ms=TIMEOUT_MS)
        assert answer.error_code == 0
        assert cluster.brokers[2].names == cluster.brokers[3].names == ["ApiVersions", "AlterPartition"]


@on_loop
async def test_the_error_of_a_topic_may_say_so_too() -> None:
    async with Controllers() as cluster:
        cluster.active = 3
        answer = await cluster.channel.ask("CreateTopics", CreateTopicsRequest(), timeout_ms=TIMEOUT_MS)
        assert [each.error_code for each in answer.topics] == [0]


@on_loop
async def test_a_request_waits_for_a_controller() -> None:
    async with Controllers() as cluster:
        cluster.known = None
        asked = asyncio.ensure_future(cluster.channel.ask("AlterPartition", REQUEST, timeout_ms=TIMEOUT_MS))
        await asyncio.sleep(0)
        assert not asked.done()
        cluster.known = BrokerId(2)
        assert (await asked).error_code == 0


@on_loop
async def test_a_request_waits_for_a_controller_that_cannot_be_reached() -> None:
    async with Controllers() as cluster:
        port = cluster.brokers[2].port
        await cluster.brokers[2].stop()
        asked = asyncio.ensure_future(cluster.channel.ask("AlterPartition", REQUEST, timeout_ms=TIMEOUT_MS))
        await asyncio.sleep(0)
        await cluster.brokers[2].start(port)
        assert (await asked).error_code == 0


@on_loop
async def test_the_time_of_a_request_ends() -> None:
    async with Controllers() as cluster:
        cluster.known = None
        with pytest.raises(RequestTimedOut, match="no controller is known"):
            await cluster.channel.ask("AlterPartition", REQUEST, timeout_ms=250)
