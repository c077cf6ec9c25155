"""`barnabas leaders`: leaders of partitions."""

from __future__ import annotations

from typing import Final

import click

from barnabas.cli.shared.arguments import confirm, internal_option, partitions_of, topics_option, yes_option
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import Column, fail, note, show, show_json
from barnabas.cli.shared.target import Target, cluster_command, complete_topics, described_topics

LISTED: Final = (
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("leader", "leader"),
    Column("preferred", "preferred"),
    Column("leader_epoch", "epoch", rank=2),
    Column("isr", "in sync", rank=1),
)


@click.group(cls=ClusterGroup)
def leaders() -> None:
    """Show and elect the leaders of partitions."""


@leaders.command(name="list")
@click.argument("names", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topics)
@click.option("--not-preferred", is_flag=True, help="Only partitions not led by their preferred leader.")
@internal_option
@cluster_command
def list_leaders(target: Target, names: tuple[str, ...], not_preferred: bool, internal: bool) -> None:
    """Show the leaders and preferred leaders of partitions. Without TOPIC, of all topics."""
    from barnabas.views.health import partition_health

    with target.admin() as admin:
        described = described_topics(admin, names) if names else admin.describe_topics()
    topics = [topic for topic in described.values() if names or internal or not topic.is_internal]
    rows = [
        {
            "topic": each.topic,
            "partition": each.described.partition,
            "leader": each.described.leader,
            "preferred": each.preferred_leader,
            "leader_epoch": each.described.leader_epoch,
            "isr": list(each.described.isr),
        }
        for each in partition_health(topics)
        if each.has_other_leader or not not_preferred
    ]
    show(rows, LISTED, as_json=target.as_json, nothing="no such partitions")


@leaders.command()
@topics_option()
@click.option("--all", "everything", is_flag=True, help="All partitions.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Elect a replica that was not in sync if no other is available. Records may be lost.",
)
@yes_option
@cluster_command
def elect(target: Target, topics: tuple[str, ...], everything: bool, unclean: bool, yes: bool) -> None:
    """Elect the preferred leaders of partitions."""
    from barnabas.client.admin.errors import AdminErrors
    from barnabas.client.admin.results import ElectionType
    from barnabas.errors import KafkaError

    if bool(topics) == everything:
        raise click.UsageError("Specify partitions: --topic TOPIC[:P,...], or --all.")
    errors: dict[object, KafkaError] = {}
    with target.admin() as admin:
        chosen = None if everything else partitions_of(admin, topics)
        if unclean:
            confirm("elect leaders that were not in sync, which may lose records", yes=yes)
        election = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        try:
            elected = admin.elect_leaders(chosen, election=election)
        except AdminErrors as failed:
            errors, elected = dict(failed.errors), dict(failed.results)
    if target.as_json:
        show_json([{"partition": str(each), "changed": changed} for each, changed in elected.items()])
    else:
        changed_partitions = [str(each) for each, changed in elected.items() if changed]
        for name in changed_partitions:
            click.echo(f"{name}: elected")
        if not changed_partitions and not errors:
            note("all partitions already have the right leader")
    if errors:
        fail("; ".join(f"{partition}: {error}" for partition, error in errors.items()))
