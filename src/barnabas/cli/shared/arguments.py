"""Arguments that several commands take: NAME=VALUE, TOPIC[:P,...], and confirmations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.shared.exit_codes import NOT_FOUND
from barnabas.cli.shared.output import fail, nearest
from barnabas.cli.shared.target import complete_topics, described_topics

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.results import ConfigResource, TopicDescription
    from barnabas.model import TopicPartition


# Kafka numbers partitions with 32 bits; no topic has a million of them.
PARTITION_MAX: Final = 1_000_000


def parse_pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    """NAME=VALUE texts."""
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name.strip() or not equals:
            raise click.UsageError(f"{text!r} is not NAME=VALUE, such as retention.ms=60000.")
        pairs.append((name.strip(), value))
    return pairs


def partitions_of(admin: Admin, texts: Sequence[str]) -> list[TopicPartition]:
    """The partitions of TOPIC[:P,...] texts, checked against the existing topics; P is a number or a range, 0-3."""
    from barnabas.model import TopicPartition

    wanted: dict[str, list[int]] = {}
    for text in texts:
        # Names of topics have no colon.
        name, _, numbers = text.partition(":")
        wanted.setdefault(name, []).extend(_parse_partitions(text, numbers))
    described = described_topics(admin, list(wanted))
    partitions = [
        TopicPartition(name, number)
        for name, chosen in wanted.items()
        for number in sorted(set(chosen)) or [each.partition for each in described[name].partitions]
    ]
    _check_numbers(described, partitions)
    return sorted(partitions)


def _parse_partitions(text: str, numbers: str) -> list[int]:
    found: list[int] = []
    for part in numbers.split(",") if numbers.strip() else ():
        first, dash, last = part.strip().partition("-")
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdigit() and int(end) <= PARTITION_MAX for end in ends):
            raise click.UsageError(f"{text!r} is not TOPIC, TOPIC:0,1 or TOPIC:0-3.")
        found += range(int(ends[0]), int(ends[1]) + 1)
    return found


def check_partitions(admin: Admin, partitions: Iterable[TopicPartition]) -> None:
    """Fails if there is no such topic or partition."""
    _check_numbers(described_topics(admin, sorted({each.topic for each in partitions})), partitions)


def _check_numbers(described: dict[str, TopicDescription], partitions: Iterable[TopicPartition]) -> None:
    for name, number in partitions:
        known = {each.partition for each in described[name].partitions}
        if number not in known:
            fail(f"{name} has no partition {number}; it has partitions 0 to {max(known)}", NOT_FOUND)


def topics_option(
    help_text: str = "A topic, or some of its partitions. May be repeated.", *, required: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--topic TOPIC[:P,...], for `partitions_of`."""
    return click.option(
        "--topic",
        "topics",
        multiple=True,
        required=required,
        metavar="TOPIC[:P,...]",
        help=help_text,
        shell_complete=complete_topics,
    )


internal_option: Final = click.option(
    "--internal", is_flag=True, help="Include internal topics, such as __consumer_offsets."
)


def check_setting_names(admin: Admin, resource: ConfigResource, names: Sequence[str]) -> None:
    """Fails for an unknown name and suggests the nearest known one; brokers only say that a name is unknown."""
    known = admin.describe_configs(resource)[resource]
    for name in names:
        if name not in known and (hint := nearest(name, known)):
            fail(f"a {resource.type.name.lower()} has no setting {name}{hint}")


execute_option: Final = click.option(
    "--execute",
    is_flag=True,
    help="Make the changes, after a confirmation. Without this or --yes, only show them.",
)
yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(action: str, *, yes: bool) -> None:
    """Asks for confirmation before something is deleted or reset. Without a terminal, --yes is required.

    The action begins with a verb: `delete 2 topics`.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        fail(f"Refusing to {action} without confirmation. Use --yes.")
    if not click.confirm(f"{action[0].upper()}{action[1:]}?", err=True):
        fail("nothing was changed")
