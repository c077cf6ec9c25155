"""Brokers that replicate, with faults from seeds: nothing acknowledged is lost, and all copies become equal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from barnabas.broker.replication import replica_fetcher
from barnabas.errors import KafkaError
from barnabas.model import BrokerId
from tests.broker.record_requests import batch, produce_request, values
from tests.broker.replication.simulated_cluster import PORT, TOPIC, SimulatedCluster
from tests.sampling import seeds
from tests.simulation.client import SimulatedClient
from tests.simulation.network import Network
from tests.simulation.world import Process, World

ACKS_ALL: Final = -1
FAULTS: Final = 10
# Of the world's time.
SETTLED_S_MAX: Final = 60.0
SEEDS: Final = seeds(4, fast=2)
SOAK_SEEDS: Final = range(100, 400 if os.environ.get("BARNABAS_SOAK") == "1" else 110)
WITHOUT_TRUNCATION_ON_FETCH: Final = "2.7-IV0"


class Producer:
    """Sends numbered values to the leader until each is acknowledged."""

    def __init__(self, cluster: SimulatedCluster, process: Process, index: int) -> None:
        self.acknowledged: list[bytes] = []
        self.sent: set[bytes] = set()
        self.is_stopping = False
        self._cluster = cluster
        self._process = process
        self.index = index
        self._clients: dict[BrokerId, SimulatedClient] = {}

    async def run(self) -> None:
        number = 0
        while not self.is_stopping:
            number += 1
            value = b"%d-%d" % (self.index, number) + b"." * self._process.rng.randrange(600)
            self.sent.add(value)
            if self._process.rng.random() < 0.3:
                await self._send_unsafely(number)
            await self._send(value)
            self.acknowledged.append(value)

    async def _send(self, value: bytes) -> None:
        rng = self._process.rng
        while True:
            leader = self._cluster.states[self.index].leader
            try:
                if leader >= 0 and await self._ask(leader, value, ACKS_ALL) == 0:
                    return
            except KafkaError:
                pass
            client = self._client(BrokerId(1))
            await client.pause(0.05 + rng.random() * 0.1)

    async def _send_unsafely(self, number: int) -> None:
        """Records that the leader alone acknowledges, and that followers have to truncate when it dies."""
        for each in range(3):
            value = b"unsafe %d-%d-%d" % (self.index, number, each)
            self.sent.add(value)
            leader = self._cluster.states[self.index].leader
            with contextlib.suppress(KafkaError):
                if leader >= 0:
                    await self._ask(leader, value, 1)

    async def _ask(self, leader: BrokerId, value: bytes, acks: int) -> int:
        """Kafka's code of the error."""
        request = produce_request(TOPIC, batch(value), partition=self.index, acks=acks)
        request.timeout_ms = 1_000
        answer = await self._client(leader).ask("Produce", 9, request)
        return int(answer.responses[0].partition_responses[0].error_code)

    def _client(self, broker_id: BrokerId) -> SimulatedClient:
        if broker_id not in self._clients:
            transport = self._cluster.network.transport(self._process)
            address = (f"broker-{broker_id}", PORT)
            self._clients[broker_id] = SimulatedClient(self._process, transport, address, f"p{self.index}")
        return self._clients[broker_id]


class Run:
    def __init__(self, seed: int, level: str = "3.9") -> None:
        self.world = World(seed)
        self.cluster = SimulatedCluster(self.world, Network(self.world), level=level)
        self.cluster.lost_requests = 0.1
        self._rng = Random(seed ^ 0xC0117)
        process = self.world.process("clients")
        self.producers = [Producer(self.cluster, process, index) for index in range(2)]
        self._process = process

    def go(self) -> None:
        try:
            self.cluster.start()
            work = [self._process.loop.create_task(each.run()) for each in self.producers]
            for _ in range(FAULTS):
                self.world.run_for(self._rng.uniform(0.1, 2.0))
                self._strike()
            self._heal()
            for each in self.producers:
                each.is_stopping = True
            self._run_until(lambda: all(each.done() for each in work))
            self._run_until(self._is_settled)
            for task in work:
                task.result()
            self._check()
        finally:
            self.world.close()

    def _run_until(self, is_so: Callable[[], bool]) -> None:
        end_s = self.world.now_s + SETTLED_S_MAX
        self.world.run_until(lambda: is_so() or self.world.now_s > end_s)
        assert is_so(), self._describe()

    def _describe(self) -> str:
        return "\n".join(
            f"{index}: {state}, {[host.log(index) for host in self.cluster.hosts.values()]}"
            for index, state in enumerate(self.cluster.states)
        )

    def _strike(self) -> None:
        fault = self._rng.choice((self._kill, self._kill, self._bounce, self._move, self._cut, self._restart))
        fault()

    def _kill(self) -> None:
        # One broker at least stays, so that time goes on for clients.
        if len(self.cluster.live) > 1:
            self.cluster.kill(self._rng.choice(sorted(self.cluster.live)))

    def _restart(self) -> None:
        dead = sorted(self.cluster.hosts.keys() - self.cluster.live)
        if dead:
            self.cluster.restart(self._rng.choice(dead))

    def _bounce(self) -> None:
        chosen = self._rng.choice(sorted(self.cluster.live))
        self.cluster.kill(chosen)
        self.world.run_for(self._rng.uniform(0, 0.3))
        self.cluster.restart(chosen)

    def _move(self) -> None:
        self.cluster.move_leader(self._rng.randrange(self.cluster.partition_count))

    def _cut(self) -> None:
        for _ in range(self._rng.randint(1, 3)):
            self.cluster.network.cut_one()

    def _heal(self) -> None:
        self.cluster.lost_requests = 0.0
        for dead in sorted(self.cluster.hosts.keys() - self.cluster.live):
            self.cluster.restart(dead)

    def _is_settled(self) -> bool:
        hosts = self.cluster.hosts.values()
        for index, state in enumerate(self.cluster.states):
            if len(state.isr) < len(hosts):
                return False
            leader = self.cluster.hosts[state.leader].log(index)
            if any(
                (log.log_end_offset, log.high_watermark) != (leader.log_end_offset, leader.log_end_offset)
                for log in (host.log(index) for host in hosts)
            ):
                return False
        return True

    def _check(self) -> None:
        for producer in self.producers:
            index = producer.index
            first, *others = [host.copy(index) for host in self.cluster.hosts.values()]
            assert others == [first] * len(others)
            stored = values(first)
            assert producer.acknowledged
            assert set(stored) <= producer.sent
            places = {value: place for place, value in reversed(list(enumerate(stored)))}
            assert [each for each in producer.acknowledged if each not in places] == []
            order = [places[each] for each in producer.acknowledged]
            assert order == sorted(order)


def run(seed: int, level: str = "3.9") -> None:
    scenario = Run(seed, level)
    try:
        scenario.go()
    except BaseException as error:
        error.add_note(f"seed {seed}, {scenario.world.now_s:.3f} s")
        raise


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_followers_that_write_in_threads(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for many records: roles change while a thread writes."""
    monkeypatch.setattr(replica_fetcher, "WRITTEN_AT_ONCE_BYTES", -1)
    run(seed + 50)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, fast=1))
def test_followers_that_ask_for_epochs_before_they_fetch(seed: int) -> None:
    run(seed, WITHOUT_TRUNCATION_ON_FETCH)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SOAK_SEEDS)
def test_nothing_acknowledged_is_lost_from_many_seeds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr(replica_fetcher, "WRITTEN_AT_ONCE_BYTES", -1)
    run(seed, "3.9" if seed % 3 else WITHOUT_TRUNCATION_ON_FETCH)
