"""Arguments that several commands take: NAME=VALUE, TOPIC[:P,…], and a person's yes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from barnabas.cli.exit_codes import NOT_FOUND
from barnabas.cli.output import fail, nearest
from barnabas.cli.target import described_topics

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.admin_results import ConfigResource
    from barnabas.model import TopicPartition


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
    """What TOPIC[:P,…] texts stand for, checked against the topics there are."""
    from barnabas.model import TopicPartition

    wanted: dict[str, list[int]] = {}
    for text in texts:
        # Names of topics have no colon.
        name, _, numbers = text.partition(":")
        try:
            wanted.setdefault(name, []).extend(int(number) for number in numbers.split(",") if number.strip())
        except ValueError:
            raise click.UsageError(f"{text!r} is not TOPIC or TOPIC:0,1.") from None
    described = described_topics(admin, list(wanted))
    partitions = set()
    for name, chosen in wanted.items():
        known = {each.partition for each in described[name].partitions}
        for number in chosen or known:
            if number not in known:
                fail(f"{name} has the partitions 0 to {max(known)}, not {number}", NOT_FOUND)
            partitions.add(TopicPartition(name, number))
    return sorted(partitions)


def check_setting_names(admin: Admin, resource: ConfigResource, names: Sequence[str]) -> None:
    """A name that nothing has is refused with the nearest one there is; brokers only say that it is unknown."""
    known = admin.describe_configs(resource)[resource]
    for name in names:
        if name not in known and (hint := nearest(name, known)):
            fail(f"a {resource.type.name.lower()} has no setting {name}{hint}")


def confirm(question: str) -> None:
    """Asks a person; whoever runs a script says --yes."""
    if not sys.stdin.isatty():
        fail(f"{question} There is nobody to ask: say so with --yes")
    click.confirm(question, abort=True, err=True)
