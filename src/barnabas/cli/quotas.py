"""`barnabas quotas`: limits of users, clients and addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.shared.arguments import confirm, parse_pairs, yes_option
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import Column, fail, nearest, show, show_json
from barnabas.cli.shared.target import Target, cluster_command

if TYPE_CHECKING:
    from barnabas.client.admin.results import QuotaEntity

LISTED: Final = (
    Column("user", "user"),
    Column("client_id", "client"),
    Column("ip", "address"),
    Column("quota", "quota"),
    Column("value", "value", lambda value: f"{value:,.10g}"),
)
KINDS: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}
NAMES: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
DEFAULT: Final = "<default>"


def entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, what in (("ip", "An IP address"), ("client-id", "A client id"), ("user", "A user")):
        command = click.option(f"--{name}", metavar="NAME", help=f"{what}; '' for the default quota.")(
            command
        )
    return command


@click.group(cls=ClusterGroup)
def quotas() -> None:
    """Show, set and delete quotas of users, clients and addresses."""


@quotas.command(name="list")
@entity_options
@cluster_command
def list_quotas(target: Target, **parts: str | None) -> None:
    """List quotas."""
    with target.admin() as admin:
        found = admin.describe_quotas(_entity(parts) or None)
    rows = [
        {
            **{
                name: (DEFAULT if (given := dict(entity)[kind]) is None else given)
                if kind in dict(entity)
                else None
                for name, kind in KINDS.items()
            },
            "quota": quota,
            "value": value,
        }
        for entity, values in sorted(found.items(), key=str)
        for quota, value in sorted(values.items())
    ]
    show(rows, LISTED, as_json=target.as_json, nothing="no quotas")


@quotas.command(
    name="set",
    epilog="""\b
Quotas: producer_byte_rate and consumer_byte_rate in bytes per second, request_percentage,
controller_mutation_rate; for an IP address connection_creation_rate.
\b
Examples:
  barnabas quotas set --client-id loader producer_byte_rate=1000000
  barnabas quotas set --user '' request_percentage=50""",
)
@click.argument("assignments", nargs=-1, required=True, metavar="QUOTA=NUMBER...")
@entity_options
@cluster_command
def set_quotas(target: Target, assignments: tuple[str, ...], **parts: str | None) -> None:
    """Set quotas of a user, a client id, both together, or an IP address."""
    values: dict[str, float | None] = {}
    for name, text in parse_pairs(assignments):
        try:
            values[name] = float(text)
        except ValueError:
            raise click.UsageError(f"{name}: {text!r} is not a number.") from None
    _check_names(values)
    _alter(target, _required(parts), values, "set")


@quotas.command()
@click.argument("names", nargs=-1, required=True, metavar="QUOTA...")
@entity_options
@yes_option
@cluster_command
def delete(target: Target, names: tuple[str, ...], yes: bool, **parts: str | None) -> None:
    """Delete quotas."""
    _check_names(names)
    entity = _required(parts)
    confirm(f"delete {', '.join(names)} of {_entity_text(entity)}", yes=yes)
    _alter(target, entity, dict.fromkeys(names), "deleted")


def _check_names(names: Iterable[str]) -> None:
    """Fails for a name that is near a known one; the broker checks all others."""
    for name in names:
        if name not in NAMES and (hint := nearest(name, NAMES)):
            fail(f"there is no quota {name}{hint}")


def _entity_text(parts: dict[str, str | None]) -> str:
    return ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in sorted(parts.items()))


def _alter(target: Target, parts: dict[str, str | None], values: dict[str, float | None], what: str) -> None:
    entity: QuotaEntity = tuple(sorted(parts.items()))
    with target.admin() as admin:
        admin.alter_quotas({entity: values})
    if target.as_json:
        show_json({"entity": dict(entity), "quotas": values})
    else:
        click.echo(f"{_entity_text(parts)}: {', '.join(values)} {what}")


def _entity(parts: dict[str, str | None]) -> dict[str, str | None]:
    return {KINDS[name]: given or None for name, given in parts.items() if given is not None}


def _required(parts: dict[str, str | None]) -> dict[str, str | None]:
    entity = _entity(parts)
    if not entity:
        raise click.UsageError("Specify an entity: --user, --client-id or --ip.")
    return entity
