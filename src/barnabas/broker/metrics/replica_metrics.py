"""Metrics of replication: the in-sync replicas of partitions led here, and the lag of this broker's own replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.metrics.registry import Registry

_Labelled = Iterator[tuple[dict[str, str], float]]


def register_replicas(metrics: Registry, replicas: ReplicaManager, *, is_in_cluster: bool) -> None:
    name = "kafka_server_replicamanager_"
    metrics.gauge(name + "partitioncount", "Partitions on this broker.", lambda: len(replicas))
    counts: tuple[tuple[str, str, Callable[[Partition], bool]], ...] = (
        ("leadercount", "Partitions that this broker leads.", lambda each: each.is_leader),
        ("offlinereplicacount", "Partitions whose log cannot be used.", lambda each: each.log is None),
        (
            "underreplicatedpartitions",
            "Partitions led here with fewer in-sync replicas than replicas.",
            lambda each: each.is_under_replicated,
        ),
        (
            "underminisrpartitioncount",
            "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
            lambda each: each.min_isr_surplus < 0,
        ),
        (
            "atminisrpartitioncount",
            "Partitions led here with as many in-sync replicas as min.insync.replicas.",
            lambda each: each.min_isr_surplus == 0,
        ),
        (
            "reassigningpartitions",
            "Partitions led here whose replicas are being changed.",
            lambda each: each.is_leader and each.is_reassigning,
        ),
    )
    for kind, help_text, counts_in in counts:
        metrics.gauge(name + kind, help_text, partial(_count, replicas, counts_in))
    isr = replicas.isr_metrics
    metrics.total(
        name + "isrshrinks_total", "Replicas that have left the in-sync replicas.", lambda: isr.shrinks
    )
    metrics.total(
        name + "isrexpands_total", "Replicas that have joined the in-sync replicas.", lambda: isr.expands
    )
    metrics.total(
        name + "failedisrupdates_total",
        "Changes of in-sync replicas that the controller has refused.",
        lambda: isr.failures,
    )
    _register_fetchers(metrics, replicas)
    if is_in_cluster:
        # On one node they would say nothing, for each of its partitions.
        _register_partitions(metrics, replicas)


def _register_partitions(metrics: Registry, replicas: ReplicaManager) -> None:
    """As in Kafka, these are 0 on brokers that do not lead the partition, except for the last."""
    readings: tuple[tuple[str, str, Callable[[Partition], int]], ...] = (
        (
            "underreplicated",
            "1 if a partition led here has fewer in-sync replicas than replicas.",
            lambda each: each.is_under_replicated,
        ),
        (
            "insyncreplicascount",
            "In-sync replicas of a partition led here.",
            lambda each: 0 if each.leadership is None else len(each.leadership.in_sync),
        ),
        (
            "replicascount",
            "Replicas of a partition led here.",
            lambda each: 0 if each.leadership is None else len(each.replicas),
        ),
        (
            "underminisr",
            "1 if a partition led here has fewer in-sync replicas than min.insync.replicas.",
            lambda each: each.min_isr_surplus < 0,
        ),
        (
            "atminisr",
            "1 if a partition led here has as many in-sync replicas as min.insync.replicas.",
            lambda each: each.min_isr_surplus == 0,
        ),
        (
            "laststableoffsetlag",
            "Records of open transactions that hold back readers.",
            _last_stable_offset_lag,
        ),
    )
    for kind, help_text, read in readings:
        metrics.gauge(f"kafka_cluster_partition_{kind}", help_text, partial(_of_each, replicas, read))


def _last_stable_offset_lag(partition: Partition) -> int:
    log = partition.log
    return 0 if log is None else max(0, log.high_watermark - log.last_stable_offset)


def _of_each(replicas: ReplicaManager, read: Callable[[Partition], int]) -> _Labelled:
    # Partitions may come and go while the metrics are read.
    for partition in list(replicas):
        at = partition.topic_partition
        yield {"topic": at.topic, "partition": str(at.partition)}, int(read(partition))


def _register_fetchers(metrics: Registry, replicas: ReplicaManager) -> None:
    name = "kafka_server_replicafetchermanager_"
    metrics.gauge(
        name + "maxlag",
        "Records by which the replica here that lags most is behind its leader.",
        lambda: _of_replica(max((each.lag for each in replicas.lags()), default=0)),
    )
    metrics.gauge(
        name + "failedpartitionscount",
        "Partitions that cannot be copied from their leader.",
        lambda: _of_replica(replicas.failed_count()),
    )
    metrics.gauge(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "Records by which a replica here is behind its leader.",
        lambda: _lags(replicas),
    )

    name = "kafka_server_fetcherstats_"
    metrics.total(
        name + "bytes_total",
        "Bytes of records that a fetcher has got from its leader.",
        lambda: (
            (_of_fetcher(each.fetcher, each.leader), each.received_bytes)
            for each in replicas.fetcher_traffic()
        ),
    )
    metrics.total(
        name + "requests_total",
        "Fetch requests of a fetcher to its leader.",
        lambda: (
            (_of_fetcher(each.fetcher, each.leader), each.requests) for each in replicas.fetcher_traffic()
        ),
    )


def _of_fetcher(number: int, leader: int) -> dict[str, str]:
    return {"clientId": f"ReplicaFetcherThread-{number}-{leader}"}


def _count(replicas: ReplicaManager, counts_in: Callable[[Partition], bool]) -> int:
    return sum(map(counts_in, replicas))


def _of_replica(value: float) -> list[tuple[dict[str, str], float]]:
    return [({"clientId": "Replica"}, value)]


def _lags(replicas: ReplicaManager) -> _Labelled:
    for each in replicas.lags():
        at = each.topic_partition
        place = {"topic": at.topic, "partition": str(at.partition)}
        yield {**_of_fetcher(each.fetcher, each.leader), **place}, each.lag
