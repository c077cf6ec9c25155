"""A broker asks the controller for leave: approved, refused, unreachable, replaced by another one."""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas.broker.upkeep.controlled_shutdown import ControlledShutdown
from barnabas.config.broker_config import BrokerConfig
from barnabas.errors import NotController
from barnabas.model import BrokerId
from barnabas.net.transport import SocketTransport
from barnabas.peers.node import Node
from barnabas.peers.peers import Peers
from barnabas.peers.versions import NEWEST
from barnabas.protocol.message import Message
from barnabas.protocol.messages.controlled_shutdown_response import (
    ControlledShutdownResponse,
    RemainingPartition,
)
from tests.net.on_loop import on_loop
from tests.peers.link_peers import ScriptedBroker
from tests.waiting import wait_until_async

REMAINS = ControlledShutdownResponse(
    remaining_partitions=[RemainingPartition(topic_name="t", partition_index=0)]
)
REFUSED = ControlledShutdownResponse(error_code=NotController.code)
APPROVED = ControlledShutdownResponse()


def config(tmp: str = "/nowhere", **settings: str) -> BrokerConfig:
    return BrokerConfig(
        {
            "log.dirs": tmp,
            "controlled.shutdown.retry.backoff.ms": "10",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


class Cluster:
    """Broker 1 stops; brokers 2 and 3 may be the controller."""

    def __init__(self, **answers: list[Message | None]) -> None:
        self.answers = {int(name[-1]): queue for name, queue in answers.items()}
        self.brokers = {id_: ScriptedBroker(self._answer_of(id_)) for id_ in self.answers}
        self.controller: BrokerId | None = BrokerId(2)
        self.nodes: dict[int, Node] = {}
        self.peers = Peers(BrokerId(1), self.nodes.get, SocketTransport(), asyncio.get_running_loop(), NEWEST)

    def _answer_of(self, broker_id: int) -> Any:
        async def answer(request: Any) -> Message | None:
            return self.answers[broker_id].pop(0)

        return answer

    async def shut_down(self, settings: BrokerConfig) -> bool:
        for id_, broker in self.brokers.items():
            await broker.start()
            self.nodes[id_] = Node(id_, "127.0.0.1", broker.port)
        shutdown = ControlledShutdown(self.peers, lambda: self.controller, BrokerId(1), lambda: 77)
        try:
            return await shutdown.run(settings)
        finally:
            await self.peers.close()
            for broker in self.brokers.values():
                await broker.stop()


@on_loop
async def test_the_broker_asks_until_no_partition_remains() -> None:
    cluster = Cluster(broker_2=[REMAINS, None, APPROVED])
    assert await cluster.shut_down(config())
    requests = cluster.brokers[2].requests
    assert [(each.api.name, each.version) for each in requests] == [("ControlledShutdown", 3)] * 3
    assert (requests[0].body.broker_id, requests[0].body.broker_epoch) == (1, 77)


@on_loop
async def test_the_number_of_tries_is_bounded() -> None:
    cluster = Cluster(broker_2=[REMAINS] * 5)
    assert not await cluster.shut_down(config(controlled_shutdown_max_retries="2"))
    assert len(cluster.brokers[2].requests) == 2


@on_loop
async def test_another_controller_is_asked_at_once() -> None:
    cluster = Cluster(broker_2=[REFUSED], broker_3=[APPROVED])
    # The back-off would take an hour.
    settings = config(controlled_shutdown_retry_backoff_ms="3600000")
    asking = asyncio.ensure_future(cluster.shut_down(settings))
    await wait_until_async(lambda: cluster.brokers[2].requests)
    cluster.controller = BrokerId(3)
    assert await asking
    assert len(cluster.brokers[3].requests) == 1


@on_loop
async def test_a_broker_stops_without_a_controller() -> None:
    cluster = Cluster(broker_2=[])
    cluster.controller = None
    assert not await cluster.shut_down(config())
    assert not cluster.brokers[2].requests


@on_loop
async def test_the_setting_switches_it_off() -> None:
    cluster = Cluster(broker_2=[])
    assert not await cluster.shut_down(config(controlled_shutdown_enable="false"))
    assert not cluster.brokers[2].requests
