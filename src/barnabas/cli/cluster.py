"""`barnabas cluster`: the brokers of a cluster, and its features."""

from __future__ import annotations

from typing import Final

import click

from barnabas.cli.migrate import migrate
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import Column, show, show_json
from barnabas.cli.shared.target import Target, cluster_command

BROKERS: Final = (
    Column("id", "broker"),
    Column("host", "host"),
    Column("port", "port"),
    Column("rack", "rack", rank=1),
    Column("controller", "controller"),
    Column("fenced", "fenced", rank=2),
)
FEATURES: Final = (
    Column("feature", "feature"),
    Column("level", "level"),
    Column("min_version", "from"),
    Column("max_version", "to"),
)


@click.group(cls=ClusterGroup)
def cluster() -> None:
    """Show a cluster and its features, or move it to ZooKeeper."""


@cluster.command()
@cluster_command
def describe(target: Target) -> None:
    """Show the cluster's id, its brokers and its controller."""
    from barnabas.views.health import cluster_health

    with target.admin() as admin:
        health = cluster_health(admin)
    rows = [
        {
            "id": broker.broker_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "controller": broker.is_controller,
            "fenced": broker.is_fenced,
        }
        for broker in health.brokers
    ]
    if target.as_json:
        show_json({"cluster_id": health.cluster_id, "controller_id": health.controller_id, "brokers": rows})
        return
    click.echo(f"cluster {health.cluster_id}")
    show(rows, BROKERS, as_json=False, nothing="no brokers")


@cluster.command()
@cluster_command
def features(target: Target) -> None:
    """Show the features of the cluster, and their levels."""
    with target.admin() as admin:
        found = admin.describe_features()
    rows = [
        {
            "feature": each.name,
            "level": each.level,
            "min_version": each.min_version,
            "max_version": each.max_version,
        }
        for each in found.values()
    ]
    show(rows, FEATURES, as_json=target.as_json, nothing="no features")


cluster.add_command(migrate)
