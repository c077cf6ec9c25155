"""The cluster that a command connects to, and its time-out: the options of all cluster commands."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import click

from barnabas.cli.shared.exit_codes import NOT_FOUND, UNREACHABLE
from barnabas.cli.shared.group import (
    BOOTSTRAP_VARIABLE,
    CONNECTION,
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    PROFILE_VARIABLE,
    given_options,
    json_option,
)
from barnabas.cli.shared.output import fail, nearest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.results import TopicDescription

DEFAULT_PORT: Final = 9092
TIMEOUT_S_MAX: Final = 86_400.0
CONNECT_TIMEOUT_S: Final = 5.0
DIAGNOSIS_TIMEOUT_MS: Final = 2_000
DIAGNOSED_NODES_MAX: Final = 3
COMPLETION_TIMEOUT_MS: Final = 1_000

F = TypeVar("F", bound=Callable[..., Any])


class Target(NamedTuple):
    """The values of the cluster options."""

    bootstrap: str
    timeout_ms: int
    settings: dict[str, str]
    as_json: bool = False
    # The source of the address if it is not on the command line.
    source: str = ""

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        reach(self)
        from barnabas.client.admin.admin import Admin

        settings = self.client_settings("admin", default_api_timeout_ms=self.timeout_ms)
        with _without_warnings_of_outages(), self.unreachable_is_told(), Admin(settings) as admin:
            yield admin

    @contextmanager
    def unreachable_is_told(self) -> Iterator[None]:
        """Something accepts connections but does not answer in time: hints for the user."""
        from barnabas.errors import NetworkException, RequestTimedOut

        try:
            yield
        except (NetworkException, RequestTimedOut) as error:
            advice = self._unreachable_brokers() or (
                f"Check that {self.bootstrap} is a Kafka broker, or use a larger --timeout"
            )
            fail(f"{error}. {advice}", UNREACHABLE)

    def _unreachable_brokers(self) -> str:
        """A hint about advertised addresses, which may be reachable only from the brokers' own network."""
        from barnabas.client.admin.admin import Admin
        from barnabas.errors import KafkaError

        try:
            timeout_ms = min(self.timeout_ms, DIAGNOSIS_TIMEOUT_MS)
            settings = self.client_settings("admin", default_api_timeout_ms=timeout_ms)
            with _without_warnings_of_outages(), Admin(settings) as admin:
                nodes = admin.describe_cluster().nodes
        except KafkaError:
            return ""
        for node in nodes[:DIAGNOSED_NODES_MAX]:
            reason = why_unreachable(node.host, node.port)
            if reason is not None:
                return (
                    f"Broker {node.id} cannot be reached at the address that it advertises, {node.host}:{node.port}"
                    f" ({reason}): check its advertised.listeners"
                )
        return ""

    def client_settings(self, kind: str, **settings: object) -> dict[str, object]:
        """Settings for a client: those of the file that apply to this kind of client, and those of the command."""
        from barnabas.client import settings as tables

        known = {row.name for row in getattr(tables, kind.upper())}
        chosen: dict[str, object] = {
            name: value
            for name, value in self.settings.items()
            if name in known and name != "bootstrap.servers"
        }
        chosen |= {name.replace("_", "."): value for name, value in settings.items()}
        return {"client.id": "barnabas-cli", **chosen, "bootstrap.servers": self.bootstrap}


@contextmanager
def _without_warnings_of_outages() -> Iterator[None]:
    """A command that cannot reach its cluster fails with one line of its own."""
    import logging

    log = logging.getLogger("barnabas.client.connections.outage")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def cluster_command(command: F) -> F:
    """Adds the cluster options to a command, and passes it a Target as its first argument."""

    @functools.wraps(command)
    def run(*arguments: Any, as_json: bool, **options: Any) -> Any:
        target = target_of(given_options(click.get_current_context()))
        return command(target._replace(as_json=as_json), *arguments, **options)

    decorated: Any = json_option(run)
    for names, attributes in reversed(CONNECTION):
        decorated = click.option(*names, **attributes)(decorated)
    return decorated  # type: ignore[no-any-return]


