"""Runs of a simulated cluster that look for one kind of trouble each: their faults and clients are chosen for it.

Some faults are aimed: they strike when the state of a partition changes in the store, because the trouble depends on
what is under way at that moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from tests.simulation.broker import SimulatedBroker
from tests.simulation.cluster_invariants import StoredState
from tests.simulation.cluster_scenario import SHORT_SETTINGS, ShortScenario


class Records(ShortScenario):
    """Producers on one or two partitions."""

    kinds = ("records",)
    producers = 3
    event_batches = 8
    fault_count_min = 2
    fault_count_max = 4


class Crashes(Records):
    fault_kinds = ("kill", "kill_within_a_write", "block", "pause", "drop")


class Lags(Records):
    """Followers and the controller lose touch with leaders for a while."""

    fault_kinds = ("block", "drop", "pause", "slow_down")


class Aimed(ShortScenario):
    """Faults that come when the state of a partition changes in the store."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.cluster.ensemble.on_change = self._on_change
        self._is_aiming = True

    def _on_change(self, path: str, node: Any) -> None:
        before = dict(self.invariants.states)
        self.invariants.on_store_change(path, node)
        for key, state in self.invariants.states.items():
            if self._is_aiming and state != before.get(key):
                self.on_state(before.get(key), state)

    def end(self) -> None:
        self._is_aiming = False
        super().end()

    def on_state(self, before: StoredState | None, state: StoredState) -> None:
        raise NotImplementedError

    def host(self, broker_id: int) -> str:
        return self.cluster.brokers[broker_id].host

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.world.call_at(self.world.now_s + delay_s, action)


class Expansions(Records, Aimed):
    """A follower that joins the in-sync replicas loses touch with its leader at the moment when the store has that."""

    event_batches = 20
    fault_kinds = ("block", "drop")

    def on_state(self, before: StoredState | None, state: StoredState) -> None:
        for each in set(state.isr).difference(state.isr if before is None else before.isr):
            way = (self.host(each), self.host(state.leader))
            self.network.block(*way)
            self.later(2.5, partial(self.network.unblock, *way))


class Absences(ShortScenario):
    fault_count_min = fault_count_max = 1
    absence_share = 1.0


class Topics(Aimed):
    """Topics of one name come and go. What their leaders send to a follower arrives late."""

    settings: Mapping[str, str] = {**SHORT_SETTINGS, "replica.socket.timeout.ms": "5000"}
    kinds = ("topics",)
    operated_topics = 6
    operated_changes = 1
    moves_partitions = False
    fault_kinds = ("reset",)

    def on_state(self, before: StoredState | None, state: StoredState) -> None:
        if before is None:
            way = (self.host(state.leader), self.host(state.isr[-1]))
            self.network.slow_down(*way, 4.0)
            self.later(0.5, partial(self.network.speed_up, *way, 4.0))


class Sessions(ShortScenario):
    """Controllers and registrations change while requests of earlier ones are under way."""

    fault_kinds = ("pause", "expire", "slow_down", "cut_off")
    fault_count_min = 3
    fault_count_max = 5


class LateRequests(Aimed):
    """What a controller sends after a change arrives late, when something else has changed."""

    fault_kinds = ("reset",)

    def on_state(self, before: StoredState | None, state: StoredState) -> None:
        tree = self.cluster.ensemble.tree
        if self.rng.random() < 0.2 and "/controller" in tree:
            controller = self.cluster.brokers[json.loads(tree["/controller"].data)["brokerid"]]
            others = [each for each in self.cluster.brokers if each is not controller]
            for each in others:
                way = (controller.host, each.host)
                self.network.slow_down(*way, 3.0)
                self.later(0.1, partial(self.network.speed_up, *way, 3.0))
            self.later(0.1, lambda: self.follow(controller, self.rng.choice(others)))

    def follow(self, controller: SimulatedBroker, other: SimulatedBroker) -> None:
        raise NotImplementedError


class Takeovers(LateRequests):
    def follow(self, controller: SimulatedBroker, other: SimulatedBroker) -> None:
        self.faults.pause(controller, 3.0)


class Registrations(LateRequests):
    """The controller does not know yet that a broker has a new registration."""

    def follow(self, controller: SimulatedBroker, other: SimulatedBroker) -> None:
        self.faults.cut_off(controller, 1.2)
        self.faults.expire(other, 0.0)


SHAPES: Final = (Crashes, Lags, Expansions, Absences, Topics, Sessions, Takeovers, Registrations)
