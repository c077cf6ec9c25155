"""Links to other brokers, against brokers that answer, are slow, move, and end connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from barnabas.errors import NetworkException, RequestTimedOut, UnsupportedVersion
from barnabas.model import BrokerId
from barnabas.net.transport import SocketTransport
from barnabas.peers import link
from barnabas.peers.node import Node
from barnabas.peers.peers import CONTROL, CONTROLLER, FETCHER, MARKERS, Peers, client_id
from barnabas.peers.versions import NEWEST, ProtocolLevel
from barnabas.protocol.message import Message
from barnabas.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from barnabas.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from barnabas.protocol.messages.alter_partition_request import AlterPartitionRequest
from barnabas.protocol.messages.alter_partition_response import AlterPartitionResponse
from barnabas.protocol.messages.update_metadata_request import UpdateMetadataRequest
from barnabas.protocol.messages.update_metadata_response import UpdateMetadataResponse
from tests.net.on_loop import on_loop
from tests.peers.link_peers import ScriptedBroker
from tests.waiting import wait_until_async

TIMEOUT_MS = 60_000
BROKER = BrokerId(2)
UPDATE = UpdateMetadataRequest(controller_id=1, controller_epoch=3)


async def answer_ok(request: Any) -> Message:
    return UpdateMetadataResponse()


class Cluster:
    """Where brokers are, as the test says."""

    def __init__(self, level: ProtocolLevel = NEWEST) -> None:
        self.nodes: dict[int, Node] = {}
        self.peers = Peers(BrokerId(1), self.nodes.get, SocketTransport(), asyncio.get_running_loop(), level)

    def put(self, broker: ScriptedBroker) -> None:
        self.nodes[BROKER] = Node(BROKER, "127.0.0.1", broker.port)

    def ask(self, request: Message = UPDATE, timeout_ms: float = TIMEOUT_MS) -> Awaitable[Any]:
        return self.peers.link(BROKER, CONTROL).ask("UpdateMetadata", request, timeout_ms=timeout_ms)


@asynccontextmanager
async def cluster_of(*brokers: ScriptedBroker, level: ProtocolLevel = NEWEST) -> AsyncIterator[Cluster]:
    """A cluster in which the broker is the first of these."""
    for broker in brokers:
        await broker.start()
    cluster = Cluster(level)
    cluster.put(brokers[0])
    try:
        yield cluster
    finally:
        await cluster.peers.close()
        for broker in brokers:
            await broker.stop()


@on_loop
async def test_the_protocol_level_settles_versions_without_a_handshake() -> None:
    broker = ScriptedBroker(answer_ok)
    async with cluster_of(broker, level=ProtocolLevel.parse("2.8")) as cluster:
        await cluster.ask()
        await cluster.ask()
    assert [(each.api.name, each.version) for each in broker.requests] == [("UpdateMetadata", 7)] * 2
    assert broker.requests[0].header.client_id == "1"
    assert broker.connections == 1


@on_loop
async def test_other_requests_use_the_highest_version_that_both_know() -> None:
    async def answer(request: Any) -> Message:
        return AlterPartitionResponse() if request.api.key == 56 else AllocateProducerIdsResponse()

    broker = ScriptedBroker(answer, versions={18: (0, 4), 56: (0, 2), 67: (0, 0)})
    async with cluster_of(broker) as cluster:
        link = cluster.peers.link(BROKER, CONTROLLER)
        await link.ask("AlterPartition", AlterPartitionRequest(), timeout_ms=TIMEOUT_MS)
        await link.ask("AllocateProducerIds", AllocateProducerIdsRequest(), timeout_ms=TIMEOUT_MS)
        with pytest.raises(UnsupportedVersion):
            await link.ask("EndTxn", UPDATE, timeout_ms=TIMEOUT_MS)
        await link.ask("AlterPartition", AlterPartitionRequest(), version=1, timeout_ms=TIMEOUT_MS)
    assert [(each.api.name, each.version) for each in broker.requests] == [
        ("ApiVersions", 3),
        ("AlterPartition", 2),
        ("AllocateProducerIds", 0),
        ("AlterPartition", 1),
    ]


@on_loop
async def test_levels_without_topic_ids_bound_alter_partition() -> None:
    async def answer(request: Any) -> Message:
        return AlterPartitionResponse()

    broker = ScriptedBroker(answer, versions={56: (0, 3)})
    async with cluster_of(broker, level=ProtocolLevel.parse("2.7")) as cluster:
        link = cluster.peers.link(BROKER, CONTROLLER)
        await link.ask("AlterPartition", AlterPartitionRequest(), timeout_ms=TIMEOUT_MS)
    assert broker.requests[-1].version == 1


@on_loop
async def test_requests_go_out_one_at_a_time_in_order() -> None:
    may_answer = asyncio.Event()

    async def answer(request: Any) -> Message:
        await may_answer.wait()
        return UpdateMetadataResponse()

    broker = ScriptedBroker(answer)
    async with cluster_of(broker) as cluster:
        asked = [
            asyncio.ensure_future(cluster.ask(UpdateMetadataRequest(controller_id=number)))
            for number in range(4)
        ]
        await wait_until_async(lambda: broker.requests)
        assert len(broker.requests) == 1
        may_answer.set()
        await asyncio.gather(*asked)
    assert [each.body.controller_id for each in broker.requests] == [0, 1, 2, 3]


@on_loop
async def test_purposes_do_not_wait_for_each_other() -> None:
    may_answer = asyncio.Event()

    async def answer(request: Any) -> Message:
        if request.body.controller_id == 0:
            await may_answer.wait()
        return UpdateMetadataResponse()

    async with cluster_of(ScriptedBroker(answer)) as cluster:
        slow = asyncio.ensure_future(cluster.ask(UpdateMetadataRequest(controller_id=0)))
        fast = cluster.peers.link(BROKER, "fetcher-0")
        await fast.ask("UpdateMetadata", UpdateMetadataRequest(controller_id=1), timeout_ms=TIMEOUT_MS)
        may_answer.set()
        await slow


@on_loop
async def test_a_broker_that_ends_the_connection_fails_one_request_only() -> None:
    answers: list[Message | None] = [None, UpdateMetadataResponse()]

    async def answer(request: Any) -> Message | None:
        return answers.pop(0)

    broker = ScriptedBroker(answer)
    async with cluster_of(broker) as cluster:
        with pytest.raises(NetworkException):
            await cluster.ask()
        await cluster.ask()
        assert broker.connections == 2


@on_loop
async def test_a_request_without_an_answer_in_time_ends_the_connection() -> None:
    never = asyncio.Event()

    async def answer(request: Any) -> Message:
        await never.wait()
        return UpdateMetadataResponse()

    broker = ScriptedBroker(answer)
    async with cluster_of(broker) as cluster:
        with pytest.raises(RequestTimedOut, match="broker 2 did not answer a UpdateMetadata request"):
            await cluster.ask(timeout_ms=200)
        assert not cluster.peers.link(BROKER, CONTROL).is_connected
        never.set()
        await cluster.ask()
        assert broker.connections == 2


@on_loop
async def test_a_broker_that_nobody_knows_cannot_be_asked() -> None:
    async with cluster_of(ScriptedBroker(answer_ok)) as cluster:
        cluster.nodes.clear()
        with pytest.raises(NetworkException, match="broker 2 is not alive"):
            await cluster.ask()


@on_loop
async def test_the_link_follows_a_broker_that_moves() -> None:
    never = asyncio.Event()

    async def stay_silent(request: Any) -> Message | None:
        await never.wait()
        return None

    old, new = ScriptedBroker(stay_silent), ScriptedBroker(answer_ok)
    async with cluster_of(old, new) as cluster:
        waiting = asyncio.ensure_future(cluster.ask())
        await wait_until_async(lambda: old.requests)
        cluster.put(new)
        cluster.peers.check_addresses()
        with pytest.raises(NetworkException, match="has moved"):
            await waiting
        await cluster.ask()
        assert len(new.requests) == 1
        never.set()


@on_loop
async def test_the_link_to_a_broker_that_is_gone_ends() -> None:
    broker = ScriptedBroker(answer_ok)
    async with cluster_of(broker) as cluster:
        await cluster.ask()
        gone = cluster.peers.link(BROKER, CONTROL)
        node = cluster.nodes.pop(BROKER)
        cluster.peers.check_addresses()
        await wait_until_async(lambda: not broker.open_connections)
        cluster.nodes[BROKER] = node
        with pytest.raises(NetworkException, match="is closed"):
            await gone.ask("UpdateMetadata", UPDATE, timeout_ms=TIMEOUT_MS)
        await cluster.ask()


@on_loop
async def test_close_ends_all_that_wait() -> None:
    never = asyncio.Event()

    async def stay_silent(request: Any) -> Message | None:
        await never.wait()
        return None

    broker = ScriptedBroker(stay_silent)
    async with cluster_of(broker) as cluster:
        waiting = [asyncio.ensure_future(cluster.ask()) for _ in range(3)]
        await wait_until_async(lambda: broker.requests)
        await cluster.peers.close()
        for each in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(each, NetworkException)
        never.set()


@on_loop
async def test_close_ends_an_attempt_to_connect() -> None:
    class Unreachable(SocketTransport):
        async def connect(self, host: str, port: int, *, timeout_s: float) -> Any:
            trying.set()
            await asyncio.Event().wait()

    trying = asyncio.Event()
    find: Callable[[BrokerId], Node | None] = lambda broker_id: Node(broker_id, "nowhere", 1)  # noqa: E731
    peers = Peers(BrokerId(1), find, Unreachable(), asyncio.get_running_loop(), NEWEST)
    waiting = asyncio.ensure_future(
        peers.link(BROKER, CONTROL).ask("UpdateMetadata", UPDATE, timeout_ms=TIMEOUT_MS)
    )
    await trying.wait()
    await peers.close()
    with pytest.raises(NetworkException, match="is closed"):
        await waiting


@on_loop
async def test_a_cancelled_request_does_not_hold_up_the_next_one() -> None:
    never = asyncio.Event()

    async def answer(request: Any) -> Message:
        if request.body.controller_id == 0:
            await never.wait()
        return UpdateMetadataResponse()

    broker = ScriptedBroker(answer)
    async with cluster_of(broker) as cluster:
        cancelled = asyncio.ensure_future(cluster.ask(UpdateMetadataRequest(controller_id=0)))
        await wait_until_async(lambda: broker.requests)
        cancelled.cancel()
        await cluster.ask(UpdateMetadataRequest(controller_id=1))
        assert cancelled.cancelled()
        never.set()


@on_loop
async def test_repeated_failures_wait_longer_and_longer() -> None:
    loop = asyncio.get_running_loop()
    attempts_s: list[float] = []

    class Refusing(SocketTransport):
        async def connect(self, host: str, port: int, *, timeout_s: float) -> Any:
            attempts_s.append(loop.time())
            raise NetworkException("refused")

    peers = Peers(BrokerId(1), lambda id_: Node(id_, "nowhere", 1), Refusing(), loop, NEWEST)
    for _ in range(4):
        with pytest.raises(NetworkException):
            await peers.link(BROKER, CONTROL).ask("UpdateMetadata", UPDATE, timeout_ms=TIMEOUT_MS)
    waits_s = [after - before for before, after in pairwise(attempts_s)]
    # A timer may fire a moment early, by the resolution of the loop's clock.
    assert all(wait >= least - 0.01 for wait, least in zip(waits_s, [0.05, 0.1, 0.2], strict=True))
    await peers.close()


@pytest.mark.slow
@on_loop
async def test_a_back_off_takes_nothing_from_the_time_for_the_answer() -> None:
    """A Fetch is answered late by design: after a failure it would time out for ever."""
    is_failing = True

    async def answer(request: Any) -> Message | None:
        if is_failing:
            return None
        await asyncio.sleep(0.8)
        return UpdateMetadataResponse()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(link, "BACKOFF_MS", 1_000)
        patched.setattr(link, "BACKOFF_MS_MAX", 1_000)
        async with cluster_of(ScriptedBroker(answer)) as cluster:
            with pytest.raises(NetworkException):
                await cluster.ask()
            is_failing = False
            await cluster.ask(timeout_ms=1_500)


def test_client_ids_are_those_of_a_kafka_broker() -> None:
    assert client_id(BrokerId(4), CONTROL) == "4"
    assert client_id(BrokerId(4), CONTROLLER) == "4"
    assert client_id(BrokerId(4), MARKERS) == "broker-4-txn-marker-sender"
    assert client_id(BrokerId(4), FETCHER + "1") == "broker-4-fetcher-1"
