"""`barnabas features`: the features of a cluster and their levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.shared.arguments import confirm, parse_pairs, yes_option
from barnabas.cli.shared.exit_codes import NOT_FOUND
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import Column, fail, nearest, note, show, show_json
from barnabas.cli.shared.target import Target, cluster_command

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.results import UpgradeType

DESCRIBED: Final = (
    Column("feature", "feature"),
    Column("level", "level"),
    Column("min_version", "from", rank=2),
    Column("max_version", "to"),
    Column("epoch", "epoch", rank=3),
    Column("unsupported_by", "not supported by", rank=1),
)

dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Only check whether it is possible.")


@click.group(cls=ClusterGroup)
def features() -> None:
    """Show the features of a cluster, and change their levels.

    A broker that does not support a level cannot join: group.version 1 and transaction.version 2 keep brokers of Apache
    Kafka 3.9 out.
    """


@features.command()
@cluster_command
def describe(target: Target) -> None:
    """Show each feature with its level, and the levels that all brokers support."""
    from barnabas.views.features import cluster_features

    with target.admin() as admin:
        found = cluster_features(admin)
    rows = [
        {
            "feature": each.name,
            "level": each.level,
            "min_version": each.min_version,
            "max_version": each.max_version,
            "epoch": each.epoch,
            "unsupported_by": list(each.unsupported_by),
        }
        for each in found
    ]
    show(rows, DESCRIBED, as_json=target.as_json, nothing="no features")


@features.command(
    epilog="""\b
Examples:
  barnabas features upgrade
  barnabas features upgrade group.version=1"""
)
@click.argument("assignments", nargs=-1, metavar="[FEATURE=LEVEL]...")
@dry_run_option
@cluster_command
def upgrade(target: Target, assignments: tuple[str, ...], dry_run: bool) -> None:
    """Raise the levels of features. Without FEATURE, of all features to the highest that all brokers support."""
    from barnabas.client.admin.results import UpgradeType

    levels = _parse(assignments)
    with target.admin() as admin:
        if levels:
            _check_names(admin, levels)
        else:
            levels = _highest(admin)
            if not levels:
                note("all features have the highest level that all brokers support")
        _update(target, admin, levels, UpgradeType.UPGRADE, dry_run=dry_run)


@features.command()
@click.argument("assignments", nargs=-1, required=True, metavar="FEATURE=LEVEL...")
@click.option(
    "--unsafe", is_flag=True, help="Also where groups of the consumer protocol have members, which they lose."
)
@dry_run_option
@yes_option
@cluster_command
def downgrade(target: Target, assignments: tuple[str, ...], unsafe: bool, dry_run: bool, yes: bool) -> None:
    """Lower the levels of features. Level 0 disables a feature."""
    _lower(target, _parse(assignments), unsafe=unsafe, dry_run=dry_run, yes=yes)


@features.command()
@click.argument("names", nargs=-1, metavar="[FEATURE]...")
@click.option("--all", "everything", is_flag=True, help="All features that are in use.")
@click.option(
    "--unsafe", is_flag=True, help="Also where groups of the consumer protocol have members, which they lose."
)
@dry_run_option
@yes_option
@cluster_command
def disable(
    target: Target, names: tuple[str, ...], everything: bool, unsafe: bool, dry_run: bool, yes: bool
) -> None:
    """Lower features to level 0, so that brokers which do not know them can join."""
    if bool(names) == everything:
        raise click.UsageError("Specify features, or --all.")
    levels = None if everything else dict.fromkeys(names, 0)
    _lower(target, levels, unsafe=unsafe, dry_run=dry_run, yes=yes)


def _lower(
    target: Target, levels: Mapping[str, int] | None, *, unsafe: bool, dry_run: bool, yes: bool
) -> None:
    from barnabas.client.admin.results import UpgradeType

    with target.admin() as admin:
        if levels is None:
            levels = {name: 0 for name, each in admin.describe_features().items() if each.level}
            if not levels:
                note("no feature is in use")
        else:
            _check_names(admin, levels)
        if levels and not dry_run:
            changes = ", ".join(f"{name} to level {level}" for name, level in levels.items())
            confirm(f"lower {changes}", yes=yes)
        kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
        _update(target, admin, levels, kind, dry_run=dry_run)


def _parse(assignments: tuple[str, ...]) -> dict[str, int]:
    levels = {}
    for name, text in parse_pairs(assignments):
        if not (text.isascii() and text.isdigit() and len(text) <= 4):
            raise click.UsageError(f"{name}: {text!r} is not a level.")
        levels[name] = int(text)
    return levels


def _check_names(admin: Admin, names: Iterable[str]) -> None:
    known = admin.describe_features()
    for name in names:
        if name not in known:
            fail(f"there is no feature {name}{nearest(name, known)}", NOT_FOUND)


def _highest(admin: Admin) -> dict[str, int]:
    """Features that can be raised."""
    from barnabas.views.features import cluster_features

    return {
        each.name: each.max_version
        for each in cluster_features(admin)
        if each.max_version > (each.level or 0)
    }


def _update(
    target: Target, admin: Admin, levels: Mapping[str, int], kind: UpgradeType, *, dry_run: bool
) -> None:
    if levels:
        admin.update_features(levels, upgrade=kind, validate_only=dry_run)
    if target.as_json:
        show_json([{"feature": name, "level": level} for name, level in levels.items()])
        return
    for name, level in levels.items():
        click.echo(f"{name}: level {level} {'is possible' if dry_run else 'set'}")
