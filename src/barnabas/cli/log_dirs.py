"""`barnabas log-dirs`: the directories of brokers, and the replicas in them."""

from __future__ import annotations

from typing import Any, Final

import click

from barnabas.cli.shared.arguments import internal_option, partitions_of
from barnabas.cli.shared.exit_codes import NOT_FOUND
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import Column, bytes_text, fail, show, show_json
from barnabas.cli.shared.target import Target, cluster_command, complete_topics

DIRECTORIES: Final = (
    Column("broker", "broker"),
    Column("path", "directory"),
    Column("partitions", "partitions"),
    Column("size_bytes", "size", bytes_text),
    Column("usable_bytes", "free", bytes_text),
    Column("total_bytes", "disk", bytes_text, rank=1),
    Column("error", "error"),
)
REPLICAS: Final = (
    Column("broker", "broker"),
    Column("path", "directory"),
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("size_bytes", "size", bytes_text),
    Column("offset_lag", "lag", rank=2),
    Column("future", "moving", rank=1),
)


@click.group(name="log-dirs", cls=ClusterGroup)
def log_dirs() -> None:
    """Show log directories of brokers, and move replicas between them."""


@log_dirs.command()
@click.option(
    "--broker", "brokers", multiple=True, type=int, metavar="ID", help="Only this broker. May be repeated."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,...]",
    help="Only replicas of this topic. May be repeated.",
    shell_complete=complete_topics,
)
@click.option("--replicas", "each_replica", is_flag=True, help="List each replica.")
@internal_option
@cluster_command
def describe(
    target: Target, brokers: tuple[int, ...], topics: tuple[str, ...], each_replica: bool, internal: bool
) -> None:
    """Show the log directories of brokers: size, free space and replicas."""
    with target.admin() as admin:
        known = {node.id for node in admin.describe_cluster().nodes}
        for broker in brokers:
            if broker not in known:
                fail(
                    f"there is no broker {broker}; there are {', '.join(map(str, sorted(known)))}", NOT_FOUND
                )
        partitions = partitions_of(admin, topics) if topics else None
        found = admin.describe_log_dirs(brokers or None, partitions=partitions)
        hidden = {
            topic.name
            for topic in admin.list_topics(include_internal=True)
            if topic.is_internal and not internal and not topics
        }
    directories = []
    replicas: list[dict[str, Any]] = []
    for broker, by_path in sorted(found.items()):
        for path, directory in sorted(by_path.items()):
            held = [
                {
                    "broker": broker,
                    "path": path,
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "size_bytes": replica.size_bytes,
                    "offset_lag": replica.offset_lag,
                    "future": replica.is_future,
                }
                for partition, replica in sorted(directory.replicas.items())
                if partition.topic not in hidden
            ]
            replicas += held
            directories.append(
                {
                    "broker": broker,
                    "path": path,
                    "partitions": len(directory.replicas),
                    "size_bytes": sum(replica.size_bytes for replica in directory.replicas.values()),
                    "usable_bytes": directory.usable_bytes,
                    "total_bytes": directory.total_bytes,
                    "cordoned": directory.is_cordoned,
                    "error": None if directory.error is None else directory.error.name,
                    "replicas": held,
                }
            )
    if target.as_json:
        show_json(directories)
    elif topics or each_replica:
        show(replicas, REPLICAS, as_json=False, nothing="no replicas")
    else:
        columns = DIRECTORIES if any(row["error"] for row in directories) else DIRECTORIES[:-1]
        show(directories, columns, as_json=False, nothing="no directories")


@log_dirs.command()
@click.argument(
    "replicas", nargs=-1, required=True, metavar="TOPIC[:P,...]...", shell_complete=complete_topics
)
@click.option("--broker", type=int, required=True, metavar="ID", help="The broker whose replicas are moved.")
@click.option("--to", "path", required=True, metavar="DIRECTORY", help="Another of the broker's directories.")
@cluster_command
def move(target: Target, replicas: tuple[str, ...], broker: int, path: str) -> None:
    """Move replicas to another directory of their broker. `log-dirs describe --topic` shows the progress."""
    from barnabas.client.admin.results import TopicPartitionReplica

    with target.admin() as admin:
        partitions = partitions_of(admin, replicas)
        admin.alter_replica_log_dirs(
            {TopicPartitionReplica(each.topic, each.partition, broker): path for each in partitions}
        )
    if target.as_json:
        show_json([{"partition": str(each), "broker": broker, "to": path} for each in partitions])
    else:
        for each in partitions:
            click.echo(f"{each}: is being moved to {path} on broker {broker}")
