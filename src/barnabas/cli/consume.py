"""`barnabas consume`: records of topics, printed."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.shared.arguments import partitions_of
from barnabas.cli.shared.client_settings import parse_client_settings
from barnabas.cli.shared.exit_codes import NOT_FOUND
from barnabas.cli.shared.formats import formatter
from barnabas.cli.shared.output import count_text, fail, note, printable
from barnabas.cli.shared.progress import goes_to_a_file, progress_bar
from barnabas.cli.shared.ranges import POLL_MS, WHERE_HELP, Range, parse_where
from barnabas.cli.shared.record_options import follow_option, isolation_option, settings_option, until_option
from barnabas.cli.shared.target import (
    Target,
    cluster_command,
    complete_groups,
    complete_topics,
    described_topics,
)

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.consumer.record import ConsumerRecord
    from barnabas.model import TopicPartition


@click.command(
    epilog="""\b
Examples:
  barnabas consume orders                          all records, then exit
  barnabas consume orders --from end --follow      records from now on
  barnabas consume orders:0 --from -10             the last ten of a partition
  barnabas consume orders payments --json          several topics
  barnabas consume --regex 'orders-.*'             all topics with such names
  barnabas consume orders --from 2h --until 1h --json
  barnabas consume orders --group billing -n 100   as a member of a group
  barnabas consume orders --format '{partition}:{offset} {key} {value}'"""
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:P,...]...", shell_complete=complete_topics)
@click.option(
    "-r",
    "--regex",
    is_flag=True,
    help="TOPIC is a regular expression that matches whole names. --group with --follow also reads new topics.",
)
@click.option(
    "--from",
    "start",
    default=None,
    metavar="WHERE",
    help=f"Where to start: {WHERE_HELP}.  [default: beginning]",
)
@until_option
@follow_option
@click.option(
    "-n", "--max", "max_records", type=click.IntRange(min=1), metavar="N", help="Stop after N records."
)
@click.option(
    "-g",
    "--group",
    metavar="GROUP",
    help="Join this group, start at its offsets and commit them. --from is for a group without offsets.",
    shell_complete=complete_groups,
)
@click.option(
    "--format",
    "form",
    default="value",
    show_default=True,
    metavar="FORMAT",
    help="value, key-value, json, or a template with {topic} {partition} {offset} {timestamp} {time} {key} {value}"
    " {headers} {size}.",
)
@click.option(
    "-k", "--key-separator", default="\t", metavar="TEXT", help="Between key and value.  [default: tab]"
)
@click.option(
    "--null", default="null", show_default=True, metavar="TEXT", help="Text for a null key or value."
)
@isolation_option("read_uncommitted")
@settings_option("consumer")
@cluster_command
def consume(
    target: Target,
    topics: tuple[str, ...],
    regex: bool,
    start: str | None,
    until: str | None,
    follow: bool,
    max_records: int | None,
    group: str | None,
    form: str,
    key_separator: str,
    null: str,
    isolation: str,
    settings: tuple[str, ...],
) -> None:
    """Print the records of topics, then exit; with --follow, wait for more."""
    if group is not None and (until is not None or (not regex and any(":" in topic for topic in topics))):
        raise click.UsageError("A group assigns the partitions: --group excludes --until and TOPIC:P.")
    if follow and until is not None:
        raise click.UsageError("--follow and --until do not go together.")
    show = formatter("json" if target.as_json else form, key_separator, null)
    begin = parse_where(start or "beginning", "--from")
    end = None if follow else parse_where(until or "end", "--until")
    chosen = {"isolation.level": isolation, **parse_client_settings("consumer", settings)}
    pattern = _pattern(topics) if regex else None
    with target.admin() as admin:
        named = topics if pattern is None else _matching(admin, pattern, topics)
        if group is None:
            partitions = partitions_of(admin, named)
        else:
            described_topics(admin, named)
    if group is not None:
        if start is not None and begin.kind not in ("beginning", "end"):
            raise click.UsageError(
                "With --group, --from is beginning or end, for a group without committed offsets."
                " barnabas groups reset-offsets changes committed offsets."
            )
        reset = "latest" if begin.kind == "end" else "earliest"
        with (
            target.unreachable_is_told(),
            target.admin() as admin,
            open_consumer(target, chosen, group_id=group, auto_offset_reset=reset) as consumer,
        ):
            consumer.subscribe(pattern or list(topics))
            polls = (
                _of_a_group(consumer, max_records)
                if follow
                else _up_to_the_end(consumer, admin, target, max_records, isolation)
            )
            shown = _print(polls, show, None)
    else:
        with target.unreachable_is_told(), open_consumer(target, chosen) as consumer:
            chosen_range = Range(consumer, partitions, begin, end)
            shown = _print(chosen_range.polls(max_records), show, max_records or chosen_range.total)
    if not shown and sys.stdout.isatty():
        note("no records")
    elif sys.stderr.isatty() and goes_to_a_file():
        note(count_text(shown, "record"))


def _pattern(texts: tuple[str, ...]) -> re.Pattern[str]:
    """One expression that matches whole names of topics."""
    for text in texts:
        try:
            re.compile(text)
        except re.error as error:
            raise click.UsageError(f"{text!r} is not a regular expression: {error}.") from None
    try:
        return re.compile(rf"(?:{'|'.join(f'(?:{text})' for text in texts)})\Z")
    except re.error as error:
        raise click.UsageError(f"--regex: {error}.") from None


def _matching(admin: Admin, pattern: re.Pattern[str], texts: tuple[str, ...]) -> tuple[str, ...]:
    """The topics that match, without the internal ones."""
    found = tuple(topic.name for topic in admin.list_topics() if pattern.match(topic.name))
    if not found:
        fail(f"no topic matches {' or '.join(texts)}", NOT_FOUND)
    return found


def open_consumer(target: Target, settings: dict[str, Any], **more: Any) -> Consumer:
    from barnabas.client.consumer.consumer import Consumer

    needed = {"auto_offset_reset": "earliest", "enable_auto_commit": "group_id" in more, **more}
    common = target.client_settings("consumer", default_api_timeout_ms=target.timeout_ms, **needed)
    return Consumer({**common, **settings})


def _print(
    polls: Iterator[list[ConsumerRecord]], show: Callable[[ConsumerRecord], bytes], total: int | None
) -> int:
    count = 0
    output = sys.stdout.buffer
    if sys.stdout.isatty():
        show = _for_a_terminal(show)
    with progress_bar("consuming", total, unit="records", beside_output=True) as advance:
        for records in polls:
            if records:
                output.write(b"".join([show(record) for record in records]))
                # The reader of our output may be waiting for this record.
                output.flush()
                count += len(records)
                advance(len(records))
    return count


def _for_a_terminal(show: Callable[[ConsumerRecord], bytes]) -> Callable[[ConsumerRecord], bytes]:
    """Shows bytes that are not text, and control characters, as \\xNN."""
    return lambda record: printable(show(record).decode(errors="backslashreplace")).encode(
        errors="backslashreplace"
    )


def _of_a_group(consumer: Consumer, max_records: int | None) -> Iterator[list[ConsumerRecord]]:
    """The records that a member of a group receives."""
    left = max_records
    while left is None or left > 0:
        records = consumer.poll(POLL_MS, max_records=left)
        if left is not None:
            left -= len(records)
        yield records


def _up_to_the_end(
    consumer: Consumer, admin: Admin, target: Target, max_records: int | None, isolation: str
) -> Iterator[list[ConsumerRecord]]:
    """The records that a member of a group receives, up to the end offsets of its partitions at their assignment."""
    from barnabas.client.admin.results import IsolationLevel

    assigned: set[TopicPartition] = set()
    ends: dict[TopicPartition, int] = {}
    deadline_s = time.monotonic() + target.timeout_ms / 1000
    for records in _of_a_group(consumer, max_records):
        yield records
        if consumer.assignment() != assigned:
            assigned = consumer.assignment()
            # Not by the consumer: this request would wait behind its fetch, which waits for records at the broker.
            level = IsolationLevel[isolation.upper()]
            found = admin.list_offsets(assigned, isolation=level) if assigned else {}
            ends = {partition: each.offset or 0 for partition, each in found.items()}
        if assigned and all(consumer.position(each) >= ends[each] for each in assigned):
            return
        if not assigned and time.monotonic() > deadline_s:
            fail(
                f"the group assigned no partition within {target.timeout_ms / 1000:g} s: it may have more members"
                " than partitions; --follow keeps waiting"
            )
