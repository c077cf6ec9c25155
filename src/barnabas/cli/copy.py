"""`barnabas copy`: copies records to another topic, on the same cluster or on another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.consume import open_consumer
from barnabas.cli.produce import Sending, open_producer
from barnabas.cli.shared.client_settings import parse_client_settings
from barnabas.cli.shared.exit_codes import NOT_FOUND
from barnabas.cli.shared.formats import Outgoing
from barnabas.cli.shared.group import given_options
from barnabas.cli.shared.output import count_text, fail, nearest, note, show_json
from barnabas.cli.shared.profiles import complete_profiles
from barnabas.cli.shared.progress import progress_bar
from barnabas.cli.shared.ranges import WHERE_HELP, Range, parse_where
from barnabas.cli.shared.record_options import (
    compression_option,
    follow_option,
    isolation_option,
    settings_option,
    until_option,
)
from barnabas.cli.shared.target import Target, cluster_command, complete_topics, described_topic, target_of

if TYPE_CHECKING:
    from barnabas.client.admin.results import TopicDescription
    from barnabas.client.consumer.record import ConsumerRecord

RECORDS_A_POLL: Final = 2_000


@click.command(
    epilog="""\b
Examples:
  barnabas copy orders orders-copy --create
  barnabas copy orders --to-bootstrap other:9092 --create --exact
  barnabas copy orders recent --from 2h --follow"""
)
@click.argument("source", shell_complete=complete_topics)
@click.argument("destination", required=False, metavar="[DESTINATION]")
@click.option(
    "--to-bootstrap", metavar="HOST[:PORT]", help="The cluster to copy to.  [default: the same cluster]"
)
@click.option(
    "--to-profile",
    metavar="NAME",
    help="The cluster to copy to, by its profile.",
    shell_complete=complete_profiles,
)
@click.option(
    "--from",
    "start",
    default="beginning",
    show_default=True,
    metavar="WHERE",
    help=f"Where to start: {WHERE_HELP}.",
)
@until_option
@follow_option
@click.option(
    "--create",
    is_flag=True,
    help="Create the destination if it does not exist, with SOURCE's number of partitions.",
)
@click.option(
    "--keep-partitions", is_flag=True, help="Keep each record's partition. Without it, keys decide."
)
@click.option("--keep-timestamps", is_flag=True, help="Keep timestamps. Without it, the time of the copy.")
@click.option("--keep-headers", is_flag=True, help="Keep headers. Without it, they are dropped.")
@click.option("--exact", is_flag=True, help="Keep partitions, timestamps and headers.")
@compression_option
@isolation_option("read_committed")
@settings_option("producer")
@cluster_command
def copy(
    target: Target,
    source: str,
    destination: str | None,
    to_bootstrap: str | None,
    to_profile: str | None,
    start: str,
    until: str | None,
    follow: bool,
    create: bool,
    keep_partitions: bool,
    keep_timestamps: bool,
    keep_headers: bool,
    exact: bool,
    compression: str,
    isolation: str,
    settings: tuple[str, ...],
) -> None:
    """Copy the keys and values of topic SOURCE to topic DESTINATION, which may be on another cluster.

    On another cluster, DESTINATION is SOURCE's name by default. A record may be copied twice if the command is
    interrupted and run again.
    """
    if destination is None:
        if to_bootstrap is None and to_profile is None:
            raise click.UsageError(
                "Name a DESTINATION, or another cluster with --to-bootstrap or --to-profile."
            )
        destination = source
    if follow and until is not None:
        raise click.UsageError("--follow and --until do not go together.")
    begin = parse_where(start, "--from")
    end = None if follow else parse_where(until or "end", "--until")
    there = target
    if to_bootstrap is not None or to_profile is not None:
        given = {
            **given_options(click.get_current_context()),
            "bootstrap": to_bootstrap,
            "profile": to_profile,
        }
        there = target_of(given, environment={})
    partitions = keep_partitions or exact
    described, cluster_id = _look_at(target, source)
    _prepare(there, destination, described, cluster_id, create=create, keep_partitions=partitions)
    make = _Maker(partitions, keep_timestamps or exact, keep_headers or exact)

    chosen = {"compression.type": compression, **parse_client_settings("producer", settings)}
    reading = {"isolation.level": isolation, "max.poll.records": RECORDS_A_POLL}
    with (
        target.unreachable_is_told(),
        there.unreachable_is_told(),
        open_consumer(target, reading) as consumer,
        open_producer(there, chosen) as producer,
    ):
        wanted = Range(consumer, _partitions(described), begin, end)
        sending = Sending(producer, destination, as_json=False)
        with progress_bar("copying", wanted.total, unit="records") as advance:
            for records in wanted.polls():
                sending.send([make(record) for record in records])
                advance(len(records))
        sending.finish()
    if target.as_json:
        show_json({"source": source, "destination": destination, "records": sending.count})
    else:
        note(f"{count_text(sending.count, 'record')} copied from {source} to {destination}")


class _Maker:
    """Converts a consumed record to the record to send."""

    def __init__(self, partitions: bool, timestamps: bool, headers: bool) -> None:
        self._partitions = partitions
        self._timestamps = timestamps
        self._headers = headers

    def __call__(self, record: ConsumerRecord) -> Outgoing:
        made = Outgoing(value=record.value, key=record.key)
        if self._partitions:
            made["partition"] = record.partition
        if self._timestamps and record.timestamp_ms >= 0:
            made["timestamp_ms"] = record.timestamp_ms
        if self._headers and record.headers:
            made["headers"] = list(record.headers)
        return made


def _partitions(described: TopicDescription) -> list[Any]:
    from barnabas.model import TopicPartition

    return [TopicPartition(described.name, each.partition) for each in described.partitions]


def _look_at(target: Target, source: str) -> tuple[TopicDescription, str | None]:
    with target.admin() as admin:
        return described_topic(admin, source), admin.describe_cluster().cluster_id


def _prepare(
    there: Target,
    destination: str,
    source: TopicDescription,
    source_cluster: str | None,
    *,
    create: bool,
    keep_partitions: bool,
) -> None:
    """Ensures that the destination exists, is another topic and has enough partitions."""
    from barnabas.errors import UnknownTopicOrPartition

    with there.admin() as admin:
        is_same = admin.describe_cluster().cluster_id == source_cluster
        if is_same and destination == source.name:
            fail(f"{destination} is the source itself; name another topic or another cluster")
        try:
            found = admin.describe_topics([destination])[destination]
        except UnknownTopicOrPartition:
            if not create:
                known = [topic.name for topic in admin.list_topics()]
                fail(
                    f"there is no topic {destination} to copy to{nearest(destination, known)}. Use --create to"
                    f" create it with {count_text(len(source.partitions), 'partition')}, as {source.name} has",
                    NOT_FOUND,
                )
            admin.create_topics({destination: len(source.partitions)})
            return
    if keep_partitions and len(found.partitions) < len(source.partitions):
        fail(
            f"{destination} has {count_text(len(found.partitions), 'partition')}, and {source.name}"
            f" {len(source.partitions)}: add partitions (barnabas topics alter {destination} -p"
            f" {len(source.partitions)}), or leave out --keep-partitions"
        )
