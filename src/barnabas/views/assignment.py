"""Plans of reassignment: which brokers have which replicas, and files of such plans in Kafka's format.

A plan moves as few replicas as it can. Replicas stay where they are as long as their brokers are among the chosen ones
and have no more replicas than others; then leaders are spread by the order of replicas, which moves no data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from barnabas.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from barnabas.model import TopicPartition

Assignment: TypeAlias = dict[TopicPartition, tuple[int, ...]]

PLAN_VERSION: Final = 1
PARTITIONS_MAX: Final = 200_000
_ANY_DIRECTORY: Final = "any"


def _even_out(
    by_broker: Mapping[int, Mapping[TopicPartition, None]], move: Callable[[int, int, int], int]
) -> None:
    """Lets `move` take partitions from the brokers with the most to those with the fewest, as long as it can."""
    count = sum(map(len, by_broker.values()))
    least, most = count // len(by_broker), -(-count // len(by_broker))
    while True:
        order = sorted(by_broker, key=lambda broker: (len(by_broker[broker]), broker))
        pairs = (
            (full, empty)
            for full in reversed(order)
            for empty in order
            if len(by_broker[full]) - len(by_broker[empty]) > 1
        )
        if not any(
            move(full, empty, max(1, min(len(by_broker[full]) - most, least - len(by_broker[empty]))))
            for full, empty in pairs
        ):
            return


class _Balance:
    """Replicas on the way to a plan, by partition and by broker."""

    def __init__(self, racks: Mapping[int, str | None], kept: Mapping[TopicPartition, list[int]]) -> None:
        self._racks = racks
        self.replicas = {partition: list(brokers) for partition, brokers in kept.items()}
        self._kept = {partition: frozenset(brokers) for partition, brokers in kept.items()}
        # Partitions in a stated order, so that the same cluster gives the same plan.
        self._partitions_of: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in racks}
        for partition, brokers in self.replicas.items():
            for broker in brokers:
                self._partitions_of[broker][partition] = None

    def fill(self, replication_factors: Mapping[TopicPartition, int]) -> None:
        for partition, replicas in self.replicas.items():
            while len(replicas) < replication_factors[partition]:
                free = [broker for broker in self._racks if broker not in replicas]
                broker = min(
                    free, key=lambda each: (self._shares_rack(replicas, each), self._load(each), each)
                )
                replicas.append(broker)
                self._partitions_of[broker][partition] = None

    def level(self) -> None:
        """Moves replicas from brokers with many to brokers with few, until nothing is gained."""
        _even_out(self._partitions_of, self._move)

    def _move(self, full: int, empty: int, wanted: int) -> int:
        """Moves replicas of up to so many partitions; the number that could be."""
        # A replica that is new on its broker is copied anyway, so another broker may as well get it.
        partitions = sorted(self._partitions_of[full], key=lambda each: full in self._kept[each])
        moved = 0
        for partition in partitions:
            if moved == wanted:
                break
            replicas = self.replicas[partition]
            if empty in replicas:
                continue
            others = [broker for broker in replicas if broker != full]
            if self._shares_rack(others, empty) and not self._shares_rack(others, full):
                continue
            replicas[replicas.index(full)] = empty
            del self._partitions_of[full][partition]
            self._partitions_of[empty][partition] = None
            moved += 1
        return moved

    def spread_leaders(self) -> None:
        led: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in self._racks}
        for partition, replicas in self.replicas.items():
            led[replicas[0]][partition] = None

        def swap(full: int, empty: int, wanted: int) -> int:
            chosen = [each for each in led[full] if empty in self.replicas[each]][:wanted]
            for partition in chosen:
                replicas = self.replicas[partition]
                at = replicas.index(empty)
                replicas[0], replicas[at] = empty, full
                del led[full][partition]
                led[empty][partition] = None
            return len(chosen)

        _even_out(led, swap)

    def _load(self, broker: int) -> int:
        return len(self._partitions_of[broker])

    def _shares_rack(self, replicas: Sequence[int], broker: int) -> bool:
        rack = self._racks[broker]
        return rack is not None and any(self._racks[each] == rack for each in replicas)


def plan_assignment(
    current: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    replication_factor: int | None = None,
) -> Assignment:
    """The replicas of each partition on the chosen brokers, which come with their racks.

    Without a replication factor each partition keeps its own. Raises InvalidReplicationFactor.
    """
    factors = {
        partition: len(replicas) if replication_factor is None else replication_factor
        for partition, replicas in current.items()
    }
    highest = max(factors.values(), default=0)
    if highest > len(racks):
        raise InvalidReplicationFactor(
            f"{highest} replicas of a partition need {highest} brokers, and {len(racks)} are chosen"
        )
    if min(factors.values(), default=1) < 1:
        raise InvalidReplicationFactor("a partition has at least one replica")
    kept = {
        partition: [broker for broker in replicas if broker in racks][: factors[partition]]
        for partition, replicas in sorted(current.items())
    }
    balance = _Balance(racks, kept)
    balance.fill(factors)
    balance.level()
    balance.spread_leaders()
    return {partition: tuple(replicas) for partition, replicas in balance.replicas.items()}


def changes_of(current: Mapping[TopicPartition, Sequence[int]], planned: Assignment) -> Assignment:
    """The part of a plan that is not so already."""
    return {
        partition: replicas
        for partition, replicas in planned.items()
        if tuple(current.get(partition, ())) != replicas
    }


def plan_text(planned: Mapping[TopicPartition, Sequence[int]]) -> str:
    """The file of a plan, as Kafka's kafka-reassign-partitions reads it."""
    return json.dumps(
        {
            "version": PLAN_VERSION,
            "partitions": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "replicas": list(replicas),
                    "log_dirs": [_ANY_DIRECTORY] * len(replicas),
                }
                for partition, replicas in sorted(planned.items())
            ],
        },
        indent=1,
    )


