"""`barnabas users`: users that log in with a password."""

from __future__ import annotations

import sys
from typing import Final

import click

from barnabas.cli.shared.arguments import confirm, yes_option
from barnabas.cli.shared.exit_codes import NOT_FOUND
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import Column, fail, nearest, show, show_json
from barnabas.cli.shared.target import Target, cluster_command

LISTED: Final = (
    Column("user", "user"),
    Column("mechanism", "mechanism"),
    Column("iterations", "iterations"),
)
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD_CHARACTERS_MAX: Final = 1_024

mechanism_option: Final = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(MECHANISMS, case_sensitive=False),
    help="For this SASL mechanism only. Without the option, for both.",
)


@click.group(cls=ClusterGroup)
def users() -> None:
    """Create, list and delete users that log in with a password (SCRAM).

    The first user of a broker whose listeners all ask for a password is created by `barnabas start --add-scram`.
    """


@users.command(
    epilog="""\b
Examples:
  barnabas users create ann
  pass show kafka/ann | barnabas users create ann --password-stdin"""
)
@click.argument("user")
@click.option("--password-stdin", is_flag=True, help="Read the password from the standard input.")
@click.option(
    "--iterations",
    type=click.IntRange(4_096, 16_384),
    default=8_192,
    show_default=True,
    help="How often the password is hashed.",
)
@mechanism_option
@cluster_command
def create(
    target: Target, user: str, password_stdin: bool, iterations: int, mechanisms: tuple[str, ...]
) -> None:
    """Create a user, or set another password. The password does not leave this machine."""
    password = _password(user, from_stdin=password_stdin)
    chosen = mechanisms or MECHANISMS
    with target.admin() as admin:
        from barnabas.client.admin.results import ScramMechanism

        for mechanism in chosen:
            admin.set_scram_password(
                user, password, mechanism=ScramMechanism[mechanism.replace("-", "_")], iterations=iterations
            )
    if target.as_json:
        show_json({"user": user, "mechanisms": list(chosen)})
    else:
        click.echo(f"{user} can log in with {' and '.join(chosen)}")


@users.command(name="list")
@cluster_command
def list_users(target: Target) -> None:
    """List users with their mechanisms."""
    with target.admin() as admin:
        found = admin.describe_scram_users()
    rows = [
        {"user": user, "mechanism": mechanism.name.replace("_", "-"), "iterations": iterations}
        for user, mechanisms in sorted(found.items())
        for mechanism, iterations in sorted(mechanisms.items())
    ]
    show(rows, LISTED, as_json=target.as_json, nothing="no users")


@users.command()
@click.argument("user")
@mechanism_option
@yes_option
@cluster_command
def delete(target: Target, user: str, mechanisms: tuple[str, ...], yes: bool) -> None:
    """Delete a user's passwords. Connections that are open stay open."""
    with target.admin() as admin:
        found = admin.describe_scram_users()
        if user not in found:
            fail(f"there is no user {user}{nearest(user, found)}", NOT_FOUND)
        chosen = [
            each
            for each in found[user]
            if not mechanisms or each.name.replace("_", "-") in {name.upper() for name in mechanisms}
        ]
        if not chosen:
            fail(f"{user} has no password for {', '.join(mechanisms)}", NOT_FOUND)
        names = [each.name.replace("_", "-") for each in chosen]
        confirm(f"delete the password of {user} for {' and '.join(names)}", yes=yes)
        for mechanism in chosen:
            admin.delete_scram_password(user, mechanism)
    if target.as_json:
        show_json({"user": user, "mechanisms": names})
    else:
        click.echo(f"{user} can no longer log in with {' or '.join(names)}")


def _password(user: str, *, from_stdin: bool) -> str:
    if from_stdin:
        password = sys.stdin.readline(PASSWORD_CHARACTERS_MAX + 1).rstrip("\r\n")
    elif sys.stdin.isatty():
        password = click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        fail("there is no terminal to ask for the password. Use --password-stdin")
    if not password or len(password) > PASSWORD_CHARACTERS_MAX:
        fail(f"a password has 1 to {PASSWORD_CHARACTERS_MAX} characters")
    return password
