"""The balance of leaders: brokers get back the partitions whose preferred leaders they are.

A check runs 5 s after a controller has taken over and then each `leader.imbalance.check.interval.seconds`. A broker
that leads less of its preferred partitions than `leader.imbalance.per.broker.percentage` allows gets them all.
"""

from __future__ import annotations

import logging

from barnabas.coordination.controller.events import ElectLeaders, StartTimer
from barnabas.coordination.controller.leadership import elect_leaders
from barnabas.coordination.controller.state import Change, ControllerState
from barnabas.coordination.planning.partition_changes import ElectionType, preferred_election
from barnabas.errors import KafkaError
from barnabas.model import BrokerId, TopicPartition

log = logging.getLogger(__name__)


def balance_leaders(state: ControllerState) -> Change[None]:
    config = state.settings.current
    moved = imbalanced(state, config.leader_imbalance_per_broker_percentage)
    if moved:
        log.info("Electing the preferred leaders of %d partitions", len(moved))
        try:
            yield from elect_leaders(state, ElectLeaders(moved, ElectionType.PREFERRED))
        except KafkaError as error:
            if state.lost is not None:
                raise
            log.error("Leaders cannot be balanced now: %s", error)
    yield StartTimer(config.leader_imbalance_check_interval_seconds, balance_leaders)


def imbalanced(state: ControllerState, percentage: int) -> list[TopicPartition]:
    """Partitions to move, of brokers that miss more of their leaderships than allowed."""
    preferred: dict[BrokerId, int] = {}
    missing: dict[BrokerId, list[TopicPartition]] = {}
    for at, partition in state.partitions():
        if not partition.has_state:
            continue
        first = partition.replicas[0]
        preferred[first] = preferred.get(first, 0) + 1
        if partition.leader != first:
            missing.setdefault(first, []).append(at)
    moved = []
    for broker, partitions in missing.items():
        if len(partitions) * 100 > percentage * preferred[broker]:
            for at in partitions:
                found = state.partition(at)
                if found is not None and preferred_election(found, state.online(at, found)) is not None:
                    moved.append(at)
    return moved