def target_of(given: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Target:
    """The cluster that the options, the environment and the profiles name.

    The address of the command line counts first, then that of the file, of --profile, of BARNABAS_BOOTSTRAP, of
    BARNABAS_PROFILE, and of the profile in use. The profile in use counts completely or not at all: its settings,
    which may contain passwords, are not used for another address.
    """
    from barnabas.cli.shared.client_settings import bootstrap_of, load_client_config

    timeout_s = given.get("timeout", DEFAULT_TIMEOUT_S)
    if not 0 < timeout_s < TIMEOUT_S_MAX:
        raise click.BadParameter("must be a number of seconds above 0", param_hint="--timeout")
    file, named = given.get("client_config"), given.get("profile")
    file_settings = {} if file is None else load_client_config(file)
    addresses = [(given.get("bootstrap"), ""), (bootstrap_of(file_settings), f"bootstrap.servers of {file}")]
    if named is None:
        addresses.append((environment.get(BOOTSTRAP_VARIABLE) or None, BOOTSTRAP_VARIABLE))
    address, source = next((each for each in addresses if each[0] is not None), (None, ""))
    name, settings = _profile(named or environment.get(PROFILE_VARIABLE), is_addressed=address is not None)
    if address is None:
        address = bootstrap_of(settings) or DEFAULT_BOOTSTRAP
        source = "" if name is None else f"profile {name}"
    bootstrap = parse_bootstrap(address, source or "--bootstrap")
    return Target(bootstrap, int(timeout_s * 1000), {**settings, **file_settings}, source=source)


def _profile(named: str | None, *, is_addressed: bool) -> tuple[str | None, dict[str, str]]:
    from barnabas.cli.shared.client_settings import check_client_settings
    from barnabas.cli.shared.profiles import load_profiles

    if not named and is_addressed:
        return None, {}
    profiles = load_profiles()
    name = named or profiles.in_use
    if name is None:
        return None, {}
    settings = profiles.of(name)
    check_client_settings(settings, f"profile {name}")
    return name, settings


def parse_bootstrap(text: str, option: str = "--bootstrap") -> str:
    """Addresses with ports; the default is 9092."""
    addresses = [each.strip() for each in text.split(",") if each.strip()]
    return ",".join(_with_port(each, option) for each in addresses or [text])


def _with_port(text: str, option: str) -> str:
    from barnabas.client.settings import parse_address
    from barnabas.errors import InvalidConfig

    rest = text.rpartition("://")[2]
    is_bare_ipv6 = rest.count(":") > 1 and not rest.startswith("[")
    if is_bare_ipv6:
        rest = f"[{rest}]"
    if rest.endswith("]") or ":" not in rest:
        rest = f"{rest}:{DEFAULT_PORT}"
    try:
        host, _ = parse_address(rest)
    except InvalidConfig:
        host = ""
    if not host or not {" ", ","}.isdisjoint(host):
        raise click.BadParameter(
            f"{text!r} is not HOST or HOST:PORT, such as localhost:9092; separate several with commas",
            param_hint=option,
        )
    return rest


def reach(target: Target) -> None:
    """Fails with the error of each address if no connection is possible."""
    from barnabas.client.settings import parse_address

    reasons = []
    for text in target.bootstrap.split(","):
        host, port = parse_address(text)
        reason = why_unreachable(host, port)
        if reason is None:
            return
        reasons.append(f"{text} ({reason})")
    fail(
        f"no broker answers at {', '.join(reasons)}{f', from {target.source}' if target.source else ''}. Check that a"
        " broker runs there (`barnabas start` starts one), or name another with -b HOST:PORT",
        UNREACHABLE,
    )


def why_unreachable(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
    except socket.gaierror:
        return "unknown host"
    except TimeoutError:
        return f"no connection within {CONNECT_TIMEOUT_S:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


def described_topics(admin: Admin, names: Sequence[str]) -> dict[str, TopicDescription]:
    """Describes topics; fails if one does not exist, and suggests the nearest name."""
    from barnabas.client.admin.errors import AdminErrors
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
    told = "; ".join(f"there is no topic {name}{nearest(name, known)}" for name in unknown)
    if not known:
        told += " (there are no topics at all)"
    if advice:
        told += f"{'' if told.endswith('?') else '.'} {advice}"
    fail(told, NOT_FOUND)


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
    """Names for shell completion. After any error there are no names: a user who presses a key sees no message."""
    return _complete(context, incomplete, lambda admin: [topic.name for topic in admin.list_topics()])


def complete_groups(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _complete(context, incomplete, lambda admin: [group.group_id for group in admin.list_groups()])


def _complete(
    context: click.Context, incomplete: str, names: Callable[[Admin], list[str]]
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    try:
        target = target_of(given_options(context))._replace(timeout_ms=COMPLETION_TIMEOUT_MS)
        with target.admin() as admin:
            return [CompletionItem(name) for name in names(admin) if name.startswith(incomplete)]
    except Exception:
        return []
