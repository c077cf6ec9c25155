"""Random histories of a cluster: whatever happens in whatever order, each step keeps what must hold.

The model checks every request and, after each step, every node. In the end all brokers are back, and then every topic
has leaders, every deletion and every reassignment is complete.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from barnabas.coordination.metadata.tree import encode_log_dir_event
from barnabas.coordination.planning.partition_changes import ElectionType
from barnabas.coordination.planning.topic_creation import NewPartitions, NewTopic
from barnabas.errors import KafkaError
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
from tests.coordination.controller.model import ModelBroker, ModelCluster, run

BROKERS = (1, 2, 3, 4)
NAMES = ("a", "b", "c")
STEPS = 60


class History:
    def __init__(self, cluster: ModelCluster, rng: Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.logs: dict[int, set[TopicPartition]] = {}
        self.epochs: dict[tuple[bytes, int], int] = {}
        self.deletions: list[asyncio.Task[dict[str, KafkaError | None]]] = []

    async def step(self) -> None:
        rng, cluster = self.rng, self.cluster
        alive = list(cluster.brokers.values())
        match rng.randrange(12):
            case 0 | 1 if len(alive) > 1:
                await self.kill(rng.choice(alive))
            case 2 | 3:
                await self.start(rng.choice(BROKERS))
            case 4 if alive:
                broker = rng.choice(alive)
                if broker.failed:
                    broker.failed.clear()
                await cluster.restart(broker.id)
            case 5:
                size = rng.randint(1, len(alive))
                new = NewTopic(rng.choice(NAMES), rng.randint(1, 3), size)
                await cluster.controller.create_topics([new])
            case 6:
                # A deletion that waits for a reassignment has its reply later.
                deletion = asyncio.ensure_future(cluster.controller.delete_topics([rng.choice(NAMES)]))
                self.deletions.append(deletion)
            case 7:
                await self.reassign()
            case 8:
                await self.propose()
            case 9:
                await cluster.controller.elect_leaders(await self.partitions(), ElectionType.PREFERRED)
            case 10:
                await self.shut_down_or_fail(rng.choice(alive))
            case 11:
                name = rng.choice(NAMES)
                await cluster.controller.create_partitions([NewPartitions(name, rng.randint(1, 5))])
        await cluster.settle()
        await cluster.check_store()
        await self.check_epochs()

    async def kill(self, broker: ModelBroker) -> None:
        self.logs[broker.id] = broker.logs
        await self.cluster.kill(broker.id)

    async def start(self, broker_id: int) -> None:
        if BrokerId(broker_id) not in self.cluster.brokers:
            await self.cluster.start_broker(broker_id, self.logs.pop(broker_id, set()))

    async def reassign(self) -> None:
        alive = [each.id for each in self.cluster.brokers.values()]
        partitions = await self.partitions()
        if partitions:
            chosen = self.rng.sample(partitions, self.rng.randint(1, len(partitions)))
            targets = {
                at: None
                if self.rng.random() < 0.2
                else self.rng.sample(alive, self.rng.randint(1, len(alive)))
                for at in chosen
            }
            await self.cluster.controller.alter_reassignments(targets)

    async def propose(self, *, everybody: bool = False) -> None:
        """Leaders find other replicas in sync, or not."""
        for broker in list(self.cluster.brokers.values()):
            for at in sorted(broker.led):
                role = broker.roles.get(at)
                if role is None or role.leader != broker.id:
                    continue
                others = [each for each in role.replicas if each != broker.id]
                if everybody:
                    isr = [each for each in others if each in self.cluster.brokers]
                else:
                    isr = self.rng.sample(others, self.rng.randint(0, len(others)))
                await self.cluster.propose(at.topic, at.partition, [broker.id, *isr])

    async def shut_down_or_fail(self, broker: ModelBroker) -> None:
        if self.rng.random() < 0.5:
            request = ControlledShutdownRequest(broker_id=broker.id, broker_epoch=broker.epoch)
            await self.cluster.controller.controlled_shutdown(request)
            await self.cluster.settle()
            if len(self.cluster.brokers) > 1:
                await self.kill(broker)
        elif broker.logs:
            broker.failed = set(self.rng.sample(sorted(broker.logs), 1))
            session = self.cluster.session
            await session.create(
                "/log_dir_event_notification/log_dir_event_1", encode_log_dir_event(broker.id)
            )

    async def partitions(self) -> list[TopicPartition]:
        found = []
        for name in (await self.cluster.session.children("/brokers/topics"))[0]:
            node = await self.cluster.node(f"/brokers/topics/{name}")
            found += [TopicPartition(name, int(index)) for index in node["partitions"]]
        return sorted(found)

    async def check_epochs(self) -> None:
        """Leader epochs only rise."""
        for at in await self.partitions():
            topic_id = (await self.cluster.node(f"/brokers/topics/{at.topic}"))["topic_id"]
            state = await self.cluster.node(f"/brokers/topics/{at.topic}/partitions/{at.partition}/state")
            if state is not None:
                key = (topic_id, at.partition)
                assert state["leader_epoch"] >= self.epochs.get(key, 0)
                self.epochs[key] = state["leader_epoch"]

    async def heal(self) -> None:
        cluster = self.cluster
        for broker_id in BROKERS:
            await self.start(broker_id)
        for broker in list(cluster.brokers.values()):
            await cluster.restart(broker.id)
        # Leaders in turn: a new one may have to propose what the one before could not.
        for _ in range(3):
            await self.propose(everybody=True)
        for each in self.deletions:
            with suppress(KafkaError):
                await each
        await cluster.settle()
        assert await cluster.controller.list_reassignments(None) == {}
        assert (await cluster.session.children("/admin/delete_topics"))[0] == []
        for at in await self.partitions():
            node = await cluster.node(f"/brokers/topics/{at.topic}")
            leader, _, isr = await cluster.state(at.topic, at.partition)
            replicas = node["partitions"][str(at.partition)]
            assert (leader in isr, sorted(isr)) == (True, sorted(replicas)), at
            for broker in cluster.brokers.values():
                assert broker.metadata[at] == leader
                assert (at in broker.logs) == (broker.id in replicas) or at not in broker.roles, at


@pytest.mark.parametrize("seed", range(6))
def test_any_history_keeps_what_must_hold(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    unclean = str(seed % 2 == 1).lower()

    async def scenario(cluster: ModelCluster) -> None:
        history = History(cluster, rng)
        for _ in range(STEPS):
            await history.step()
        await history.heal()

    run(scenario, tmp_path, *BROKERS, seed=seed, unclean_leader_election_enable=unclean)
