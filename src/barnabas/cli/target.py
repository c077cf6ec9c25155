"""Which cluster a command is for, and how long it may take: the options that all commands to a cluster have."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import click

from barnabas.cli.exit_codes import NOT_FOUND, UNREACHABLE
from barnabas.cli.output import fail, nearest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from barnabas.client.admin import Admin
    from barnabas.client.admin_results import TopicDescription

BOOTSTRAP_VARIABLE: Final = "BARNABAS_BOOTSTRAP"
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
CONNECT_TIMEOUT_S: Final = 5.0
COMPLETION_TIMEOUT_MS: Final = 1_000

F = TypeVar("F", bound=Callable[..., Any])


class Target(NamedTuple):
    """What the options say."""

    bootstrap: str
    timeout_ms: int
    settings: dict[str, str]
    as_json: bool

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        reach(self.bootstrap)
        from barnabas.client.admin import Admin

        settings = self.client_settings("admin", default_api_timeout_ms=self.timeout_ms)
        with self.unreachable_is_told(), Admin(settings) as admin:
            yield admin

    @contextmanager
    def unreachable_is_told(self) -> Iterator[None]:
        """Something accepts connections, but there are no answers in time: what a person may try."""
        from barnabas.errors import NetworkException, RequestTimedOut

        try:
            yield
        except (NetworkException, RequestTimedOut) as error:
            fail(f"{error}. Is {self.bootstrap} a Kafka broker? --timeout gives it more time", UNREACHABLE)

    def client_settings(self, kind: str, **settings: object) -> dict[str, object]:
        """Settings for a client of ours: those of the file that this kind of client has, and what the command needs."""
        from barnabas.client import settings as tables

        known = {row.name for row in getattr(tables, kind.upper())}
        chosen: dict[str, object] = {
            name: value
            for name, value in self.settings.items()
            if name in known and name != "bootstrap.servers"
        }
        chosen |= {name.replace("_", "."): value for name, value in settings.items()}
        return {"client.id": "barnabas-cli", **chosen, "bootstrap.servers": self.bootstrap}


def bootstrap_option(name: str = "--bootstrap", **attributes: Any) -> Callable[[F], F]:
    names = (name, "-b") if name == "--bootstrap" else (name,)
    return click.option(*names, metavar="HOST:PORT[,…]", **attributes)


def cluster_command(command: F) -> F:
    """Gives a command the options of a cluster, and hands it a Target as its first argument."""

    @bootstrap_option(
        envvar=BOOTSTRAP_VARIABLE,
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        help="Brokers to begin with.",
    )
    @click.option(
        "--timeout",
        "timeout_s",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="How long a request to the cluster may take, retries included; else 30.",
    )
    @click.option(
        "--client-config",
        "config_file",
        type=click.Path(exists=True, dir_okay=False),
        help="A file of settings for clients, as Kafka's tools take it.",
    )
    @click.option("--json", "as_json", is_flag=True, help="JSON, for scripts.")
    @functools.wraps(command)
    def run(
        *arguments: Any,
        bootstrap: str,
        timeout_s: float,
        config_file: str | None,
        as_json: bool,
        **options: Any,
    ) -> Any:
        if not timeout_s > 0:
            raise click.BadParameter("it takes a number of seconds above 0", param_hint="--timeout")
        settings: dict[str, str] = {}
        if config_file is not None:
            from pathlib import Path

            from barnabas.config.properties import load_properties

            settings = load_properties(Path(config_file))
        target = Target(bootstrap, int(timeout_s * 1000), settings, as_json)
        return command(target, *arguments, **options)

    return run  # type: ignore[return-value]


def reach(bootstrap: str) -> None:
    """Fails with what is wrong with each address if none of them can be connected to."""
    from barnabas.client.settings import parse_address

    reasons = []
    for text in bootstrap.split(","):
        host, port = parse_address(text.strip())
        reason = why_unreachable(host, port)
        if reason is None:
            return
        reasons.append(f"{host}:{port} ({reason})")
    fail(
        f"no broker answers at {', '.join(reasons)}. Is one running (barnabas start)? Name another with --bootstrap"
        f" HOST:PORT or in {BOOTSTRAP_VARIABLE}",
        UNREACHABLE,
    )


def why_unreachable(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
    except socket.gaierror:
        return "the name is not known"
    except TimeoutError:
        return f"no connection within {CONNECT_TIMEOUT_S:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


def described_topics(admin: Admin, names: Sequence[str]) -> dict[str, TopicDescription]:
    """The topics, which all exist: else the command fails with the nearest name that does."""
    from barnabas.client.admin_core import AdminErrors
    from barnabas.errors import KafkaError, UnknownTopicOrPartition

    try:
        return admin.describe_topics(names)
    except UnknownTopicOrPartition as error:
        errors: dict[str, KafkaError] = {names[0]: error}
    except AdminErrors as failed:
        errors = dict(failed.errors)
    unknown = [name for name, error in errors.items() if isinstance(error, UnknownTopicOrPartition)]
    if not unknown:
        raise next(iter(errors.values()))
    return missing_topics(admin, unknown)


def missing_topics(admin: Admin, unknown: Sequence[str], advice: str = "") -> NoReturn:
    """Fails because of topics that do not exist."""
    known = [topic.name for topic in admin.list_topics(include_internal=True)]
    fail(
        "; ".join(f"there is no topic {name}{nearest(name, known)}" for name in unknown)
        + ("" if known else " (there are no topics at all)")
        + (f" {advice}" if advice else ""),
        NOT_FOUND,
    )


def described_topic(admin: Admin, name: str) -> TopicDescription:
    return described_topics(admin, [name])[name]


def missing_groups(admin: Admin, names: Sequence[str]) -> NoReturn:
    """Fails because of groups that do not exist."""
    known = [group.group_id for group in admin.list_groups()]
    unknown = [name for name in names if name not in known]
    fail(
        "; ".join(f"there is no group {name}{nearest(name, known)}" for name in unknown)
        + ("" if known else " (there are no groups at all)"),
        NOT_FOUND,
    )


def complete_topics(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names for the shell. Whatever goes wrong, a person who presses a key sees no more than no names."""
    return _complete(context, incomplete, lambda admin: [topic.name for topic in admin.list_topics()])


def complete_groups(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _complete(context, incomplete, lambda admin: [group.group_id for group in admin.list_groups()])


def _complete(
    context: click.Context, incomplete: str, names: Callable[[Admin], list[str]]
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    bootstrap = context.params.get("bootstrap") or DEFAULT_BOOTSTRAP
    try:
        with Target(bootstrap, COMPLETION_TIMEOUT_MS, {}, False).admin() as admin:
            return [CompletionItem(name) for name in names(admin) if name.startswith(incomplete)]
    except Exception:
        return []
