"""`barnabas log-dirs`: the directories of brokers, and the replicas in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.shared.arguments import internal_option, partitions_of, topics_option
from barnabas.cli.shared.exit_codes import NOT_FOUND
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import Column, bytes_text, fail, show, show_json
from barnabas.cli.shared.target import Target, cluster_command, complete_topics

if TYPE_CHECKING:
    from barnabas.views.sizes import ReplicaSize

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
@topics_option("Only replicas of this topic. May be repeated.")
@click.option("--replicas", "each_replica", is_flag=True, help="List each replica.")
@internal_option
@cluster_command
def describe(
    target: Target, brokers: tuple[int, ...], topics: tuple[str, ...], each_replica: bool, internal: bool
) -> None:
    """Show the log directories of brokers: size, free space and replicas."""
    from barnabas.views.sizes import directory_sizes

    with target.admin() as admin:
        known = {node.id for node in admin.describe_cluster().nodes}
        for broker in brokers:
            if broker not in known:
                fail(
                    f"there is no broker {broker}; there are {', '.join(map(str, sorted(known)))}", NOT_FOUND
                )
        partitions = partitions_of(admin, topics) if topics else None
        hidden = {
            topic.name
            for topic in admin.list_topics(include_internal=True)
            if topic.is_internal and not internal and not topics
        }
        found = directory_sizes(admin, brokers=brokers or None, partitions=partitions, hidden_topics=hidden)
    directories = [
        {
            "broker": each.broker_id,
            "path": each.described.path,
            "partitions": each.replica_count,
            "size_bytes": each.size_bytes,
            "usable_bytes": each.described.usable_bytes,
            "total_bytes": each.described.total_bytes,
            "cordoned": each.described.is_cordoned,
            "error": None if each.described.error is None else each.described.error.name,
            "replicas": [_replica_row(replica) for replica in each.replicas],
        }
        for each in found
    ]
    if target.as_json:
        show_json(directories)
    elif topics or each_replica:
        replicas = [_replica_row(replica) for each in found for replica in each.replicas]
        show(replicas, REPLICAS, as_json=False, nothing="no replicas")
    else:
        columns = DIRECTORIES if any(row["error"] for row in directories) else DIRECTORIES[:-1]
        show(directories, columns, as_json=False, nothing="no directories")


def _replica_row(replica: ReplicaSize) -> dict[str, Any]:
    return {
        "broker": replica.broker_id,
        "path": replica.path,
        "topic": replica.partition.topic,
        "partition": replica.partition.partition,
        "size_bytes": replica.on_disk.size_bytes,
        "offset_lag": replica.on_disk.offset_lag,
        "future": replica.on_disk.is_future,
    }


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
            click.echo(f"{each}: moving to {path} on broker {broker}")
