"""What a running broker tells of itself, under the names that Kafka's metrics have in Prometheus."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas.broker import topic_figures
from barnabas.broker.broker import Broker
from barnabas.broker.coordinator_figures import register_coordinators
from barnabas.broker.group_figures import register_group_figures
from barnabas.broker.partition import Partition
from barnabas.errors import KafkaError
from barnabas.log.partition_log import PartitionLog
from barnabas.metrics.instruments import Histogram
from barnabas.metrics.registry import Registry
from barnabas.net.listener import Connections

LAG_INTERVAL_S: Final = 1.0


class FlushTimes:
    """How long flushes of logs take and, by their count, how often there are any. Logs are flushed in any thread."""

    def __init__(self, metrics: Registry) -> None:
        self._lock = threading.Lock()
        self._times_s = metrics.histogram(
            "kafka_log_logflushstats_logflushtime_seconds", "Time that a flush of a partition's log takes."
        ).labels()

    def observe(self, duration_ns: int) -> None:
        with self._lock:
            self._times_s.observe(duration_ns / 1e9)


def register_figures(broker: Broker, connections: Connections, loop: asyncio.AbstractEventLoop) -> None:
    metrics = broker.metrics
    replicas = broker.replicas
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
    metrics.gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests that wait for something to happen, by what they wait for.",
        lambda: [
            ({"delayedOperation": name}, purgatory.watched)
            for name, purgatory in (
                ("Produce", replicas.waiting_produces),
                ("Fetch", replicas.waiting_fetches),
                ("DeleteRecords", replicas.waiting_deletions),
            )
        ],
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
    metrics.gauge(
        "kafka_server_replicamanager_partitioncount", "Partitions on this broker.", lambda: len(replicas)
    )
    metrics.gauge(
        "kafka_server_replicamanager_leadercount",
        "Partitions that this broker leads.",
        lambda: sum(partition.is_leader for partition in replicas),
    )
    metrics.gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Partitions whose log cannot be used.",
        lambda: sum(partition.log is None for partition in replicas),
    )
    metrics.gauge(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "Partitions with a transaction that should long have been ended.",
        lambda: sum(_has_late_transaction(broker, partition) for partition in replicas),
    )
    metrics.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories whose disk has failed.",
        lambda: sum(directory.is_offline for directory in broker.log_manager.directories),
    )
    register_coordinators(broker)
    readings: tuple[tuple[str, str, Callable[[PartitionLog], int]], ...] = (
        ("size", "Bytes of a partition's log.", lambda log: log.size_bytes),
        ("numlogsegments", "Segments of a partition's log.", lambda log: len(log.segments)),
        ("logstartoffset", "First offset of a partition.", lambda log: log.log_start_offset),
        ("logendoffset", "Next offset of a partition.", lambda log: log.log_end_offset),
    )
    for name, help_text, read in readings:
        metrics.gauge(f"kafka_log_log_{name}", help_text, partial(_of_each_log, broker, read))
    for name, help_text in topic_figures.FIGURES.items():
        metrics.total(
            f"kafka_server_brokertopicmetrics_{name.replace('_', '')}_total",
            help_text,
            partial(replicas.topic_figures.readings, name),
        )
    register_group_figures(metrics, broker.groups)
    lag = metrics.histogram(
        "barnabas_eventloop_lag_seconds", "How late the event loop was for a timer."
    ).labels()
    _measure_lag(loop, lag)


def _of_each_log(broker: Broker, read: Callable[[PartitionLog], int]) -> list[tuple[dict[str, str], float]]:
    manager = broker.log_manager
    readings: list[tuple[dict[str, str], float]] = []
    for log in manager.logs():
        at = log.topic_partition
        labels = {"topic": at.topic, "partition": str(at.partition)}
        if log is manager.log(at, is_future=True):
            # A copy in another directory, which a partition has while it is moved.
            labels["is_future"] = "true"
        try:
            readings.append((labels, read(log)))
        except KafkaError:
            continue  # Its files cannot be looked at: its disk is failing, or it has just been deleted.
    return readings


def _measure_lag(loop: asyncio.AbstractEventLoop, lag: Histogram) -> None:
    due_s = loop.time() + LAG_INTERVAL_S

    def measure() -> None:
        lag.observe(max(loop.time() - due_s, 0.0))
        _measure_lag(loop, lag)

    loop.call_at(due_s, measure)


def _has_late_transaction(broker: Broker, partition: Partition) -> bool:
    try:
        log = partition.leader_log()
        return log.has_late_transaction(broker.config.transaction_max_timeout_ms)
    except KafkaError:
        # Not led here, or its directory has failed.
        return False
