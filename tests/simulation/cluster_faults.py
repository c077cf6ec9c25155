"""What is done to the brokers of a simulated cluster, from a seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from barnabas.errors import KafkaStorageError
from tests.simulation.broker import SimulatedBroker
from tests.simulation.cluster import SimulatedBrokers

KINDS: Final = (
    "kill",
    "kill_within_a_write",
    "stop",
    "pause",
    "cut_off",
    "expire",
    "block",
    "drop",
    "slow_down",
    "reset",
)
CHANGES_BEFORE_CRASH_MAX: Final = 60


class Faults:
    """`duration_s_max` should be longer than a session and than the time after which a follower is out of sync."""

    def __init__(self, cluster: SimulatedBrokers, rng: Random, *, duration_s_max: float) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._network = cluster.network
        self._rng = rng
        self._duration_s_max = duration_s_max
        # What was done to whom, and for how long.
        self.done: list[str] = []
        # When the last of them ends.
        self.over_s = 0.0

    def strike(self, kinds: Sequence[str] = KINDS) -> None:
        broker = self._rng.choice(self._cluster.brokers)
        duration_s = self._rng.uniform(0.1, self._duration_s_max)
        kind = self._rng.choice(kinds)
        self.done.append(f"{self._world.now_s:.3f} {kind} {broker.host} {duration_s:.3f}")
        getattr(self, kind)(broker, duration_s)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        at_s = self._world.now_s + delay_s
        self.over_s = max(self.over_s, at_s)
        self._world.call_at(at_s, action)

    def kill(self, broker: SimulatedBroker, duration_s: float) -> None:
        if not broker.has_ended:
            broker.kill()
            self._later(duration_s, lambda: self.restart(broker))

    def restart(self, broker: SimulatedBroker) -> None:
        """As a supervisor does: again, if the broker gave up because it did not reach the store."""
        if not broker.has_ended:
            return
        started = broker.begin_start()
        process = broker.process

        def note(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is None or not process.is_alive:
                return
            if isinstance(error, KafkaStorageError):
                self._later(0.0, lambda: self.kill(broker, 0.5))
            else:
                self._world.failures.append(error)

        started.add_done_callback(note)

    def kill_within_a_write(self, broker: SimulatedBroker, duration_s: float) -> None:
        """Between any two changes of files, in the middle of a request or of work in the background."""
        if broker.is_running:
            broker.crash_after(self._rng.randint(0, CHANGES_BEFORE_CRASH_MAX))
            self._later(duration_s, lambda: self.kill(broker, 0.1))

    def stop(self, broker: SimulatedBroker, duration_s: float) -> None:
        """In order: it moves its leaders before it ends."""
        if broker.has_started and not broker.process.is_paused:
            broker.begin_stop(lambda: self._later(duration_s, lambda: self.restart(broker)))

    def pause(self, broker: SimulatedBroker, duration_s: float) -> None:
        if broker.is_running:
            self._cluster.pause(broker)
            self._later(duration_s, lambda: self._cluster.resume(broker))

    def cut_off(self, broker: SimulatedBroker, duration_s: float) -> None:
        """From the ensemble: clients and other brokers still reach it."""
        self._cluster.ensemble.cut_off(broker.host)
        self._later(duration_s, lambda: self._cluster.ensemble.reconnect(broker.host))

    def expire(self, broker: SimulatedBroker, duration_s: float) -> None:
        self._cluster.ensemble.expire(broker.host)

    def block(self, broker: SimulatedBroker, duration_s: float) -> None:
        """The way to another broker, or to it and back: what is sent arrives at the end."""
        for way in self._ways(broker):
            self._network.block(*way)
            self._later(duration_s, partial(self._network.unblock, *way))

    def drop(self, broker: SimulatedBroker, duration_s: float) -> None:
        """The same, but what is sent never arrives: the connections break."""
        ways = self._ways(broker)
        for way in ways:
            self._network.block(*way)

        def end() -> None:
            self._network.reset_between(*ways[0])
            for way in ways:
                self._network.unblock(*way)

        self._later(duration_s, end)

    def slow_down(self, broker: SimulatedBroker, duration_s: float) -> None:
        """What is sent on one connection overtakes what was sent before on another one."""
        for way in self._ways(broker):
            self._network.slow_down(*way, duration_s)
            self._later(duration_s, partial(self._network.speed_up, *way, duration_s))

    def _ways(self, broker: SimulatedBroker) -> list[tuple[str, str]]:
        other = self._rng.choice([each for each in self._cluster.brokers if each is not broker])
        ways = [(broker.host, other.host), (other.host, broker.host)]
        if self._rng.random() < 0.5:
            ways.reverse()
        return ways[: self._rng.randint(1, 2)]

    def reset(self, broker: SimulatedBroker, duration_s: float) -> None:
        for _ in range(self._rng.randint(1, 3)):
            self._network.cut_one()
