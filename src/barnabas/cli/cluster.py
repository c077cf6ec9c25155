"""`barnabas cluster`: the brokers of a cluster, and partitions with problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.migrate import migrate
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import Column, count_text, heading, note, show, show_json
from barnabas.cli.shared.target import Target, cluster_command

if TYPE_CHECKING:
    from barnabas.views.replicas import BrokerReplicas, ClusterReplicas, ReplicatedPartition

BROKERS: Final = (
    Column("id", "broker"),
    Column("host", "host"),
    Column("port", "port"),
    Column("rack", "rack", rank=2),
    Column("controller", "controller"),
    Column("fenced", "fenced", rank=4),
    Column("leaders", "leads"),
    Column("replicas", "replicas", rank=3),
    Column("out_of_sync", "not in sync"),
    Column("lag", "lag", rank=1),
)
PROBLEMS: Final = (
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("problems", "problems", ", ".join),
    Column("leader", "leader"),
    Column("replicas", "replicas", rank=2),
    Column("isr", "in sync"),
    Column("min_isr", "min ISR", rank=3),
    Column("lag", "lag", rank=1),
)
# `describe` shows so many partitions with problems.
PROBLEMS_SHOWN_MAX: Final = 20


@click.group(cls=ClusterGroup, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, hidden=True)
@click.pass_context
def cluster(context: click.Context, as_json: bool) -> None:
    """Show a cluster and its problems, or move it to ZooKeeper.

    Without a command, it is described.
    """
    if context.invoked_subcommand is None:
        context.invoke(describe, as_json=as_json)


@cluster.command()
@cluster_command
def describe(target: Target) -> None:
    """Show the cluster's id, its brokers and its controller, and partitions with problems.

    The lag of a broker is the number of records that its replica furthest behind lacks.
    """
    from barnabas.views.replicas import cluster_replicas

    with target.admin() as admin:
        found = cluster_replicas(admin)
    rows = [_broker_row(each) for each in found.brokers()]
    counts = _counts(found)
    if target.as_json:
        show_json(
            {
                "cluster_id": found.cluster.cluster_id,
                "controller_id": found.cluster.controller_id,
                "brokers": rows,
                "missing_brokers": found.missing_brokers,
                **counts,
            }
        )
        return
    click.echo(f"cluster {found.cluster.cluster_id}")
    # Fenced brokers exist in clusters without ZooKeeper only.
    has_fenced = any(row["fenced"] for row in rows)
    columns = [column for column in BROKERS if has_fenced or column.key != "fenced"]
    show(rows, columns, as_json=False, nothing="no brokers")
    heading(_summary(found, counts))
    wrong = [each for each in found.partitions if each.problems]
    if wrong:
        click.echo()
        show(map(_problem_row, wrong[:PROBLEMS_SHOWN_MAX]), PROBLEMS, as_json=False, nothing="no problems")


def _broker_row(each: BrokerReplicas) -> dict[str, Any]:
    broker = each.broker
    return {
        "id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "controller": broker.is_controller,
        "fenced": broker.is_fenced,
        "leaders": each.leader_count,
        "replicas": each.replica_count,
        "out_of_sync": each.out_of_sync_count,
        "lag": each.lag,
    }


def _counts(found: ClusterReplicas) -> dict[str, int]:
    health = [each.health for each in found.partitions]
    return {
        "topics": found.topic_count,
        "partitions": len(health),
        "offline": sum(each.is_unavailable for each in health),
        "under_replicated": sum(each.is_under_replicated for each in health),
        "under_min_isr": sum(each.is_under_min_isr for each in health),
        "at_min_isr": sum(each.is_at_min_isr for each in health),
    }


def _summary(found: ClusterReplicas, counts: dict[str, int]) -> str:
    text = f"{count_text(counts['topics'], 'topic')}, {count_text(counts['partitions'], 'partition')}: "
    words = {
        "offline": "offline",
        "under_min_isr": "under min ISR",
        "at_min_isr": "at min ISR",
        "under_replicated": "under-replicated",
    }
    wrong = [f"{counts[name]:,} {word}" for name, word in words.items() if counts[name]]
    text += ", ".join(wrong) or "all replicas are in sync"
    if sum(bool(each.problems) for each in found.partitions) > PROBLEMS_SHOWN_MAX:
        text += "; `barnabas cluster problems` lists all of them"
    if found.missing_brokers:
        missing = ", ".join(map(str, found.missing_brokers))
        text += f". Brokers that have replicas but are not alive: {missing}"
    return text


@cluster.command()
@click.option(
    "--lag", "least_lag", type=click.IntRange(min=1), metavar="N", help="Also replicas N records behind."
)
@cluster_command
def problems(target: Target, least_lag: int | None) -> None:
    """Show partitions that are offline, under-replicated, or at or under min ISR, with the lag of their replicas.

    A partition at min ISR refuses producers with acks=all when it loses one more replica; one under it does so now.
    """
    from barnabas.views.replicas import cluster_replicas

    with target.admin() as admin:
        found = cluster_replicas(admin)
    wrong = [
        each
        for each in found.partitions
        if each.problems or (least_lag is not None and (each.lag or 0) >= least_lag)
    ]
    show(map(_problem_row, wrong), PROBLEMS, as_json=target.as_json, nothing="no problems")
    if wrong and found.missing_brokers and not target.as_json:
        missing = ", ".join(map(str, found.missing_brokers))
        note(
            f"Brokers that have replicas but are not alive: {missing}. Start them, or move their replicas with"
            " `barnabas reassign plan --without`."
        )


def _problem_row(each: ReplicatedPartition) -> dict[str, Any]:
    described = each.health.described
    return {
        "topic": each.health.topic,
        "partition": described.partition,
        "problems": each.problems,
        "leader": described.leader,
        "replicas": list(described.replicas),
        "isr": list(described.isr),
        "min_isr": each.health.min_isr,
        "lag": each.lag,
        "lags": [{"broker": replica.broker_id, "lag": replica.lag} for replica in each.replicas],
    }


cluster.add_command(migrate)
