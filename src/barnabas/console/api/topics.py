"""Topics: a page of the list, one topic, its settings, and changes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from barnabas.client.admin.results import (
    BROKER_DEFAULT,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
    TopicDescription,
)
from barnabas.console.api.call import Call, Console, choice
from barnabas.console.api.shown import wait_until_shown
from barnabas.console.retention import NO_RETENTION
from barnabas.console.sampling import Snapshot
from barnabas.errors import InvalidRequest, UnknownTopicOrPartition
from barnabas.model import TopicPartition
from barnabas.views.lag import lag_of
from barnabas.views.offsets import log_ranges

PAGE_ROWS: Final = 50
PAGE_ROWS_MAX: Final = 200
PARTITIONS_SHOWN_MAX: Final = 2_000


class Sort(StrEnum):
    NAME = "name"
    PARTITIONS = "partitions"
    RECORDS = "records"
    BYTES = "bytes"
    RATE = "rate"
    LAG = "lag"


class ConfigKind(StrEnum):
    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


def list_topics(console: Console, call: Call) -> Any:
    now = console.sampler.current()
    wanted = call.text("search").lower()
    sort = call.choice("sort", Sort.NAME)
    is_descending = call.flag("descending")
    found = [
        topic
        for topic in now.topics.values()
        if wanted in topic.name.lower() and (call.flag("internal") or not topic.is_internal)
    ]
    lags = now.lag_of_topics()
    rows = [_row(now, topic, lags) for topic in found] if sort is not Sort.NAME else None
    size = call.integer("size", PAGE_ROWS, 1, PAGE_ROWS_MAX)
    start = call.integer("page", 0, 0, 1_000_000) * size
    if rows is None:
        found.sort(key=lambda topic: topic.name, reverse=is_descending)
        page = [_row(now, topic, lags) for topic in found[start : start + size]]
    else:
        rows.sort(key=lambda row: (row[sort.value] or 0, row["name"]), reverse=is_descending)
        page = rows[start : start + size]
    kept = console.sampler.retention_of([row["name"] for row in page])
    rows = [{**row, **kept.get(row["name"], NO_RETENTION)} for row in page]
    return {"total": len(found), "topics": rows, "time_ms": now.time_ms}


def _row(now: Snapshot, topic: TopicDescription, lags: dict[str, int]) -> dict[str, Any]:
    return {
        "name": topic.name,
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(each.replicas) for each in topic.partitions), default=0),
        "records": now.records_of(topic),
        "bytes": now.sizes.get(topic.name, 0),
        "rate": round(now.rates.get(topic.name, 0.0), 2),
        "lag": lags.get(topic.name),
        "is_healthy": all(
            each.leader is not None and len(each.isr) == len(each.replicas) for each in topic.partitions
        ),
    }


def show_topic(console: Console, call: Call) -> Any:
    name = call.path["topic"]
    admin = console.sampler.admin
    topic = admin.describe_topics([name])[name]
    partitions = [
        TopicPartition(name, each.partition) for each in topic.partitions if each.leader is not None
    ]
    ranges = log_ranges(admin, partitions)
    now = console.sampler.current()
    sizes: dict[int, int] = {}
    for directory in now.directories:
        for replica in directory.replicas:
            if replica.partition.topic == name:
                number = replica.partition.partition
                sizes[number] = max(sizes.get(number, 0), replica.on_disk.size_bytes)
    rows = []
    for each in topic.partitions[:PARTITIONS_SHOWN_MAX]:
        found = ranges.get(TopicPartition(name, each.partition))
        rows.append(
            {
                "partition": each.partition,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "offline": list(each.offline_replicas),
                "first_offset": None if found is None else found.first_offset,
                "end_offset": None if found is None else found.end_offset,
                "bytes": sizes.get(each.partition),
            }
        )
    return {
        "name": name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "partitions": rows,
        "rate": round(now.rates.get(name, 0.0), 2),
        "groups": _groups(now, name),
    }


def _groups(now: Snapshot, topic: str) -> list[dict[str, Any]]:
    """The sampled groups that have committed offsets of the topic."""
    states = {each.group_id: each.state for each in now.groups}
    rows = []
    for group_id, committed in sorted(now.committed.items()):
        lags = [
            lag_of(each.offset, now.end_offsets.get(partition))
            for partition, each in committed.items()
            if partition.topic == topic
        ]
        if lags:
            rows.append(
                {
                    "group_id": group_id,
                    "state": states.get(group_id),
                    "lag": sum(lag for lag in lags if lag is not None),
                    "partitions": len(lags),
                }
            )
    return rows


def create_topic(console: Console, call: Call) -> Any:
    name = call.body_text("name")
    assert name is not None
    configs = call.body.get("configs") or {}
    if not isinstance(configs, dict) or not all(isinstance(each, str) for each in configs.values()):
        raise InvalidRequest("configs must be an object of texts, such as {'retention.ms': '60000'}")
    created = console.sampler.admin.create_topics(
        [
            NewTopic(
                name=name,
                partitions=call.body_integer("partitions", BROKER_DEFAULT),
                replication_factor=call.body_integer("replication_factor", BROKER_DEFAULT),
                configs=configs,
            )
        ]
    )[name]
    wait_until_shown(lambda: _partition_count(console, name) > 0)
    console.sampler.refresh()
    return {
        "name": name,
        "topic_id": created.topic_id,
        "partitions": created.partitions,
        "replication_factor": created.replication_factor,
    }


def delete_topic(console: Console, call: Call) -> Any:
    name = call.path["topic"]
    if call.body.get("confirm") != name:
        raise InvalidRequest(f"to delete the topic, repeat its name: confirm must be {name!r}")
    console.sampler.admin.delete_topics([name])
    wait_until_shown(lambda: _partition_count(console, name) == 0)
    console.sampler.refresh()
    return {"deleted": name}


def add_partitions(console: Console, call: Call) -> Any:
    name = call.path["topic"]
    count = call.body_integer("count")
    console.sampler.admin.create_partitions({name: count})
    wait_until_shown(lambda: _partition_count(console, name) >= count)
    console.sampler.refresh()
    return {"name": name, "partitions": count}


def _partition_count(console: Console, topic: str) -> int:
    """The partitions that a topic has, none if it does not exist."""
    try:
        return len(console.sampler.admin.describe_topics([topic])[topic].partitions)
    except UnknownTopicOrPartition:
        return 0


def _resource(call: Call) -> ConfigResource:
    kind = choice("kind", call.path["kind"], ConfigKind)
    return ConfigResource(ResourceType[kind.name], call.path["name"])


def show_configs(console: Console, call: Call) -> Any:
    resource = _resource(call)
    found = console.sampler.admin.describe_configs(
        [resource], include_synonyms=True, include_documentation=True
    )
    return {"configs": [_config(each) for _, each in sorted(found[resource].items())]}


def _config(entry: ConfigEntry) -> dict[str, Any]:
    default = None
    for each in entry.synonyms:
        if each.source is ConfigSource.DEFAULT_CONFIG and each.value is not None:
            # A default may be another setting in another unit, such as log.retention.hours.
            default = each.value if each.name.endswith(entry.name) else f"{each.name}={each.value}"
    return {
        "name": entry.name,
        "value": entry.value,
        "default": default,
        "source": entry.source.name,
        "is_default": entry.is_default,
        "is_read_only": entry.is_read_only,
        "is_sensitive": entry.is_sensitive,
        "type": entry.type.name,
        "documentation": entry.documentation,
    }


def change_configs(console: Console, call: Call) -> Any:
    """Sets settings, or resets those that are null to their defaults."""
    resource = _resource(call)
    changes = call.body.get("configs")
    if not isinstance(changes, dict) or not changes:
        raise InvalidRequest("the body needs configs: an object of names and values, null to reset")
    for name, value in changes.items():
        if value is not None and not isinstance(value, str):
            raise InvalidRequest(f"the value of {name} must be a text, or null")
    if resource.type is ResourceType.TOPIC:
        # Brokers accept settings of topics that do not exist.
        console.sampler.admin.describe_topics([resource.name])
    console.sampler.admin.alter_configs({resource: changes})
    console.sampler.forget_retention(resource.name)
    wait_until_shown(
        lambda: _are_shown(console.sampler.admin.describe_configs([resource])[resource], changes)
    )
    return {"changed": sorted(changes)}


def _are_shown(entries: Mapping[str, ConfigEntry], changes: Mapping[str, str | None]) -> bool:
    return all(_is_shown(entries.get(name), value) for name, value in changes.items())


def _is_shown(entry: ConfigEntry | None, value: str | None) -> bool:
    if entry is None or entry.is_sensitive:
        return True
    own = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG)
    return entry.source not in own if value is None else entry.value == value