def parse_plan(text: str) -> Assignment:
    """The plan in a file. Raises InvalidReplicaAssignment with what is wrong in it."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidReplicaAssignment(f"this is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("version", PLAN_VERSION) != PLAN_VERSION:
        raise InvalidReplicaAssignment('a plan is an object with "version": 1 and "partitions"')
    entries = data.get("partitions")
    if not isinstance(entries, list) or not entries:
        raise InvalidReplicaAssignment('the plan has no list "partitions"')
    if len(entries) > PARTITIONS_MAX:
        raise InvalidReplicaAssignment(f"the plan has {len(entries)} partitions, more than {PARTITIONS_MAX}")
    planned: Assignment = {}
    for entry in entries:
        partition, replicas = _parse_entry(entry)
        if partition in planned:
            raise InvalidReplicaAssignment(f"the plan has {partition} twice")
        planned[partition] = replicas
    return planned


def _parse_entry(entry: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(entry, dict):
        raise InvalidReplicaAssignment(f"{entry!r} is no partition of a plan")
    topic, index, replicas = entry.get("topic"), entry.get("partition"), entry.get("replicas")
    if not isinstance(topic, str) or not isinstance(index, int) or not _is_count(index):
        raise InvalidReplicaAssignment(f"{entry!r} has no topic and partition")
    partition = TopicPartition(topic, index)
    if not isinstance(replicas, list) or not replicas or not all(map(_is_count, replicas)):
        raise InvalidReplicaAssignment(f"{partition} has no list of broker ids as its replicas")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(f"{partition} has a broker twice: {replicas}")
    directories = entry.get("log_dirs", [_ANY_DIRECTORY] * len(replicas))
    if not isinstance(directories, list) or any(each != _ANY_DIRECTORY for each in directories):
        raise InvalidReplicaAssignment(
            f"{partition} has log_dirs other than any. Use `barnabas log-dirs move` to choose directories"
        )
    return partition, tuple(replicas)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
