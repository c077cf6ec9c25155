"""The plan of a new topic, or of new partitions, and its checks. Nothing is stored here.

Clients show the messages to their users, who know them from Apache Kafka, so the messages are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.log_config import LogConfig
from barnabas.coordination.metadata.identity import random_id
from barnabas.coordination.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.coordination.metadata.topic_names import check_topic_name, collision_key
from barnabas.coordination.planning.placement import place_replicas
from barnabas.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    PolicyViolation,
    ReassignmentInProgress,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId, LeaderEpoch

DEFAULT_COUNT: Final = -1
# The bound for one request.
PARTITIONS_MAX: Final = 10_000
# The log of KRaft's own metadata, in Apache Kafka.
_RESERVED_NAME: Final = "__cluster_metadata"
_FIRST_EPOCH: Final = LeaderEpoch(0)


class NewTopic(NamedTuple):
    """A topic that is asked for. Counts of -1 leave the choice to the cluster's defaults, or to the assignments."""

    name: str
    num_partitions: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = MappingProxyType({})


class NewPartitions(NamedTuple):
    """How many partitions a topic is to have in all, and where the additional ones go if that matters."""

    name: str
    num_partitions: int
    assignments: Sequence[Sequence[int]] | None = None


class PlannedTopic(NamedTuple):
    topic: TopicImage
    configs: Mapping[str, str]


Planned: TypeAlias = PlannedTopic | KafkaError

# Called with the partitions that a change makes or deletes, when nothing else is in its way; it may raise a KafkaError.
Charge: TypeAlias = Callable[[int], None]


def free_of_charge(_: int) -> None:
    pass


