"""The lag of consumer groups, under the names of kafka_exporter.

The lag is the distance from a group's committed offset to the high watermark, for partitions that this broker leads. It
is computed when the metrics are read, group by group, so that other work can run in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from barnabas.broker.coordinators.group_runtime import GroupRuntime
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.errors import KafkaError
from barnabas.metrics.registry import MAX_SERIES_A_FAMILY, Registry
from barnabas.model import TopicPartition

_NAME: Final = "kafka_consumergroup_lag"

LabelledLag = tuple[Mapping[str, str], float]


def register_lag(metrics: Registry, groups: GroupRuntime, replicas: ReplicaManager) -> None:
    metrics.gauge(
        _NAME,
        f"Records between a group's committed offset and the end, of at most {MAX_SERIES_A_FAMILY} partitions.",
        lambda: islice(_by_partition(groups, replicas), MAX_SERIES_A_FAMILY),
    )
    metrics.gauge(
        f"{_NAME}_sum",
        "Records between a group's committed offsets and the ends of all their partitions.",
        lambda: islice(_by_group(groups, replicas), MAX_SERIES_A_FAMILY),
    )


def _by_partition(groups: GroupRuntime, replicas: ReplicaManager) -> Iterator[LabelledLag]:
    for group_id, lags in _lags(groups, replicas):
        for at, lag in lags:
            yield {"consumergroup": group_id, "topic": at.topic, "partition": str(at.partition)}, lag


def _by_group(groups: GroupRuntime, replicas: ReplicaManager) -> Iterator[LabelledLag]:
    for group_id, lags in _lags(groups, replicas):
        yield {"consumergroup": group_id}, sum(lag for _, lag in lags)


def _lags(
    groups: GroupRuntime, replicas: ReplicaManager
) -> Iterator[tuple[str, list[tuple[TopicPartition, int]]]]:
    # A copy, because groups and offsets may change during a scrape.
    for shell in list(groups):
        for group_id in shell.coordinator.groups_with_offsets():
            found = []
            for at, committed in shell.coordinator.committed_offsets(group_id):
                end = _high_watermark(replicas, at)
                if end is not None:
                    found.append((at, max(end - committed, 0)))
            if found:
                yield group_id, found


def _high_watermark(replicas: ReplicaManager, at: TopicPartition) -> int | None:
    partition = replicas.find(at)
    if partition is None:
        return None
    try:
        return partition.leader_log().high_watermark
    except KafkaError:
        # Not led here, or its directory has failed.
        return None
