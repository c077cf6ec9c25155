"""The metrics of a broker, under the names that Kafka's metrics have in Prometheus."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial

from barnabas.broker.broker import Broker
from barnabas.broker.metrics.controller_metrics import register_controller
from barnabas.broker.metrics.coordinator_metrics import register_coordinators
from barnabas.broker.metrics.group_metrics import register_group_metrics
from barnabas.broker.metrics.lag_metrics import register_lag
from barnabas.broker.metrics.loop_metrics import LoopMetrics
from barnabas.broker.metrics.replica_metrics import register_replicas
from barnabas.broker.replication import topic_metrics as topic_metrics
from barnabas.broker.replication.partition import Partition
from barnabas.broker.waiting.purgatory import Purgatory
from barnabas.errors import KafkaError
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.metrics.process import register_process
from barnabas.metrics.registry import Registry
from barnabas.net.listener import Connections


class FlushTimes:
    """The durations and the number of log flushes. Any thread may flush a log."""

    def __init__(self, metrics: Registry) -> None:
        self._lock = threading.Lock()
        self._times_s = metrics.histogram(
            "kafka_log_logflushstats_logflushtime_seconds", "Time that a flush of a partition's log takes."
        ).labels()

    def observe(self, duration_ns: int) -> None:
        with self._lock:
            self._times_s.observe(duration_ns / 1e9)


def register_metrics(broker: Broker, connections: Connections, loop: asyncio.AbstractEventLoop) -> None:
    metrics = broker.metrics
    _register_connections(metrics, connections)
    _register_waiting(metrics, broker)
    register_replicas(metrics, broker.replicas, is_in_cluster=broker.config.is_in_cluster)
    register_controller(metrics, broker.controller)
    _register_topics(metrics, broker)
    register_coordinators(broker)
    _register_logs(metrics, broker)
    register_group_metrics(metrics, broker.groups)
    register_lag(metrics, broker.groups, broker.replicas)
    LoopMetrics(loop, metrics)
    register_process(metrics)


def _register_connections(metrics: Registry, connections: Connections) -> None:
    metrics.gauge(
        "kafka_server_socketservermetrics_connection_count", "Open connections.", lambda: len(connections)
    )
    metrics.total(
        "kafka_server_socketservermetrics_connection_creation_total",
        "Connections accepted.",
        lambda: connections.accepted,
    )
    metrics.total(
        "kafka_server_socketservermetrics_connection_refused_total",
        "Connections refused because their address had its share.",
        lambda: connections.refused,
    )


def _register_waiting(metrics: Registry, broker: Broker) -> None:
    purgatories = {
        "Produce": broker.replicas.delayed.produces,
        "Fetch": broker.replicas.delayed.fetches,
        "DeleteRecords": broker.replicas.delayed.deletions,
    }
    counts: tuple[tuple[str, str, Callable[[Purgatory], int]], ...] = (
        ("numdelayedoperations", "Requests that wait for something to happen.", lambda each: each.waiting),
        ("purgatorysize", "Partitions that waiting requests wait for.", lambda each: each.waiting_keys),
    )
    for name, help_text, count in counts:
        metrics.gauge(
            f"kafka_server_delayedoperationpurgatory_{name}",
            help_text,
            partial(_of_each_purgatory, purgatories, count),
        )
    metrics.gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "Open fetch sessions.",
        lambda: len(broker.fetch_sessions),
    )
    metrics.gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        "Partitions in open fetch sessions.",
        lambda: broker.fetch_sessions.cached_partitions,
    )


def _register_topics(metrics: Registry, broker: Broker) -> None:
    replicas = broker.replicas
    metrics.gauge(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "Partitions with a transaction that should long have been ended.",
        lambda: sum(_has_late_transaction(broker, partition) for partition in replicas),
    )
    for name, help_text in topic_metrics.METRICS.items():
        metrics.total(
            f"kafka_server_brokertopicmetrics_{name.replace('_', '')}_total",
            help_text,
            partial(replicas.topic_metrics.readings, name),
        )


def _register_logs(metrics: Registry, broker: Broker) -> None:
    metrics.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories whose disk has failed.",
        lambda: sum(directory.is_offline for directory in broker.log_manager.directories),
    )
    readings: tuple[tuple[str, str, Callable[[PartitionLog], int]], ...] = (
        ("size", "Bytes of a partition's log.", lambda log: log.size_bytes),
        ("numlogsegments", "Segments of a partition's log.", lambda log: len(log.segments)),
        ("logstartoffset", "First offset of a partition.", lambda log: log.log_start_offset),
        ("logendoffset", "Next offset of a partition.", lambda log: log.log_end_offset),
    )
    for name, help_text, read in readings:
        metrics.gauge(f"kafka_log_log_{name}", help_text, partial(_of_each_log, broker, read))


def _of_each_purgatory(
    purgatories: dict[str, Purgatory], count: Callable[[Purgatory], int]
) -> list[tuple[dict[str, str], float]]:
    return [({"delayedOperation": name}, count(each)) for name, each in purgatories.items()]


def _of_each_log(
    broker: Broker, read: Callable[[PartitionLog], int]
) -> Iterator[tuple[dict[str, str], float]]:
    manager = broker.log_manager
    # Logs may be added and removed while the metrics are read.
    for log in list(manager.logs()):
        at = log.topic_partition
        labels = {"topic": at.topic, "partition": str(at.partition)}
        if log is manager.log(at, is_future=True):
            # The copy of a partition that is being moved to another directory.
            labels["is_future"] = "true"
        try:
            reading = read(log)
        except KafkaError:
            continue  # Its files cannot be read: its disk is failing, or it has just been deleted.
        yield labels, reading


def _has_late_transaction(broker: Broker, partition: Partition) -> bool:
    try:
        log = partition.leader_log()
        return log.has_late_transaction(broker.config.transaction_max_timeout_ms)
    except KafkaError:
        # Not led here, or its directory has failed.
        return False
