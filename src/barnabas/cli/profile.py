"""`barnabas profile`: clusters by name, each with its settings."""

from __future__ import annotations

from typing import Any, Final

import click

from barnabas.cli.shared.arguments import confirm, parse_pairs, yes_option
from barnabas.cli.shared.client_settings import check_client_settings, load_client_config
from barnabas.cli.shared.exit_codes import NOT_FOUND
from barnabas.cli.shared.group import CommandGroup, json_option
from barnabas.cli.shared.output import Column, fail, note, show, show_json
from barnabas.cli.shared.profiles import (
    NAME,
    Profiles,
    complete_profiles,
    is_secret,
    load_profiles,
    profiles_path,
    save_profiles,
)
from barnabas.cli.shared.target import parse_bootstrap

LISTED: Final = (
    Column("profile", "profile"),
    Column("in_use", "in use"),
    Column("bootstrap_servers", "bootstrap.servers"),
)
SETTINGS: Final = (Column("name", "name"), Column("value", "value"))
HIDDEN: Final = "(hidden)"


@click.group(cls=CommandGroup)
def profile() -> None:
    """Save clusters with their settings, and switch between them.

    Commands use the profile of --profile, else of BARNABAS_PROFILE, else the profile in use. A command ignores the
    profile in use if it has an address from -b, --client-config or BARNABAS_BOOTSTRAP.
    """


@profile.command(
    epilog="""\b
Examples:
  barnabas profile create dev -b localhost --use
  barnabas profile create prod -b kafka1,kafka2 -X request.timeout.ms=5000
  barnabas profile create prod --client-config client.properties --replace"""
)
@click.argument("name")
@click.option("-b", "--bootstrap", metavar="HOST[:PORT]", help="Brokers to connect to.")
@click.option(
    "--client-config",
    "file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Read settings from a properties file, as Kafka's tools do.",
)
@click.option(
    "-X",
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="A client setting. May be repeated.",
)
@click.option("--use", "is_used", is_flag=True, help="Use this profile from now on.")
@click.option("--replace", "is_replaced", is_flag=True, help="Replace the profile if it exists.")
@json_option
def create(
    name: str,
    bootstrap: str | None,
    file: str | None,
    assignments: tuple[str, ...],
    is_used: bool,
    is_replaced: bool,
    as_json: bool,
) -> None:
    """Save a cluster with its settings."""
    if not NAME.fullmatch(name):
        raise click.BadParameter(
            "a profile name may contain letters, digits, '.', '_' and '-'", param_hint="NAME"
        )
    settings = {} if file is None else load_client_config(file)
    assigned = dict(parse_pairs(assignments))
    check_client_settings(assigned, "--set")
    settings |= assigned
    if bootstrap is not None:
        settings["bootstrap.servers"] = bootstrap
    if not settings.get("bootstrap.servers"):
        raise click.UsageError("Name the brokers with -b HOST[:PORT].")
    settings["bootstrap.servers"] = parse_bootstrap(settings["bootstrap.servers"])
    profiles = load_profiles()
    if name in profiles.settings and not is_replaced:
        fail(f"profile {name} already exists; use --replace to replace it")
    profiles.settings[name] = settings
    save_profiles(profiles._replace(in_use=name if is_used else profiles.in_use))
    if as_json:
        show_json(_row(load_profiles(), name))
    else:
        click.echo(f"{name}: saved in {profiles_path()}")
        if not is_used and profiles.in_use != name:
            note(f"Use it with `barnabas profile use {name}`, or once with --profile {name}.")


@profile.command(name="list")
@json_option
def list_profiles(as_json: bool) -> None:
    """List the profiles."""
    profiles = load_profiles()
    rows = [_row(profiles, name) for name in sorted(profiles.settings)]
    show(rows, LISTED, as_json=as_json, nothing="no profiles")


def _row(profiles: Profiles, name: str) -> dict[str, Any]:
    return {
        "profile": name,
        "in_use": name == profiles.in_use,
        "bootstrap_servers": profiles.settings[name].get("bootstrap.servers"),
    }


@profile.command(name="show")
@click.argument("name", required=False, metavar="[NAME]", shell_complete=complete_profiles)
@click.option("--secrets", "with_secrets", is_flag=True, help="Show passwords too.")
@json_option
def show_profile(name: str | None, with_secrets: bool, as_json: bool) -> None:
    """Show the settings of a profile. Without NAME, of the one in use."""
    profiles = load_profiles()
    if name is None and profiles.in_use is None:
        fail("no profile is in use; choose one with `barnabas profile use NAME`", NOT_FOUND)
    chosen = name or profiles.in_use or ""
    settings = {
        key: HIDDEN if is_secret(key) and not with_secrets else value
        for key, value in profiles.of(chosen).items()
    }
    if as_json:
        show_json({**_row(profiles, chosen), "settings": settings})
        return
    click.echo(f"{chosen}:{' in use,' if chosen == profiles.in_use else ''} in {profiles_path()}")
    rows = [{"name": key, "value": value} for key, value in settings.items()]
    show(rows, SETTINGS, as_json=False, nothing="no settings")


@profile.command()
@click.argument("name", required=False, metavar="[NAME]", shell_complete=complete_profiles)
@click.option("--none", "is_none", is_flag=True, help="Use no profile from now on.")
@json_option
def use(name: str | None, is_none: bool, as_json: bool) -> None:
    """Use a profile for all commands from now on."""
    if (name is None) != is_none:
        raise click.UsageError("Name a profile, or use --none.")
    profiles = load_profiles()
    if name is not None:
        profiles.of(name)
    save_profiles(profiles._replace(in_use=name))
    if as_json:
        show_json({"in_use": name})
    else:
        click.echo("no profile is in use" if name is None else f"{name}: in use")


@profile.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_profiles)
@yes_option
@json_option
def delete(names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete profiles."""
    profiles = load_profiles()
    for name in names:
        profiles.of(name)
    confirm(f"delete the profile{'s' if len(names) > 1 else ''} {', '.join(names)}", yes=yes)
    kept = {name: settings for name, settings in profiles.settings.items() if name not in names}
    save_profiles(Profiles(None if profiles.in_use in names else profiles.in_use, kept))
    if as_json:
        show_json([{"profile": name} for name in names])
    else:
        for name in names:
            click.echo(f"{name}: deleted")
