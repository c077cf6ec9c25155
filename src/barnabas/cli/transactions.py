"""`barnabas transactions`: transactions and the producers that write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.shared.arguments import confirm, partitions_of, yes_option
from barnabas.cli.shared.exit_codes import NOT_FOUND
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import Column, duration_text, fail, nearest, show, show_json, time_text
from barnabas.cli.shared.target import Target, cluster_command, complete_topics
from barnabas.cli.shared.times import parse_duration_ms

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.results import ProducerState
    from barnabas.model import TopicPartition

LISTED: Final = (
    Column("transactional_id", "transactional id"),
    Column("state", "state"),
    Column("producer_id", "producer id", rank=1),
    Column("coordinator", "coordinator", rank=2),
)
DESCRIBED: Final = (
    Column("transactional_id", "transactional id"),
    Column("state", "state"),
    Column("producer_id", "producer id", rank=1),
    Column("producer_epoch", "epoch", rank=2),
    Column("coordinator", "coordinator", rank=4),
    Column("timeout_ms", "timeout", duration_text, rank=3),
    Column("start_ms", "since", time_text),
    Column("partitions", "partitions"),
)
PRODUCERS: Final = (
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("producer_id", "producer id"),
    Column("producer_epoch", "epoch", rank=2),
    Column("last_sequence", "last sequence", rank=3),
    Column("last_timestamp_ms", "last record", time_text, rank=1),
    Column("transaction_start_offset", "open since"),
)
STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
)


@click.group(cls=ClusterGroup)
def transactions() -> None:
    """Show and end transactions, and their producers."""


@transactions.command(name="list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="Only transactions in this state. May be repeated.",
)
@click.option(
    "--running-longer-than",
    "longer",
    metavar="DURATION",
    help="Only transactions open for longer than 30s, 15m, 2h or 7d.",
)
@cluster_command
def list_transactions(target: Target, states: tuple[str, ...], longer: str | None) -> None:
    """List transactional ids and the states of their transactions."""
    longer_ms = None if longer is None else parse_duration_ms(longer, "--running-longer-than")
    with target.admin() as admin:
        listed = admin.list_transactions(states=states, running_longer_than_ms=longer_ms)
    rows = [
        {
            "transactional_id": each.transactional_id,
            "state": each.state,
            "producer_id": each.producer_id,
            "coordinator": each.coordinator,
        }
        for each in listed
    ]
    show(rows, LISTED, as_json=target.as_json, nothing="no transactions")


@transactions.command()
@click.argument("ids", nargs=-1, required=True, metavar="TRANSACTIONAL-ID...")
@cluster_command
def describe(target: Target, ids: tuple[str, ...]) -> None:
    """Show transactions: state, start, and the partitions they write to."""
    with target.admin() as admin:
        _check_ids(admin, ids)
        found = admin.describe_transactions(ids)
    rows = [
        {
            "transactional_id": each.transactional_id,
            "state": each.state,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "coordinator": each.coordinator,
            "timeout_ms": each.timeout_ms,
            "start_ms": each.start_ms,
            "partitions": [str(partition) for partition in each.partitions],
        }
        for each in found.values()
    ]
    show(rows, DESCRIBED, as_json=target.as_json, nothing="no transactions")


def _check_ids(admin: Admin, ids: tuple[str, ...]) -> None:
    known = {each.transactional_id for each in admin.list_transactions()}
    unknown = [each for each in ids if each not in known]
    if unknown:
        fail(
            "; ".join(f"there is no transactional id {each}{nearest(each, known)}" for each in unknown),
            NOT_FOUND,
        )


@transactions.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:P,...]...", shell_complete=complete_topics)
@click.option("--open", "only_open", is_flag=True, help="Only producers with an open transaction.")
@cluster_command
def producers(target: Target, topics: tuple[str, ...], only_open: bool) -> None:
    """Show the idempotent and transactional producers that recently wrote to partitions."""
    with target.admin() as admin:
        found = admin.describe_producers(partitions_of(admin, topics))
    rows = [
        _producer_row(partition, producer)
        for partition, states in sorted(found.items())
        for producer in states
        if not only_open or producer.transaction_start_offset is not None
    ]
    show(rows, PRODUCERS, as_json=target.as_json, nothing="no producers")


def _producer_row(partition: TopicPartition, producer: ProducerState) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp_ms": producer.last_timestamp_ms,
        "transaction_start_offset": producer.transaction_start_offset,
    }


@transactions.command()
@click.argument("topic", metavar="TOPIC", shell_complete=complete_topics)
@click.argument("partition", type=click.IntRange(min=0))
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    required=True,
    metavar="N",
    help="Where the transaction begins, as `transactions producers --open` shows it.",
)
@yes_option
@cluster_command
def abort(target: Target, topic: str, partition: int, start_offset: int, yes: bool) -> None:
    """Abort a transaction that hangs on a partition because its coordinator has forgotten it.

    `transactions fence` ends a transaction that its coordinator still knows.
    """
    with target.admin() as admin:
        chosen = partitions_of(admin, [f"{topic}:{partition}"])[0]
        confirm(f"abort the transaction on {chosen} that begins at offset {start_offset}", yes=yes)
        producer = admin.abort_hanging_transaction(chosen, start_offset)
    if target.as_json:
        show_json(_producer_row(chosen, producer))
    else:
        click.echo(f"{chosen}: the transaction of producer {producer.producer_id} is aborted")


@transactions.command()
@click.argument("ids", nargs=-1, required=True, metavar="TRANSACTIONAL-ID...")
@yes_option
@cluster_command
def fence(target: Target, ids: tuple[str, ...], yes: bool) -> None:
    """Fence the producers that use these ids now, and abort their open transactions."""
    with target.admin() as admin:
        _check_ids(admin, ids)
        confirm(f"fence the producers of {', '.join(ids)}", yes=yes)
        fenced = admin.fence_producers(ids)
    if target.as_json:
        show_json(
            [
                {
                    "transactional_id": each,
                    "producer_id": now.producer_id,
                    "producer_epoch": now.producer_epoch,
                }
                for each, now in fenced.items()
            ]
        )
    else:
        for each in fenced:
            click.echo(f"{each}: its producers are fenced")
