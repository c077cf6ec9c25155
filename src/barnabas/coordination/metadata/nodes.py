"""Parts of the image as operations on the store, and nodes of the store as parts of the image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.config.definition import to_text
from barnabas.coordination.metadata.image import PartitionImage, QuotaEntity, TopicImage
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import (
    DEFAULT_ENTITY,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    config_path,
    desanitize,
    encode_partition_state,
    encode_topic,
    partition_path,
    partition_state_path,
    partitions_path,
    sanitize,
    topic_path,
)
from barnabas.coordination.store.contract import Create, Operation, SetData
from barnabas.model import TopicPartition

QUOTA_KEYS: Final = frozenset(
    {
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
    }
)


def topic_node(topic: TopicImage) -> bytes:
    return encode_topic(
        TopicAssignment(
            topic_id=topic.id,
            partitions={
                index: ReplicaAssignment(
                    replicas=partition.replicas, adding=partition.adding, removing=partition.removing
                )
                for index, partition in enumerate(topic.partitions)
            },
        )
    )


def state_node(partition: PartitionImage, controller_epoch: int) -> bytes:
    return encode_partition_state(
        PartitionState(
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
            controller_epoch=controller_epoch,
            leader_recovery_state=partition.leader_recovery_state,
        )
    )


def create_topic(topic: TopicImage, controller_epoch: int) -> Iterator[Operation]:
    """The topic's own node comes first: then it exists, and the next start creates missing states."""
    yield Create(topic_path(topic.name), topic_node(topic))
    yield Create(partitions_path(topic.name))
    yield from create_partitions(topic, 0, controller_epoch)


def create_partitions(topic: TopicImage, first: int, controller_epoch: int) -> Iterator[Operation]:
    """A partition without a live replica gets its state later."""
    for index in range(first, len(topic.partitions)):
        at, partition = TopicPartition(topic.name, index), topic.partitions[index]
        yield Create(partition_path(at))
        if partition.has_state:
            yield Create(partition_state_path(at), state_node(partition, controller_epoch))


def set_state(at: TopicPartition, partition: PartitionImage, controller_epoch: int) -> SetData:
    """Stores a partition, whose epoch is already the next: the store has to have the one before."""
    return SetData(
        partition_state_path(at), state_node(partition, controller_epoch), partition.partition_epoch - 1
    )


def broker_config_path(broker: str) -> str:
    return config_path("brokers", broker or DEFAULT_ENTITY)


def group_config_path(group_id: str) -> str:
    return config_path("groups", sanitize(group_id))


def client_metrics_path(name: str) -> str:
    return config_path("client-metrics", sanitize(name))


def user_path(user: str) -> str:
    return config_path("users", sanitize(user))


def quota_path(entity: QuotaEntity) -> str:
    user, client_id, ip = entity
    if ip is not None:
        return config_path("ips", sanitize(ip))
    if user is None:
        assert client_id is not None
        return config_path("clients", sanitize(client_id))
    path = user_path(user)
    return path if client_id is None else f"{path}/clients/{sanitize(client_id)}"


def quota_entity(path: str) -> QuotaEntity:
    """The entity of a path of `quota_path`."""
    match path.split("/")[2:]:
        case ["ips", ip]:
            return None, None, desanitize(ip)
        case ["clients", client_id]:
            return None, desanitize(client_id), None
        case ["users", user]:
            return desanitize(user), None, None
        case ["users", user, "clients", client_id]:
            return desanitize(user), desanitize(client_id), None
    raise AssertionError(path)


def quota_texts(limits: Mapping[str, float]) -> dict[str, str]:
    return {key: to_text(float(limit)) or "" for key, limit in limits.items()}


def quota_limits(path: str, properties: Mapping[str, str]) -> dict[str, float]:
    """The quotas among the settings: the credentials of a user are beside them."""
    limits = {}
    for key in QUOTA_KEYS & properties.keys():
        try:
            limits[key] = float(properties[key])
        except ValueError:
            raise MalformedNode(f"{path}: {key}={properties[key]!r} is no number") from None
    return limits
