"""`barnabas configs`: settings of topics, brokers and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.shared.arguments import check_setting_names, parse_pairs
from barnabas.cli.shared.exit_codes import NOT_FOUND
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import Column, fail, show, show_json
from barnabas.cli.shared.target import Target, cluster_command, complete_topics, described_topic

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.results import ConfigEntry, ConfigResource

KINDS: Final = ("topic", "broker", "group")
ALL_BROKERS: Final = "all"
LISTED: Final = (
    Column("name", "name"),
    Column("value", "value"),
    Column("source", "from", rank=1),
    Column("read_only", "read only", rank=2),
)
DOCUMENTED: Final = (*LISTED, Column("documentation", "what it takes"))


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> Any:
    return complete_topics(context, parameter, incomplete) if context.params.get("kind") == "topic" else []


@click.group(cls=ClusterGroup)
def configs() -> None:
    """Show and change settings of topics, brokers and groups."""


@configs.command(
    epilog="""\b
Examples:
  barnabas configs describe topic orders
  barnabas configs describe broker 1 --all
  barnabas configs describe broker all          settings for all brokers at run time"""
)
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name", shell_complete=_complete)
@click.option("--all", "everything", is_flag=True, help="Also show settings with their default value.")
@click.option("--doc", "with_documentation", is_flag=True, help="Show what each setting means.")
@cluster_command
def describe(target: Target, kind: str, name: str, everything: bool, with_documentation: bool) -> None:
    """Show the settings of a topic, a broker or a group that differ from their defaults."""
    with target.admin() as admin:
        resource = _resource(admin, kind, name)
        found = admin.describe_configs(
            resource, include_documentation=with_documentation, include_synonyms=True
        )[resource]
    rows = [_row(entry) for entry in found.values() if everything or _is_set(kind, entry)]
    show(
        rows,
        DOCUMENTED if with_documentation else LISTED,
        as_json=target.as_json,
        nothing="all settings have their defaults; --all shows them",
    )


@configs.command(
    epilog="""\b
Examples:
  barnabas configs alter topic orders retention.ms=86400000
  barnabas configs alter topic orders --delete retention.ms
  barnabas configs alter topic orders --append cleanup.policy=compact
  barnabas configs alter broker all log.cleaner.threads=2"""
)
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name", shell_complete=_complete)
@click.argument("assignments", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--delete",
    "deleted",
    multiple=True,
    metavar="NAME",
    help="Reset a setting to its default. May be repeated.",
)
@click.option(
    "--append", "appended", multiple=True, metavar="NAME=VALUE", help="Add to a list. May be repeated."
)
@click.option(
    "--subtract",
    "subtracted",
    multiple=True,
    metavar="NAME=VALUE",
    help="Remove from a list. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only check the change on the broker.")
@cluster_command
def alter(
    target: Target,
    kind: str,
    name: str,
    assignments: tuple[str, ...],
    deleted: tuple[str, ...],
    appended: tuple[str, ...],
    subtracted: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Change some settings of a topic, a broker or a group, and keep the others."""
    from barnabas.client.admin.results import ConfigChange, ConfigOperation

    changes: dict[str, str | ConfigChange | None] = {
        **dict(parse_pairs(assignments)),
        **dict.fromkeys(deleted),
    }
    for operation, texts in (
        (ConfigOperation.APPEND, appended),
        (ConfigOperation.SUBTRACT, subtracted),
    ):
        changes |= {key: ConfigChange(operation=operation, value=value) for key, value in parse_pairs(texts)}
    if not changes:
        raise click.UsageError("Specify a change: NAME=VALUE, --delete, --append or --subtract.")
    with target.admin() as admin:
        resource = _resource(admin, kind, name)
        # A setting for all brokers is a setting of each broker.
        one = resource if resource.name else _resource(admin, kind, str(admin.describe_cluster().nodes[0].id))
        check_setting_names(admin, one, list(changes))
        admin.alter_configs({resource: changes}, validate_only=dry_run)
    if target.as_json:
        show_json({"kind": kind, "name": name, "changed": list(changes), "dry_run": dry_run})
    else:
        click.echo(f"{kind} {name}: {', '.join(changes)} {'could be changed' if dry_run else 'changed'}")


def _resource(admin: Admin, kind: str, name: str) -> ConfigResource:
    from barnabas.client.admin.results import ConfigResource, ResourceType

    if kind == "topic":
        described_topic(admin, name)
    if kind == "broker" and name != ALL_BROKERS:
        known = [str(node.id) for node in admin.describe_cluster().nodes]
        if name not in known:
            fail(f"there is no broker {name}; there are {', '.join(known)}, or {ALL_BROKERS}", NOT_FOUND)
    own_name = "" if kind == "broker" and name == ALL_BROKERS else name
    return ConfigResource(ResourceType[kind.upper()], own_name)


def _is_set(kind: str, entry: ConfigEntry) -> bool:
    """Whether it was set: for the topic, or for a broker in its file or at run time."""
    source = entry.source.name
    return source.startswith("DYNAMIC_TOPIC" if kind == "topic" else ("DYNAMIC", "STATIC"))


def _row(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": "(hidden)" if entry.is_sensitive and entry.value is None else entry.value,
        "source": entry.source.name.removesuffix("_CONFIG").lower().replace("_", " "),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "type": entry.type.name.lower(),
        "synonyms": [
            {"name": each.name, "value": each.value, "source": each.source.name.lower()}
            for each in entry.synonyms
        ],
        "documentation": entry.documentation,
    }
