"""`barnabas topics`: topics and their partitions."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.delete_records import delete_records
from barnabas.cli.shared.arguments import (
    check_setting_names,
    confirm,
    internal_option,
    parse_pairs,
    yes_option,
)
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import (
    Column,
    bytes_text,
    count_text,
    fail,
    heading,
    nearest,
    note,
    show,
    show_json,
)
from barnabas.cli.shared.target import Target, cluster_command, complete_topics, described_topics

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.model import TopicPartition
    from barnabas.views.health import PartitionHealth

LISTED: Final = (
    Column("topic", "topic"),
    Column("partitions", "partitions"),
    Column("replication_factor", "replicas"),
    Column("size_bytes", "size", bytes_text),
    Column("internal", "internal"),
)
# The user asked for names: the command does not wait long for a broker that does not report its sizes.
SIZES_TIMEOUT_MS: Final = 5_000
PARTITIONS: Final = (
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("leader", "leader"),
    Column("leader_epoch", "epoch", rank=4),
    Column("replicas", "replicas", rank=3),
    Column("isr", "in sync", rank=2),
    Column("first_offset", "first", rank=1),
    Column("end_offset", "end"),
)


def topic_names(*, required: bool) -> Callable[..., Any]:
    metavar = "TOPIC..." if required else "[TOPIC]..."
    return click.argument(
        "names", nargs=-1, metavar=metavar, required=required, shell_complete=complete_topics
    )


@click.group(cls=ClusterGroup)
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command(
    epilog="""\b
Examples:
  barnabas topics create orders --partitions 12
  barnabas topics create users --config cleanup.policy=compact --if-not-exists"""
)
@topic_names(required=True)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of partitions.  [default: the broker's]",
)
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of replicas.  [default: the broker's]",
)
@click.option(
    "-c", "--config", "configs", multiple=True, metavar="NAME=VALUE", help="A topic setting. May be repeated."
)
@click.option("--if-not-exists", is_flag=True, help="Ignore topics that already exist.")
@click.option("--dry-run", is_flag=True, help="Only check the request on the broker.")
@cluster_command
def create(
    target: Target,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create topics."""
    from barnabas.client.admin.errors import AdminErrors
    from barnabas.client.admin.results import BROKER_DEFAULT
    from barnabas.errors import InvalidConfig, KafkaError, TopicAlreadyExists

    errors: dict[str, KafkaError] = {}
    settings = dict(parse_pairs(configs))
    with target.admin() as admin:
        try:
            created = admin.create_topics(
                names,
                partitions=partitions or BROKER_DEFAULT,
                replication_factor=replication_factor or BROKER_DEFAULT,
                configs=settings,
                validate_only=dry_run,
            )
        except AdminErrors as failed:
            errors, created = dict(failed.errors), dict(failed.results)
        except (TopicAlreadyExists, InvalidConfig) as error:
            errors, created = {names[0]: error}, {}
    if if_not_exists:
        errors = {name: error for name, error in errors.items() if not isinstance(error, TopicAlreadyExists)}
    rows = [
        {
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
        }
        for topic in created.values()
    ]
    if target.as_json:
        show_json(rows)
    for row in rows if not target.as_json else ():
        what = "could be created" if dry_run else "created"
        details = ""
        if row["partitions"] is not None:
            details = f" with {count_text(row['partitions'], 'partition')}"  # type: ignore[arg-type]
            details += f" of {count_text(row['replication_factor'], 'replica')}"  # type: ignore[arg-type]
        click.echo(f"{row['topic']}: {what}{details}")
    if errors:
        # Some messages of brokers already name the topic.
        told = [str(error) if name in str(error) else f"{name}: {error}" for name, error in errors.items()]
        is_invalid = any(isinstance(error, InvalidConfig) for error in errors.values())
        fail("; ".join(told) + (_hints(settings) if is_invalid else ""))


def _hints(names: Iterable[str]) -> str:
    """Suggestions for unknown topic settings."""
    from barnabas.config.log_config import TOPIC_SETTINGS

    return "".join(nearest(name, TOPIC_SETTINGS) for name in names if name not in TOPIC_SETTINGS)


@topics.command(name="list")
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@internal_option
@cluster_command
def list_topics(target: Target, patterns: tuple[str, ...], internal: bool) -> None:
    """List topics with their sizes on disk, or those that match a pattern such as 'order*'."""
    with target.admin() as admin:
        described = admin.describe_topics()
        sizes = _sizes(admin, min(target.timeout_ms, SIZES_TIMEOUT_MS))
    rows = [
        {
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(each.replicas) for each in topic.partitions), default=0),
            "size_bytes": None if sizes is None else sizes.get(topic.name, 0),
            "internal": topic.is_internal,
        }
        for topic in described.values()
        # A pattern that equals the name of an internal topic selects it.
        if (internal or not topic.is_internal or topic.name in patterns)
        and (not patterns or any(fnmatch.fnmatchcase(topic.name, pattern) for pattern in patterns))
    ]
    columns = LISTED if any(row["internal"] for row in rows) else LISTED[:-1]
    show(rows, columns, as_json=target.as_json, nothing="no topics")


def _sizes(admin: Admin, timeout_ms: int) -> dict[str, int] | None:
    """The bytes of each topic on disk; None if a broker does not answer."""
    from barnabas.errors import KafkaError
    from barnabas.views.sizes import topic_sizes

    try:
        return topic_sizes(admin, timeout_ms=timeout_ms)
    except (KafkaError, ExceptionGroup) as error:
        note(f"unknown sizes: {error}")
        return None


