"""Reassignments under way: their progress, and the throttle of their replication.

A throttle is two settings of each broker (bytes per second) and two of each topic (the replicas to which it applies),
as Kafka's kafka-reassign-partitions sets them. It slows down replicas that are moved, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import ConfigResource, ConfigSource, Reassignment, ResourceType
from barnabas.model import TopicPartition

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

_CHANGED: Final = (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_TOPIC_CONFIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A partition whose replicas change: bytes to copy to new replicas, and bytes that are there."""

    partition: TopicPartition
    reassignment: Reassignment
    total_bytes: int
    done_bytes: int


def moves_under_way(admin: Admin, partitions: Iterable[TopicPartition] | None = None) -> list[Move]:
    """The reassignments of these partitions, or of all, with the sizes of their replicas."""
    wanted = None if partitions is None else list(partitions)
    found = admin.list_reassignments(wanted)
    if not found:
        return []
    sizes = _sizes(admin, found)
    return [
        Move(
            partition=partition,
            reassignment=each,
            total_bytes=(largest := max(sizes[partition].values(), default=0)) * len(each.adding_replicas),
            done_bytes=sum(min(sizes[partition].get(broker, 0), largest) for broker in each.adding_replicas),
        )
        for partition, each in sorted(found.items())
    ]


def _sizes(
    admin: Admin, partitions: Mapping[TopicPartition, Reassignment]
) -> dict[TopicPartition, dict[int, int]]:
    """The bytes of each replica, by broker."""
    alive = {node.id for node in admin.describe_cluster().nodes}
    named = {broker for each in partitions.values() for broker in each.replicas}
    sizes: dict[TopicPartition, dict[int, int]] = {partition: {} for partition in partitions}
    for broker, directories in admin.describe_log_dirs(sorted(named & alive), partitions=partitions).items():
        for directory in directories.values():
            for partition, replica in directory.replicas.items():
                if not replica.is_future and partition in sizes:
                    sizes[partition][broker] = replica.size_bytes
    return sizes


def throttle_changes(
    current: Mapping[TopicPartition, Sequence[int]],
    planned: Mapping[TopicPartition, Sequence[int]],
    rate_bytes_per_second: int,
) -> dict[ConfigResource, dict[str, str | None]]:
    """Settings that throttle a plan: what the present replicas send, and what the new ones receive."""
    brokers: set[int] = set()
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for partition, replicas in sorted(planned.items()):
        sources = list(current[partition])
        added = [broker for broker in replicas if broker not in sources]
        if not added:
            continue
        brokers.update(sources, replicas)
        leaders.setdefault(partition.topic, []).extend(f"{partition.partition}:{each}" for each in sources)
        followers.setdefault(partition.topic, []).extend(f"{partition.partition}:{each}" for each in added)
    changes: dict[ConfigResource, dict[str, str | None]] = {
        _broker(each): dict.fromkeys(RATES, str(rate_bytes_per_second)) for each in sorted(brokers)
    }
    for topic in leaders:
        changes[_topic(topic)] = {
            LEADER_REPLICAS: ",".join(leaders[topic]),
            FOLLOWER_REPLICAS: ",".join(followers[topic]),
        }
    return changes


def throttles(admin: Admin) -> dict[ConfigResource, dict[str, str]]:
    """The settings of throttles that brokers and topics have now."""
    nodes = [_broker(node.id) for node in admin.describe_cluster().nodes]
    topics = [_topic(topic.name) for topic in admin.list_topics(include_internal=True)]
    found: dict[ConfigResource, dict[str, str]] = {}
    for resources, names in ((nodes, RATES), (topics, (LEADER_REPLICAS, FOLLOWER_REPLICAS))):
        described = admin.describe_configs(resources, names=names) if resources else {}
        for resource, entries in described.items():
            own = {
                name: entry.value
                for name, entry in entries.items()
                if entry.value and entry.source in _CHANGED
            }
            if own:
                found[resource] = own
    return found


def end_throttles(admin: Admin) -> int:
    """Removes the settings of throttles; the number of brokers and topics that had some."""
    found = throttles(admin)
    if found:
        admin.alter_configs({resource: dict.fromkeys(own) for resource, own in found.items()})
    return len(found)


def _broker(broker_id: int) -> ConfigResource:
    return ConfigResource(ResourceType.BROKER, str(broker_id))


def _topic(name: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name)
