"""One run of a simulated broker with its clients and its faults, all from a seed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Final

from tests.simulation.broker import SimulatedBroker
from tests.simulation.client import SimulatedClient
from tests.simulation.network import Delivery, Network
from tests.simulation.topics_workload import TopicKeeper
from tests.simulation.workload import (
    GroupMember,
    Journal,
    check,
    create_topics,
    produce_events,
    run_transactions,
)
from tests.simulation.world import Process, World

EVENT_BATCHES: Final = 12
TRANSACTIONS: Final = 5
FAULTS: Final = 6
KEEPERS: Final = 2
TOPIC_CHANGES: Final = 30
# Small numbers, so that segments end, checkpoints are written and producers expire within the run.
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.initial.task.delay.ms": "100",
    "log.segment.bytes": "20000",
    "log.cleaner.backoff.ms": "300",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "4000",
    "replica.high.watermark.checkpoint.interval.ms": "400",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.segment.bytes": "4000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
FLUSHED_SETTINGS: Final = {**SETTINGS, "log.flush.interval.messages": "1"}
DELETING_SETTINGS: Final = {**SETTINGS, "log.segment.delete.delay.ms": "1000"}


class Scenario:
    settings: Mapping[str, str] = SETTINGS

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.broker = SimulatedBroker(self.world, self.network, "broker-0", self.settings)
        self.journal = Journal()
        # The plan of faults is not changed by what brokers and clients draw.
        self._rng = Random(seed ^ 0xFA17)

    @property
    def transcript(self) -> list[Delivery]:
        return self.network.transcript

    def run(self) -> None:
        try:
            self.broker.start()
            process = self.world.process("clients")
            work = process.loop.create_task(self._work(process))
            for _ in range(FAULTS):
                self.world.run_for(self._rng.uniform(0.05, 1.5))
                self._strike()
            self.world.run_until(work.done)
            work.result()
            # What was acknowledged is there after a last crash, too.
            self._end()
            self.before_last_start()
            self.broker.start()
            self.world.run(process, self._check(process))
        finally:
            self.world.close()

    def before_last_start(self) -> None:
        """For tests of the checks."""

    def _end(self) -> None:
        self.broker.kill()

    async def _check(self, process: Process) -> None:
        await check(self._client(process, "checker"), self.journal)

    def _client(self, process: Process, name: str) -> SimulatedClient:
        return SimulatedClient(process, self.network.transport(process), self.broker.address, name)

    async def _work(self, process: Process) -> None:
        journal = self.journal
        await create_topics(self._client(process, "admin"))
        members = [GroupMember(self._client(process, f"member-{index}"), journal) for index in range(2)]
        consuming = asyncio.gather(*(member.run() for member in members))
        transactions = asyncio.gather(
            *(run_transactions(self._client(process, f"tx{index}"), journal, TRANSACTIONS) for index in "ab")
        )
        await asyncio.gather(
            *(
                produce_events(self._client(process, f"producer-{index}"), journal, EVENT_BATCHES)
                for index in range(2)
            )
        )
        journal.are_events_done = True
        await transactions
        await consuming
        await self._check(process)

    def _strike(self) -> None:
        fault = self._rng.choice(
            (self._kill, self._kill_within_a_write, self._kill_twice, self._stop, self._cut)
        )
        fault()

    def _cut(self) -> None:
        for _ in range(self._rng.randint(1, 3)):
            self.network.cut_one()

    def _stop(self) -> None:
        self.broker.stop()
        self.world.run_for(self._rng.uniform(0, 0.5))
        self.broker.start()

    def _kill(self) -> None:
        self.broker.kill()
        self.world.run_for(self._rng.uniform(0, 0.5))
        self.broker.start()

    def _kill_within_a_write(self) -> None:
        """Between any two changes of files, in the middle of a request or of work in the background."""
        self._stop_within_a_write()
        self._kill()

    def _stop_within_a_write(self) -> None:
        self.broker.crash_after(self._rng.randint(0, 60))
        until_s = self.world.now_s + 2.0
        self.world.run_until(lambda: not self.broker.is_running or self.world.now_s >= until_s)

    def _kill_twice(self) -> None:
        """The second time while it starts."""
        self.broker.kill()
        self.broker.begin_start()
        self.world.run_for(self._rng.uniform(0, 0.05))
        self._kill()


class PowerCuts(Scenario):
    """The machine fails too. With a sync for each batch, what was acknowledged is on the disk."""

    settings = FLUSHED_SETTINGS

    def _end(self) -> None:
        self.broker.cut_power(self._rng)

    def _strike(self) -> None:
        fault = self._rng.choice(
            (self._cut_power, self._cut_power_within_a_write, self._cut_power_twice, self._kill, self._stop)
        )
        fault()

    def _cut_power(self) -> None:
        self.broker.cut_power(self._rng)
        self.world.run_for(self._rng.uniform(0, 0.5))
        self.broker.start()

    def _cut_power_within_a_write(self) -> None:
        self._stop_within_a_write()
        self._cut_power()

    def _cut_power_twice(self) -> None:
        """The second time while it starts."""
        self.broker.cut_power(self._rng)
        self.broker.begin_start()
        self.world.run_for(self._rng.uniform(0, 0.05))
        self._cut_power()


class UnflushedPowerCuts(PowerCuts):
    """Records may get lost, but nothing that the broker has acknowledged about topics, and no partition."""

    settings = DELETING_SETTINGS

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.keepers: list[TopicKeeper] = []

    async def _work(self, process: Process) -> None:
        self.keepers = [TopicKeeper(self._client(process, f"keeper{index}")) for index in range(KEEPERS)]
        await asyncio.gather(*(keeper.run(TOPIC_CHANGES) for keeper in self.keepers))
        await self._check(process)

    async def _check(self, process: Process) -> None:
        for keeper in self.keepers:
            await keeper.check()
