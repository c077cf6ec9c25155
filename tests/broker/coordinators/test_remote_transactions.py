"""A transaction coordinator and partitions that another broker leads: a real one, over real links."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest

from barnabas.broker.coordinators.producer_ids import ProducerIds
from barnabas.broker.coordinators.remote_markers import RemoteMarkers
from barnabas.broker.coordinators.remote_verification import RemoteVerification
from barnabas.broker.coordinators.transaction_runtime import TRANSACTIONS_TOPIC, Remote, TransactionRuntime
from barnabas.coordination.metadata.image import BrokerImage, PartitionImage, TopicImage
from barnabas.errors import CoordinatorNotAvailable, InvalidProducerEpoch, KafkaError, TransactionAbortable
from barnabas.model import BrokerId, LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from barnabas.net.transport import SocketTransport
from barnabas.peers.node import Node
from barnabas.peers.peers import Peers
from barnabas.peers.versions import NEWEST
from barnabas.transactions.answers import ProducerAnswer
from barnabas.transactions.listing import describe_transaction
from barnabas.transactions.producer import TRANSACTION_VERSION_0, ProducerIdAndEpoch
from tests.broker.coordinator_requests import (
    Producer,
    add_partitions,
    init,
    last_stable_offset,
    produce,
    wait_for_transaction_coordinator,
)
from tests.broker.coordinators.moving import Blocks, Moving, NoMarkers
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.broker.replication.roles import TOPIC_ID, US, role
from tests.broker.running import RunningBroker
from tests.waiting import wait_until_async

DATA = "data"
# Two names of the same broker; only the second has its address.
DEAD, LIVE = BrokerId(2), BrokerId(3)
ID = "id"
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.partition.verification.enable": "false",
}


@pytest.fixture
def other(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path, SETTINGS) as broker:
        yield broker


@pytest.fixture
def client(other: RunningBroker) -> Iterator[RawClient]:
    with other.client() as client:
        create_topic(client, DATA)
        yield client


class Coordinator:
    """The transaction coordinator of broker 1, which the other broker knows nothing of."""

    def __init__(self, port: int) -> None:
        self.moving = Moving(TRANSACTIONS_TOPIC)
        self.stored_topics = {DATA}
        self._nodes = {LIVE: Node(LIVE, "127.0.0.1", port)}
        loop = asyncio.get_running_loop()
        self._peers = Peers(US, self._nodes.get, SocketTransport(), loop, NEWEST)
        self._tasks = self.moving.scheduling.tasks

    async def __aenter__(self) -> Self:
        producer_ids = ProducerIds(Blocks(), self._tasks)
        await producer_ids.ensure()
        remote = Remote(
            RemoteMarkers(self._peers, self._tasks, self._partition_count, timeout_ms=60_000),
            RemoteVerification(self._peers, self._tasks, timeout_ms=60_000),
        )
        self.runtime = TransactionRuntime(self.moving.surroundings, NoMarkers(), producer_ids, remote)
        self.show(coordinator=US, leader=LIVE)
        self.runtime.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.moving.close()
        await self._peers.close()

    async def _partition_count(self, name: str) -> int:
        return int(name in self.stored_topics)

    def show(self, *, coordinator: BrokerId, leader: BrokerId | None) -> None:
        """Metadata: who coordinates, and who leads the data, if there is any."""
        leaders = {TRANSACTIONS_TOPIC: coordinator, DATA: leader}
        topics = {
            name: TopicImage(
                name=name,
                id=TOPIC_ID,
                partitions=(
                    PartitionImage(leader=id_, leader_epoch=LeaderEpoch(0), replicas=(id_,), isr=(id_,)),
                ),
            )
            for name, id_ in leaders.items()
            if id_ is not None
        }
        cache = self.moving.replica.metadata
        brokers = {each: BrokerImage(id=each, epoch=0) for each in (US, DEAD, LIVE)}
        cache.publish(replace(cache.image, topics=topics, brokers=brokers))

    async def lead(self) -> None:
        request = role(US, 1, replicas=[US], topic=TRANSACTIONS_TOPIC)
        assert self.moving.replica.become(request) == 0
        await self.moving.settle()

    def carry_out(self, step: str, *arguments: object) -> list[object]:
        answers: list[object] = []
        shell = self.runtime.shell_of(ID)
        now_ms = self.moving.replica.disk.clock.now_ms()
        shell.carry_out(getattr(shell.coordinator, step)(ID, *arguments, answers.append, now_ms))
        return answers

    def open_transaction(self) -> ProducerIdAndEpoch:
        [begun] = self.carry_out("init_producer_id", 60_000, None)
        assert isinstance(begun, ProducerAnswer)
        assert begun.error is None
        producer = ProducerIdAndEpoch(begun.producer_id, begun.producer_epoch)
        partitions = frozenset({TopicPartition(DATA, 0)})
        assert self.carry_out("add_partitions", producer, partitions, TRANSACTION_VERSION_0) == [None]
        return producer

    def end(self, producer: ProducerIdAndEpoch) -> None:
        [ended] = self.carry_out("end_transaction", producer, True, TRANSACTION_VERSION_0)
        assert isinstance(ended, ProducerAnswer)
        assert ended.error is None

    def state(self) -> str:
        return describe_transaction(self.runtime.shell_of(ID).coordinator, ID).transaction_state

    async def verified(
        self, producer: Producer, partitions: list[TopicPartition], *, add: bool = False
    ) -> list[type[KafkaError] | None]:
        answers: list[dict[TopicPartition, KafkaError | None]] = []
        self.runtime.verify_partitions(
            ID, ProducerId(producer.id), ProducerEpoch(producer.epoch), partitions, add, answers.append
        )
        await wait_until_async(lambda: answers, "the coordinator's answer")
        errors = [answers[0][key] for key in partitions]
        return [None if error is None else type(error) for error in errors]


def produce_one(client: RawClient, producer: ProducerIdAndEpoch) -> None:
    assert produce(client, DATA, ID, Producer(*producer), version=11) == 0
    assert last_stable_offset(client, DATA) == 0


def test_a_transaction_ends_on_a_partition_of_another_broker(other: RunningBroker, client: RawClient) -> None:
    async def test() -> None:
        async with Coordinator(other.port) as coordinator:
            await coordinator.lead()
            producer = coordinator.open_transaction()
            produce_one(client, producer)
            coordinator.end(producer)
            await wait_until_async(lambda: coordinator.state() == "CompleteCommit")
            assert last_stable_offset(client, DATA) == 2

    asyncio.run(test())


def test_markers_follow_a_leader_that_moves(other: RunningBroker, client: RawClient) -> None:
    async def test() -> None:
        async with Coordinator(other.port) as coordinator:
            coordinator.show(coordinator=US, leader=DEAD)
            await coordinator.lead()
            producer = coordinator.open_transaction()
            produce_one(client, producer)
            coordinator.end(producer)
            shell = coordinator.runtime.shell_of(ID)
            entry = shell.coordinator.find(ID)
            assert entry is not None
            await wait_until_async(lambda: entry.markers is None, "a leader that cannot be reached")
            assert coordinator.state() == "PrepareCommit"
            coordinator.show(coordinator=US, leader=LIVE)
            await wait_until_async(lambda: coordinator.state() == "CompleteCommit")
            assert last_stable_offset(client, DATA) == 2

    asyncio.run(test())


def test_a_topic_without_metadata_is_deleted_only_if_the_store_says_so(other: RunningBroker) -> None:
    async def test() -> None:
        async with Coordinator(other.port) as coordinator:
            await coordinator.lead()
            producer = coordinator.open_transaction()
            coordinator.show(coordinator=US, leader=None)
            coordinator.end(producer)
            entry = coordinator.runtime.shell_of(ID).coordinator.find(ID)
            assert entry is not None
            await wait_until_async(lambda: entry.markers is None, "the store's answer")
            assert coordinator.state() == "PrepareCommit"
            coordinator.stored_topics.clear()
            await wait_until_async(lambda: coordinator.state() == "CompleteCommit")

    asyncio.run(test())


def test_the_leader_of_a_partition_asks_the_coordinator_on_another_broker(
    other: RunningBroker, client: RawClient
) -> None:
    wait_for_transaction_coordinator(client)
    producer = init(client, ID)
    create_topic(client, "another")
    assert set(add_partitions(client, ID, producer, {DATA: [0]}, version=3).values()) == {0}
    known, unknown = TopicPartition(DATA, 0), TopicPartition("another", 0)

    async def test() -> None:
        async with Coordinator(other.port) as coordinator:
            coordinator.show(coordinator=LIVE, leader=US)
            assert await coordinator.verified(producer, [known, unknown]) == [None, TransactionAbortable]
            older = Producer(producer.id, producer.epoch - 1)
            # The caller makes INVALID_PRODUCER_EPOCH of it, so that a client may abort and go on.
            [error] = await coordinator.verified(older, [known])
            assert error is not None
            assert error is not InvalidProducerEpoch
            assert await coordinator.verified(producer, [unknown], add=True) == [None]
            assert await coordinator.verified(producer, [unknown]) == [None]
            coordinator.show(coordinator=BrokerId(9), leader=US)
            assert await coordinator.verified(producer, [known]) == [CoordinatorNotAvailable]

    asyncio.run(test())
