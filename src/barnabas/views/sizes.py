"""Sizes on disk, of topics and of the log directories of brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import LogDir, ReplicaOnDisk
from barnabas.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    broker_id: int
    path: str
    partition: TopicPartition
    on_disk: ReplicaOnDisk


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySize:
    """A log directory of a broker. `size_bytes` and `replica_count` include all replicas in it."""

    broker_id: int
    described: LogDir
    size_bytes: int
    replica_count: int
    replicas: tuple[ReplicaSize, ...]


def topic_sizes(admin: Admin, *, timeout_ms: int | None = None) -> dict[str, int]:
    """The bytes of each topic on disk, all replicas together."""
    sizes: dict[str, int] = {}
    for directories in admin.describe_log_dirs(timeout_ms=timeout_ms).values():
        for directory in directories.values():
            for partition, replica in directory.replicas.items():
                sizes[partition.topic] = sizes.get(partition.topic, 0) + replica.size_bytes
    return sizes


def directory_sizes(
    admin: Admin,
    *,
    brokers: Iterable[int] | None = None,
    partitions: Iterable[TopicPartition] | None = None,
    hidden_topics: Collection[str] = (),
) -> list[DirectorySize]:
    """The log directories of brokers, in order, with the replicas of these partitions or of all.

    Replicas of hidden topics are counted but not listed.
    """
    found = admin.describe_log_dirs(brokers, partitions=partitions)
    return [
        DirectorySize(
            broker_id=broker_id,
            described=directory,
            size_bytes=sum(replica.size_bytes for replica in directory.replicas.values()),
            replica_count=len(directory.replicas),
            replicas=tuple(
                ReplicaSize(broker_id=broker_id, path=path, partition=partition, on_disk=replica)
                for partition, replica in sorted(directory.replicas.items())
                if partition.topic not in hidden_topics
            ),
        )
        for broker_id, by_path in sorted(found.items())
        for path, directory in sorted(by_path.items())
    ]
