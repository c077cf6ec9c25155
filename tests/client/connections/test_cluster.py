"""Connections and metadata of a client, against a running broker."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from barnabas.client.connections.brokers import Brokers, retrying
from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.coordinator import Coordinator, CoordinatorType
from barnabas.client.loop_thread import LoopThread
from barnabas.client.settings import ClientSettings
from barnabas.errors import (
    InvalidTopicException,
    NetworkException,
    RequestTimedOut,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from barnabas.model import TopicPartition
from barnabas.peers.node import Node
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.testing import free_port
from tests.client.running import run
from tests.clients.broker_process import BrokerProcess

WAIT_S = 60


def settings_for(broker: BrokerProcess, **others: object) -> ClientSettings:
    return ClientSettings(bootstrap_servers=broker.address, **others)


def test_bootstrap_finds_the_broker_that_can_be_reached(broker: BrokerProcess) -> None:
    async def test(brokers: Brokers) -> None:
        cluster = Cluster(settings, brokers)
        await cluster.refresh()
        assert [node.port for node in brokers.nodes] == [broker.port]
        answer = await brokers.request(brokers.nodes[0].id, MetadataRequest(topics=[]))
        assert answer.brokers[0].port == broker.port

    settings = ClientSettings(bootstrap_servers=f"127.0.0.1:{free_port()},{broker.address}")
    run(settings, test)


def test_no_broker_at_all_says_which_were_tried() -> None:
    address = f"127.0.0.1:{free_port()}"

    async def test(brokers: Brokers) -> None:
        with pytest.raises(NetworkException, match=address):
            await brokers.request(None, MetadataRequest(topics=[]))
        with pytest.raises(RequestTimedOut, match="asking"):
            await retrying(
                lambda: brokers.request(None, MetadataRequest(topics=[])),
                settings=settings,
                timeout_ms=150,
                what="asking",
            )

    settings = ClientSettings(bootstrap_servers=address, retry_backoff_ms=10)
    run(settings, test)


def test_topics_are_known_once_they_are_there(broker: BrokerProcess, topic: str) -> None:
    async def test(brokers: Brokers) -> None:
        cluster = Cluster(settings, brokers)
        waiting = asyncio.create_task(cluster.wait_for_topic(topic, 30_000))
        await asyncio.sleep(0)
        await brokers.request(
            None,
            CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=2, replication_factor=1)]),
        )
        info = await waiting
        assert len(info.partitions) == 2
        tp = TopicPartition(topic, 1)
        leader = cluster.leader_of(tp)
        assert leader == brokers.nodes[0].id
        topic_id = cluster.topic_id(topic)
        assert topic_id is not None
        assert cluster.topic_name(topic_id) == topic
        epoch = cluster.leader_epoch_of(tp)
        assert not cluster.move_leader(tp, leader, epoch)
        cluster.invalidate(tp)
        assert cluster.leader_of(tp) is None
        await cluster.refresh()
        assert cluster.leader_of(tp) == leader
        assert cluster.leader_epoch_of(tp) == epoch
        await cluster.close()

    settings = settings_for(broker)
    run(settings, test)


def test_a_topic_that_is_not_there_raises_with_what_to_do(broker: BrokerProcess) -> None:
    async def test(brokers: Brokers) -> None:
        cluster = Cluster(settings, brokers)
        with pytest.raises(UnknownTopicOrPartition, match="create it first"):
            await cluster.wait_for_topic("nowhere", 300)
        with pytest.raises(InvalidTopicException):
            await cluster.wait_for_topic("not a name", 30_000)
        await cluster.close()

    settings = settings_for(broker, retry_backoff_ms=10)
    run(settings, test)


class LaggingBrokers(Brokers):
    """The first answers are of a broker that has not heard of the topic yet."""

    unaware = 2

    async def request(self, node: int | None, request: Message, **options: Any) -> Any:
        assert isinstance(request, MetadataRequest)
        assert not request.allow_auto_topic_creation
        self.unaware -= 1
        if self.unaware >= 0:
            topic = MetadataResponseTopic(name="new", error_code=UnknownTopicOrPartition.code)
        else:
            topic = MetadataResponseTopic(name="new", partitions=[MetadataResponsePartition(leader_id=1)])
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=1)], topics=[topic]
        )


def test_a_topic_that_a_broker_has_not_heard_of_yet_is_found() -> None:
    async def test() -> None:
        brokers = LaggingBrokers(settings)
        cluster = Cluster(settings, brokers, allow_auto_topic_creation=True)
        assert len((await cluster.find_topic("new", 30_000)).partitions) == 1
        assert brokers.unaware < 0
        await cluster.close()
        await brokers.close()

    settings = ClientSettings(bootstrap_servers="127.0.0.1:1", retry_backoff_ms=1)
    asyncio.run(test())


def test_a_coordinator_is_found_once(broker: BrokerProcess) -> None:
    async def test(brokers: Brokers) -> None:
        coordinator = Coordinator(brokers, CoordinatorType.GROUP, "some-group")
        node = await retrying(coordinator.find, settings=settings, timeout_ms=30_000, what="finding")
        assert brokers.node(node) is not None
        assert coordinator.node == node
        assert coordinator.forget_if_moved(NetworkException())
        assert coordinator.node is None
        assert not coordinator.forget_if_moved(UnsupportedVersion())

    settings = settings_for(broker)
    run(settings, test)


@pytest.mark.slow
def test_a_connection_is_opened_anew_after_a_restart(broker: BrokerProcess) -> None:
    async def test(brokers: Brokers) -> None:
        cluster = Cluster(settings, brokers)
        await cluster.refresh()
        node = brokers.nodes[0].id
        await asyncio.to_thread(broker.restart)
        answer = await retrying(
            lambda: brokers.request(node, MetadataRequest(topics=[])),
            settings=settings,
            timeout_ms=30_000,
            what="asking again",
        )
        assert answer.brokers[0].node_id == node

    settings = settings_for(broker)
    run(settings, test)


def test_who_waits_for_a_connection_that_is_called_off_is_told_and_not_cancelled() -> None:
    async def test(brokers: Brokers) -> None:
        accepted = asyncio.Event()

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.set()
            await reader.read()
            writer.close()

        async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            other = Node(2, "127.0.0.1", 1)
            for nodes in ([other], [Node(1, "127.0.0.1", 2), other]):
                brokers.set_nodes([Node(1, "127.0.0.1", port), other])
                accepted.clear()
                waiting = asyncio.create_task(brokers.link(1))
                await accepted.wait()
                # The broker is gone from the cluster, or has moved.
                brokers.set_nodes(nodes)
                with pytest.raises(NetworkException, match="not to be used any more"):
                    await waiting
            brokers.set_nodes([Node(1, "127.0.0.1", port)])
            waiting = asyncio.create_task(brokers.link(1))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await brokers.close()

    run(ClientSettings(bootstrap_servers="127.0.0.1:1"), test)


def test_what_runs_on_a_loop_thread_raises_and_returns_to_the_caller() -> None:
    async def answer() -> int:
        return 7

    async def fail() -> int:
        raise KeyError("x")

    thread = LoopThread("test")
    try:
        assert thread.call(answer()) == 7
        with pytest.raises(KeyError):
            thread.call(fail())
        started = time.monotonic()
        with pytest.raises(RequestTimedOut):
            thread.call(asyncio.sleep(WAIT_S), 20)
        assert time.monotonic() - started < WAIT_S
    finally:
        thread.close()
    assert thread.is_closed