class TopicPlanner:
    """Plans the topics of one request, one after the other: each may be in the way of the next."""

    def __init__(
        self,
        image: MetadataImage,
        config: BrokerConfig,
        rng: Random,
        *,
        deleting: Collection[str] = (),
        unreadable: Collection[str] = (),
        charge: Charge = free_of_charge,
    ) -> None:
        self._image = image
        self._config = config
        self._rng = rng
        self._deleting = deleting
        self._unreadable = unreadable
        self._charge = charge
        # Made when the first name needs it: most names cannot collide.
        self._names_by_key: dict[str, str] | None = None
        self._planned_names: list[str] = []

    def plan(self, new: Sequence[NewTopic]) -> list[Planned]:
        if sum(map(self._partition_count, new)) > PARTITIONS_MAX:
            return [PolicyViolation("Excessively large number of partitions per request.") for _ in new]
        repeated = repeated_names(topic.name for topic in new)
        planned: list[Planned] = []
        for topic in new:
            try:
                if topic.name in repeated:
                    raise InvalidRequest("Duplicate topic name.")
                planned.append(self._plan(topic))
            except KafkaError as error:
                planned.append(error)
        return planned

    def _partition_count(self, new: NewTopic) -> int:
        """The cost of a topic: at least one, so that every request is bounded."""
        if new.assignments:
            return len(new.assignments)
        return (
            self._config.num_partitions if new.num_partitions == DEFAULT_COUNT else max(new.num_partitions, 1)
        )

    def _plan(self, new: NewTopic) -> PlannedTopic:
        self._check_name(new.name)
        configs = self._checked_configs(new.configs)
        if new.assignments:
            partitions = self._assigned_partitions(new)
        else:
            partitions = self._placed_partitions(new)
        self._charge(len(partitions))
        topic = TopicImage(name=new.name, id=random_id(self._rng), partitions=partitions)
        self._planned_names.append(new.name)
        return PlannedTopic(topic=topic, configs=configs)

    def _check_name(self, name: str) -> None:
        if name == _RESERVED_NAME:
            raise InvalidRequest(f"Creation of internal topic {name} is prohibited.")
        if name in self._deleting:
            raise TopicAlreadyExists(f"Topic '{name}' is marked for deletion.")
        if name in self._unreadable:
            raise TopicAlreadyExists(
                f"Topic '{name}' already exists, but its node in ZooKeeper cannot be read."
            )
        if name in self._image.topics:
            raise TopicAlreadyExists(f"Topic '{name}' already exists.")
        check_topic_name(name)
        taken = self._name_with_key(collision_key(name)) if has_collision_characters(name) else None
        if taken is not None:
            raise InvalidTopicException(f"Topic '{name}' collides with existing topic: {taken}")

    def _name_with_key(self, key: str) -> str | None:
        if self._names_by_key is None:
            self._names_by_key = {
                collision_key(name): name for name in self._image.topics if has_collision_characters(name)
            }
        for name in self._planned_names:
            self._names_by_key[collision_key(name)] = name
        self._planned_names.clear()
        return self._names_by_key.get(key)

    def _checked_configs(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        checked = {name: value for name, value in configs.items() if value is not None}
        if len(checked) < len(configs):
            nulls = ",".join(name for name in configs if name not in checked)
            raise InvalidConfig(f"Null value not supported for topic configs: {nulls}")
        check_topic_config(self._config.topic_config(checked))
        return checked

    def _assigned_partitions(self, new: NewTopic) -> tuple[PartitionImage, ...]:
        if new.replication_factor != DEFAULT_COUNT:
            raise InvalidRequest(
                "A manual partition assignment was specified, but replication factor was not set to -1."
            )
        if new.num_partitions != DEFAULT_COUNT:
            raise InvalidRequest(
                "A manual partition assignment was specified, but numPartitions was not set to -1."
            )
        partitions: dict[int, PartitionImage] = {}
        replication_factor = None
        for index, replicas in new.assignments:
            if index in partitions:
                raise InvalidReplicaAssignment(
                    f"Found multiple manual partition assignments for partition {index}"
                )
            check_assignment(self._image, replicas, replication_factor)
            replication_factor = len(replicas)
            partitions[index] = new_partition(replicas)
        if sorted(partitions) != list(range(len(partitions))):
            raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
        return tuple(partitions[index] for index in range(len(partitions)))

    def _placed_partitions(self, new: NewTopic) -> tuple[PartitionImage, ...]:
        replication_factor = new.replication_factor
        if replication_factor < DEFAULT_COUNT or replication_factor == 0:
            raise InvalidReplicationFactor(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if new.num_partitions < DEFAULT_COUNT or new.num_partitions == 0:
            raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
        if replication_factor == DEFAULT_COUNT:
            replication_factor = self._config.default_replication_factor
        try:
            placed = place_replicas(
                self._image.brokers.values(), self._partition_count(new), replication_factor, rng=self._rng
            )
        except InvalidReplicationFactor as error:
            raise InvalidReplicationFactor(
                f"Unable to replicate the partition {replication_factor} time(s): {error}"
            ) from None
        return tuple(map(new_partition, placed))


def plan_partitions(image: MetadataImage, new: NewPartitions, rng: Random) -> TopicImage:
    """The topic with its additional partitions. Raises a KafkaError that says why there cannot be any."""
    topic = image.topics.get(new.name)
    if topic is None:
        raise UnknownTopicOrPartition(f"The topic '{new.name}' does not exist.")
    count = len(topic.partitions)
    if new.num_partitions == count:
        raise InvalidPartitions(f"Topic already has {count} partition(s).")
    if new.num_partitions < count:
        raise InvalidPartitions(
            f"The topic {new.name} currently has {count} partition(s); {new.num_partitions} would not be an increase."
        )
    additional = new.num_partitions - count
    if additional > PARTITIONS_MAX:
        raise PolicyViolation("Excessively large number of partitions per request.")
    if any(partition.is_reassigned for partition in topic.partitions):
        raise ReassignmentInProgress(f"A partition reassignment is in progress for the topic '{new.name}'.")
    replication_factor = len(topic.partitions[0].replicas)
    placed: Sequence[Sequence[int]]
    if new.assignments is None:
        placed = place_replicas(
            image.brokers.values(),
            additional,
            replication_factor,
            rng=rng,
            first_partition=count,
            after=topic.partitions[0].replicas[0],
        )
    else:
        placed = new.assignments
        if len(placed) != additional:
            raise InvalidReplicaAssignment(
                f"Attempted to add {additional} additional partition(s), but only {len(placed)} assignment(s) were"
                " specified."
            )
        for replicas in placed:
            check_assignment(image, replicas, replication_factor)
    return TopicImage(
        name=topic.name, id=topic.id, partitions=(*topic.partitions, *map(new_partition, placed))
    )


def check_topic_config(config: LogConfig) -> None:
    """Refuses settings of a topic that this broker cannot honour."""
    if config.remote_storage_enable:
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log"
            " storage."
        )


def check_assignment(
    image: MetadataImage,
    replicas: Sequence[int],
    replication_factor: int | None,
    *,
    present: Collection[int] = (),
) -> None:
    """Rejects a list of replicas that a user has chosen, if such replicas are not possible.

    Brokers in `present` have a replica already, and need not be alive.
    """
    if not replicas:
        raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker in sorted(replicas):
        if broker not in image.brokers and broker not in present:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if broker == previous:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
        previous = broker
    if replication_factor is not None and len(replicas) != replication_factor:
        raise InvalidReplicaAssignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not"
            f" consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def new_partition(replicas: Sequence[int], *, leader_epoch: LeaderEpoch = _FIRST_EPOCH) -> PartitionImage:
    """A partition whose replicas all start empty, and so in sync."""
    brokers = tuple(map(BrokerId, replicas))
    return PartitionImage(leader=brokers[0], leader_epoch=leader_epoch, replicas=brokers, isr=brokers)


def has_collision_characters(name: str) -> bool:
    return "." in name or "_" in name


def repeated_names(names: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    repeated: set[str] = set()
    for name in names:
        (repeated if name in seen else seen).add(name)
    return repeated


def automatic_topic(name: str, config: BrokerConfig, broker_count: int) -> NewTopic:
    """A topic that is created automatically. Internal topics have their own settings."""
    values: Mapping[str, Any] = config.values

    def replication_factor(setting: str) -> int:
        # A single node without a configuration file has to serve groups and transactions too. With ZooKeeper, more
        # brokers may come: the topic waits for as many as it needs, as in Kafka.
        wanted: int = values[setting]
        is_wanted = config.uses_zookeeper or setting in config.static
        return wanted if is_wanted else min(wanted, broker_count)

    if name == "__consumer_offsets":
        return NewTopic(
            name=name,
            num_partitions=values["offsets.topic.num.partitions"],
            replication_factor=replication_factor("offsets.topic.replication.factor"),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(values["offsets.topic.segment.bytes"]),
            },
        )
    if name == "__transaction_state":
        return NewTopic(
            name=name,
            num_partitions=values["transaction.state.log.num.partitions"],
            replication_factor=replication_factor("transaction.state.log.replication.factor"),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(values["transaction.state.log.min.isr"]),
                "segment.bytes": str(values["transaction.state.log.segment.bytes"]),
                "unclean.leader.election.enable": "false",
            },
        )
    return NewTopic(name=name)
