"""The cluster as a whole: health, brokers, log directories, reassignments, and the last hour."""

from __future__ import annotations

from typing import Any, Final

from barnabas.console.api.call import Call, Console
from barnabas.console.sampling import Snapshot
from barnabas.errors import InvalidRequest
from barnabas.model import TopicPartition
from barnabas.views.health import PartitionHealth, partition_health
from barnabas.views.reassignment import moves_under_way
from barnabas.views.sizes import directory_sizes

PROBLEMS_MAX: Final = 100
REPLICAS_MAX: Final = 500
SERIES_MAX: Final = 20


def overview(console: Console, call: Call) -> Any:
    now = console.sampler.current()
    partitions = partition_health(now.topics.values())
    return {
        "time_ms": now.time_ms,
        "cluster_id": now.health.cluster_id,
        "controller_id": now.health.controller_id,
        "request_ms": round(now.request_ms, 2),
        "topics": len(now.topics),
        "partitions": len(partitions),
        "groups": len(now.groups),
        "bytes": sum(now.sizes.values()),
        "records_per_second": round(sum(now.rates.values()), 2),
        "offline": sum(each.is_unavailable for each in partitions),
        "under_replicated": sum(each.is_under_replicated for each in partitions),
        "problems": _problems(partitions),
        "brokers": _brokers(now, partitions),
        "gaps": [*now.gaps, *console.sampler.metrics.problems],
    }


def _problems(partitions: list[PartitionHealth]) -> list[dict[str, Any]]:
    bad = [each for each in partitions if each.is_unavailable or each.is_under_replicated]
    return [
        {
            "topic": each.topic,
            "partition": each.described.partition,
            "leader": each.described.leader,
            "replicas": list(each.described.replicas),
            "isr": list(each.described.isr),
        }
        for each in bad[:PROBLEMS_MAX]
    ]


def _brokers(now: Snapshot, partitions: list[PartitionHealth]) -> list[dict[str, Any]]:
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for each in partitions:
        if each.described.leader is not None:
            leaders[each.described.leader] = leaders.get(each.described.leader, 0) + 1
        for broker in each.described.replicas:
            replicas[broker] = replicas.get(broker, 0) + 1
    disks: dict[int, list[int]] = {}
    for directory in now.directories:
        used = disks.setdefault(directory.broker_id, [0, 0, 0])
        used[0] += directory.size_bytes
        used[1] += directory.described.total_bytes or 0
        used[2] += directory.described.usable_bytes or 0
    return [
        {
            "id": each.broker_id,
            "host": each.host,
            "port": each.port,
            "rack": each.rack,
            "is_controller": each.is_controller,
            "is_fenced": each.is_fenced,
            "leaders": leaders.get(each.broker_id, 0),
            "replicas": replicas.get(each.broker_id, 0),
            "bytes": disks.get(each.broker_id, [0, 0, 0])[0],
            "disk_total_bytes": disks.get(each.broker_id, [0, 0, 0])[1],
            "disk_usable_bytes": disks.get(each.broker_id, [0, 0, 0])[2],
        }
        for each in now.health.brokers
    ]


def history(console: Console, call: Call) -> Any:
    """Values of the last hour; the description of the route names them."""
    names = [each for each in call.text("series").split("\n") if each]
    return console.sampler.history.read(names[:SERIES_MAX])


def log_dirs(console: Console, call: Call) -> Any:
    return {
        "directories": [
            {
                "broker_id": each.broker_id,
                "path": each.described.path,
                "error": None if each.described.error is None else str(each.described.error),
                "bytes": each.size_bytes,
                "total_bytes": each.described.total_bytes,
                "usable_bytes": each.described.usable_bytes,
                "replica_count": each.replica_count,
                "largest": [
                    {
                        "topic": replica.partition.topic,
                        "partition": replica.partition.partition,
                        "bytes": replica.on_disk.size_bytes,
                        "offset_lag": replica.on_disk.offset_lag,
                        "is_future": replica.on_disk.is_future,
                    }
                    for replica in sorted(each.replicas, key=lambda found: -found.on_disk.size_bytes)[:20]
                ],
            }
            for each in directory_sizes(console.sampler.admin)
        ]
    }


def reassignments(console: Console, call: Call) -> Any:
    return {
        "moves": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "replicas": list(each.reassignment.replicas),
                "adding": list(each.reassignment.adding_replicas),
                "removing": list(each.reassignment.removing_replicas),
                "total_bytes": each.total_bytes,
                "done_bytes": each.done_bytes,
            }
            for each in moves_under_way(console.sampler.admin)[:REPLICAS_MAX]
        ]
    }


def reassign(console: Console, call: Call) -> Any:
    """Moves the replicas of a partition, or cancels a move if `replicas` is null."""
    topic = call.body_text("topic")
    assert topic is not None
    partition = TopicPartition(topic, call.body_integer("partition"))
    replicas = call.body.get("replicas")
    if replicas is not None and (
        not isinstance(replicas, list)
        or not 0 < len(replicas) <= REPLICAS_MAX
        or not all(type(each) is int and each >= 0 for each in replicas)
    ):
        raise InvalidRequest("replicas must be a list of broker ids, or null to cancel a move")
    console.sampler.admin.alter_reassignments({partition: replicas})
    console.sampler.refresh()
    return {**partition_name(partition), "replicas": replicas}


def partition_name(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}
