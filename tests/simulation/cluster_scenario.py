"""Runs of a simulated cluster with its clients and its faults, each from a seed.

A short run has one kind of client, a few faults and few partitions, so that many of them fit into a minute; its seed
decides which. A long run has all of them at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

from barnabas.model import BrokerId
from tests.simulation.broker import SimulatedBroker
from tests.simulation.cluster import ClusterClient, SimulatedBrokers
from tests.simulation.cluster_faults import KINDS, Faults
from tests.simulation.cluster_invariants import Invariants
from tests.simulation.cluster_operator import Operator
from tests.simulation.network import Delivery, Network
from tests.simulation.workload import (
    EVENTS,
    LEDGER,
    LEDGER_PARTITIONS,
    GroupMember,
    Journal,
    check,
    create_topic,
    create_topics,
    produce_events,
    run_transactions,
)
from tests.simulation.world import Process, World

REPLICAS: Final = 3
SETTLED_S: Final = 60.0
SETTINGS: Final = {
    "auto.leader.rebalance.enable": "true",
    "controlled.shutdown.retry.backoff.ms": "200",
    "controller.socket.timeout.ms": "1500",
    "default.replication.factor": str(REPLICAS),
    "group.initial.rebalance.delay.ms": "100",
    "leader.imbalance.check.interval.seconds": "5",
    "log.cleaner.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.initial.task.delay.ms": "100",
    "log.segment.bytes": "20000",
    "min.insync.replicas": "2",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": str(REPLICAS),
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "400",
    "replica.lag.time.max.ms": "2000",
    "replica.socket.timeout.ms": "1500",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": str(REPLICAS),
    "zookeeper.session.timeout.ms": "3000",
}
# Everything happens in less time, and nothing happens more often than it must.
SHORT_SETTINGS: Final = {
    **SETTINGS,
    "controller.socket.timeout.ms": "800",
    "leader.imbalance.check.interval.seconds": "1",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "replica.fetch.wait.max.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "replica.lag.time.max.ms": "1000",
    "replica.socket.timeout.ms": "800",
    "transaction.state.log.num.partitions": "1",
    "zookeeper.session.timeout.ms": "1500",
}


class ClusterScenario:
    """A long run."""

    settings: Mapping[str, str] = SETTINGS
    fault_kinds: Sequence[str] = KINDS
    fault_count = 6
    # The longest time until the next fault.
    calm_s_max = 3.0
    # How often it is asked whether all is in order.
    step_s = 1.0
    producers = 2
    event_batches = 12
    event_pause_s_max = 0.3
    transactions = 4
    operated_topics = 3
    operated_changes = 4
    moves_partitions = True
    # How many brokers there are, and how often there are more.
    brokers = 3
    brokers_max = 5
    larger_share = 0.1

    def __init__(self, seed: int) -> None:
        # The plan is not changed by what brokers and clients draw.
        self.rng = Random(seed ^ 0xFA17)
        self.settings = {**self.settings, **self._own_settings()}
        if self.rng.random() < self.larger_share:
            self.brokers = self.rng.randint(self.brokers + 1, self.brokers_max)
        self.world = World(seed)
        self.network = Network(self.world)
        self.cluster = SimulatedBrokers(self.world, self.network, self.settings, broker_count=self.brokers)
        self.invariants = Invariants(self.cluster)
        for number, broker in enumerate(self.cluster.brokers):
            broker.on_turn = partial(self.invariants.check_broker, BrokerId(number), broker)
        self.journal = Journal()
        session_s = int(self.settings["zookeeper.session.timeout.ms"]) / 1_000
        self.faults = Faults(self.cluster, self.rng, duration_s_max=2.5 * session_s)

    def _own_settings(self) -> Mapping[str, str]:
        """Those that the seed decides."""
        return {}

    @property
    def transcript(self) -> list[Delivery]:
        return self.network.transcript

    def run(self) -> None:
        try:
            self.cluster.start()
            process = self.world.process("clients")
            self.world.run(process, self.create_topics(self.client(process, "admin")))
            work = process.loop.create_task(self.work(process))
            for _ in range(self.fault_count):
                self.world.run_for(self.rng.uniform(0.05, self.calm_s_max))
                self.faults.strike(self.fault_kinds)
            self.world.run_until(work.done)
            work.result()
            self.end()
            self.world.run(process, check(self.client(process, "checker"), self.journal))
        finally:
            self.world.close()

    async def create_topics(self, client: ClusterClient) -> None:
        await create_topics(client, REPLICAS)

    async def work(self, process: Process) -> None:
        await asyncio.gather(
            self.consume(process, 2), self.transact(process, 2), self.operate(process), self.produce(process)
        )

    async def produce(self, process: Process) -> None:
        await asyncio.gather(
            *(
                produce_events(
                    self.client(process, f"producer-{index}"),
                    self.journal,
                    self.event_batches,
                    pause_s_max=self.event_pause_s_max,
                )
                for index in range(self.producers)
            )
        )
        self.journal.are_events_done = True

    async def consume(self, process: Process, members: int) -> None:
        await asyncio.gather(
            *(
                GroupMember(self.client(process, f"member-{index}"), self.journal).run()
                for index in range(members)
            )
        )

    async def transact(self, process: Process, count: int) -> None:
        await asyncio.gather(
            *(
                run_transactions(self.client(process, f"tx{index}"), self.journal, self.transactions)
                for index in range(count)
            )
        )

    async def operate(self, process: Process) -> None:
        client = self.client(process, "operator")
        operator = Operator(client, list(range(self.brokers)), moves=self.moves_partitions)
        await operator.run(self.operated_topics, self.operated_changes)

    def end(self) -> None:
        self.settle()
        self.invariants.check_logs()

    def settle(self, away: SimulatedBroker | None = None) -> None:
        """When all faults have ended, everything is in order within a bounded time."""
        if self.world.now_s < self.faults.over_s:
            self.world.run_for(self.faults.over_s - self.world.now_s)
        until_s = self.world.now_s + SETTLED_S
        while problems := [*self.invariants.problems(away)]:
            assert self.world.now_s < until_s, f"not settled after {SETTLED_S} s: {problems[:5]}"
            self.world.run_for(self.step_s)

    def client(self, process: Process, name: str) -> ClusterClient:
        return ClusterClient(process, self.cluster, name)


class ShortScenario(ClusterScenario):
    settings: Mapping[str, str] = SHORT_SETTINGS
    calm_s_max = 1.0
    step_s = 0.25
    event_batches = 5
    transactions = 2
    operated_topics = 2
    operated_changes = 2
    fault_count_min = 1
    fault_count_max = 3
    # How often there is each kind of work.
    kinds: Sequence[str] = ("records",) * 10 + ("topics",) * 5 + ("group", "transactions") * 2
    # How often one broker stays away until the others have settled without it.
    absence_share = 0.15

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kind = self.rng.choice(self.kinds)
        self.fault_count = self.rng.randint(self.fault_count_min, self.fault_count_max)
        has_events = self.kind in ("records", "group")
        self.journal.event_partitions = self.rng.randint(1, 2) if has_events else 0

    def _own_settings(self) -> Mapping[str, str]:
        return {"min.insync.replicas": str(self.rng.choice((1, 2, 2)))}

    async def create_topics(self, client: ClusterClient) -> None:
        if self.journal.event_partitions:
            await create_topic(client, EVENTS, self.journal.event_partitions, self.rng.choice((2, 3, 3)))
        elif self.kind == "transactions":
            await create_topic(client, LEDGER, LEDGER_PARTITIONS, REPLICAS)

    async def work(self, process: Process) -> None:
        if self.kind == "records":
            await self.produce(process)
        elif self.kind == "topics":
            await self.operate(process)
        elif self.kind == "group":
            await asyncio.gather(self.produce(process), self.consume(process, 1))
        else:
            await self.transact(process, 1)

    def end(self) -> None:
        if self.rng.random() < self.absence_share:
            self.settle()
            away = self.rng.choice(self.cluster.brokers)
            self.faults.done.append(f"{self.world.now_s:.3f} away {away.host}")
            away.kill()
            self.settle(away)
            self.faults.restart(away)
        super().end()