@topics.command()
@topic_names(required=False)
@click.option("--under-replicated", is_flag=True, help="Only partitions with a replica that is not in sync.")
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@internal_option
@cluster_command
def describe(
    target: Target, names: tuple[str, ...], under_replicated: bool, unavailable: bool, internal: bool
) -> None:
    """Show the partitions of topics: leaders, replicas and offsets. Without TOPIC, of all topics."""
    from barnabas.views.health import partition_health

    with target.admin() as admin:
        if names:
            described = described_topics(admin, names)
        else:
            everything = admin.describe_topics()
            described = {
                name: topic for name, topic in everything.items() if internal or not topic.is_internal
            }
        health = partition_health(described.values())
        first, end = _available_ranges(admin, health)
        changed = _changed_configs(admin, list(described)) if names else {}
    partitions = [
        {
            "topic": each.topic,
            "partition": each.described.partition,
            "leader": each.described.leader,
            "leader_epoch": each.described.leader_epoch,
            "replicas": list(each.described.replicas),
            "isr": list(each.described.isr),
            "offline_replicas": list(each.described.offline_replicas),
            "first_offset": first.get(each.topic_partition),
            "end_offset": end.get(each.topic_partition),
        }
        for each in health
        if (each.is_under_replicated or not under_replicated) and (each.is_unavailable or not unavailable)
    ]
    if target.as_json:
        show_json(
            [
                {
                    "topic": topic.name,
                    "topic_id": topic.topic_id,
                    "internal": topic.is_internal,
                    "configs": changed.get(topic.name, {}),
                    "partitions": [row for row in partitions if row["topic"] == topic.name],
                }
                for topic in described.values()
            ]
        )
        return
    if not names:
        show(partitions, PARTITIONS, as_json=False, nothing="no such partitions")
    for number, topic in enumerate(described.values() if names else ()):
        if number:
            click.echo()
        settings = ", ".join(f"{name}={value}" for name, value in changed.get(topic.name, {}).items())
        heading(f"{topic.name}: id {topic.topic_id or '-'}, settings: {settings or 'none'}")
        rows = [row for row in partitions if row["topic"] == topic.name]
        show(rows, PARTITIONS[1:], as_json=False, nothing="no such partitions")


def _available_ranges(
    admin: Admin, partitions: Sequence[PartitionHealth]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The first and the end offsets of the partitions that have a leader."""
    from barnabas.client.admin.results import OffsetSpec
    from barnabas.views.offsets import available_offsets

    led = [each.topic_partition for each in partitions if not each.is_unavailable]
    return (
        available_offsets(admin, dict.fromkeys(led, int(OffsetSpec.EARLIEST))),
        available_offsets(admin, dict.fromkeys(led, int(OffsetSpec.LATEST))),
    )


def _changed_configs(admin: Admin, names: Sequence[str]) -> dict[str, dict[str, str | None]]:
    from barnabas.client.admin.results import ConfigResource, ConfigSource, ResourceType

    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    return {
        resource.name: {
            entry.name: entry.value
            for entry in entries.values()
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        }
        for resource, entries in admin.describe_configs(resources).items()
    }


@topics.command()
@click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="The new number of partitions. It can only grow.",
)
@click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a setting. May be repeated.",
)
@click.option(
    "-d",
    "--delete-config",
    "deleted",
    multiple=True,
    metavar="NAME",
    help="Reset a setting to the broker's default. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only check the change on the broker.")
@cluster_command
def alter(
    target: Target,
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Add partitions to a topic, or change its settings.

    After partitions are added, a key may map to another partition.
    """
    from barnabas.client.admin.results import ConfigResource, ResourceType

    changes: dict[str, str | None] = {**dict(parse_pairs(configs)), **dict.fromkeys(deleted)}
    if partitions is None and not changes:
        raise click.UsageError("Specify a change: --partitions, --config or --delete-config.")
    with target.admin() as admin:
        described_topics(admin, [name])
        if changes:
            resource = ConfigResource(ResourceType.TOPIC, name)
            check_setting_names(admin, resource, list(changes))
            admin.alter_configs({resource: changes}, validate_only=dry_run)
        if partitions is not None:
            admin.create_partitions({name: partitions}, validate_only=dry_run)
    _tell(target, {"topic": name, "partitions": partitions, "configs": changes}, "changed", dry_run)


def _tell(target: Target, row: dict[str, Any], what: str, dry_run: bool) -> None:
    if target.as_json:
        show_json({**row, "dry_run": dry_run})
    else:
        click.echo(f"{row['topic']}: {f'could be {what}' if dry_run else what}")


@topics.command()
@topic_names(required=True)
@click.option("--if-exists", is_flag=True, help="Ignore topics that do not exist.")
@yes_option
@cluster_command
def delete(target: Target, names: tuple[str, ...], if_exists: bool, yes: bool) -> None:
    """Delete topics with all their records."""
    with target.admin() as admin:
        if if_exists:
            known = {topic.name for topic in admin.list_topics(include_internal=True)}
            names = tuple(name for name in names if name in known)
        else:
            described_topics(admin, names)
        if names:
            confirm(
                f"delete {count_text(len(names), 'topic')} with all records ({', '.join(names)})", yes=yes
            )
            admin.delete_topics(names)
    if target.as_json:
        show_json([{"topic": name} for name in names])
        return
    for name in names:
        click.echo(f"{name}: deleted")
    if not names:
        note("no such topics, nothing deleted")


topics.add_command(delete_records)
