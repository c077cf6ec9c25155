"""Groups of commands: complete help texts, suggestions, and cluster options at any place of the command line.

`barnabas -b host topics list`, `barnabas topics -b host list` and `barnabas topics list -b host` are the same. Groups
and commands collect these options from left to right; the last one counts.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

import click

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DEFAULT_TIMEOUT_S: Final = 30.0
BOOTSTRAP_VARIABLE: Final = "BARNABAS_BOOTSTRAP"
PROFILE_VARIABLE: Final = "BARNABAS_PROFILE"

json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")

LISTED_MAX: Final = 8
_GIVEN: Final = "barnabas.cli.connection"


def given_options(context: click.Context) -> dict[str, Any]:
    """The cluster options on the command line, by name, before or after the command."""
    found: dict[str, Any] = context.meta.setdefault(_GIVEN, {})
    return found


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    if value is not None and parameter.name is not None:
        given_options(context)[parameter.name] = value
    return value


def _complete_profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from barnabas.cli.shared.profiles import complete_profiles

    return complete_profiles(context, parameter, incomplete)


_COMMON: Final = {"expose_value": False, "callback": _remember}
# The options of a cluster: names, and the attributes of click's.
CONNECTION: Final[tuple[tuple[tuple[str, ...], dict[str, Any]], ...]] = (
    (
        ("-b", "--bootstrap"),
        {
            "metavar": "HOST[:PORT]",
            "help": "Brokers to connect to, separated by commas; the default port is 9092."
            f"  [env var: {BOOTSTRAP_VARIABLE}; default: {DEFAULT_BOOTSTRAP}]",
            **_COMMON,
        },
    ),
    (
        ("--profile",),
        {
            "metavar": "NAME",
            "help": f"A saved cluster with its settings; see `barnabas profile`.  [env var: {PROFILE_VARIABLE}]",
            "shell_complete": _complete_profiles,
            **_COMMON,
        },
    ),
    (
        ("--client-config",),
        {
            "type": click.Path(exists=True, dir_okay=False),
            "metavar": "FILE",
            "help": "A properties file with client settings, as for Kafka's tools.",
            **_COMMON,
        },
    ),
    (
        ("--timeout",),
        {
            "type": float,
            "metavar": "SECONDS",
            "help": f"Time for each request to the cluster, with retries.  [default: {DEFAULT_TIMEOUT_S:g}]",
            **_COMMON,
        },
    ),
)


class CommandGroup(click.Group):
    """A group that lists its commands in their order, each with its first sentence, which is never cut."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        return [
            (name, first_sentence(command)) for name, command in self.commands.items() if not command.hidden
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.summaries(ctx))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and not name.startswith("-"):
            from barnabas.cli.shared.output import nearest

            known = self.list_commands(ctx)
            hint = nearest(name, known)
            if not hint and len(known) <= LISTED_MAX:
                hint = f"; there are {', '.join(known)}"
            raise click.UsageError(f"There is no command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


class ClusterGroup(CommandGroup):
    """A group of commands that connect to a cluster. It takes their options too."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params.extend(click.Option(names, hidden=True, **values) for names, values in CONNECTION)


def connects(command: click.Command) -> bool:
    """Whether a command or group takes the options of a cluster."""
    return isinstance(command, ClusterGroup) or any(
        parameter.callback is _remember for parameter in command.params
    )


def first_sentence(command: click.Command) -> str:
    text = " ".join(inspect.cleandoc(command.short_help or command.help or "").split("\n\n")[0].split())
    end = text.find(". ")
    return text if end < 0 else text[: end + 1]
