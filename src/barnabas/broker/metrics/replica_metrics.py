"""Metrics of replication: the in-sync replicas of partitions led here, and the lag of this broker's own replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from barnabas.broker.broker import Broker
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.metrics.registry import Registry

_Labelled = Iterator[tuple[dict[str, str], float]]


def register_replicas(metrics: Registry, broker: Broker) -> None:
    replicas = broker.replicas
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


def _count(replicas: ReplicaManager, counts_in: Callable[[Partition], bool]) -> int:
    return sum(map(counts_in, replicas))


def _of_replica(value: float) -> list[tuple[dict[str, str], float]]:
    return [({"clientId": "Replica"}, value)]


def _lags(replicas: ReplicaManager) -> _Labelled:
    for each in replicas.lags():
        at = each.topic_partition
        client_id = f"ReplicaFetcherThread-{each.fetcher}-{each.leader}"
        yield {"clientId": client_id, "topic": at.topic, "partition": str(at.partition)}, each.lag
