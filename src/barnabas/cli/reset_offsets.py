"""`barnabas groups reset-offsets`: new offsets for a group, by place, by time, or from a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.shared.arguments import (
    check_partitions,
    confirm,
    execute_option,
    partitions_of,
    topics_option,
    yes_option,
)
from barnabas.cli.shared.offset_files import read_offsets_csv, write_offsets_csv
from barnabas.cli.shared.output import Column, count_text, fail, note, show, show_json
from barnabas.cli.shared.target import (
    Target,
    cluster_command,
    complete_groups,
    missing_groups,
)
from barnabas.cli.shared.times import parse_duration_ms, parse_time_ms

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.results import CommittedOffset
    from barnabas.model import TopicPartition

RESET: Final = (
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("committed_offset", "committed"),
    Column("new_offset", "new"),
    Column("change", "change"),
)


@click.command(
    name="reset-offsets",
    epilog="""\b
Examples:
  barnabas groups reset-offsets billing --topic orders --to-earliest
  barnabas groups reset-offsets billing --topic orders:0,1 --shift-by -100 --execute
  barnabas groups reset-offsets billing --all-topics --to-time 2026-01-31T12:00:00 --yes
  barnabas groups reset-offsets billing --all-topics --to-current --export > offsets.csv
  barnabas groups reset-offsets billing --from-file offsets.csv --execute""",
)
@click.argument("group", metavar="GROUP", shell_complete=complete_groups)
@topics_option()
@click.option("--all-topics", is_flag=True, help="All partitions for which the group has offsets.")
@click.option("--to-earliest", is_flag=True, help="Start with the first record.")
@click.option("--to-latest", is_flag=True, help="Start after the last record.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="Start at this offset.")
@click.option(
    "--shift-by", type=int, metavar="N", help="Move by N records: forward, or back if N is negative."
)
@click.option(
    "--to-time",
    metavar="TIME",
    help="Start with the first record at or after a time, such as 2026-01-31T12:00.",
)
@click.option(
    "--by-duration", metavar="DURATION", help="Start with the first record of the last 30s, 15m, 2h or 7d."
)
@click.option("--to-current", is_flag=True, help="Keep the offsets, to show or export them.")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Read offsets from a CSV file (topic,partition,offset), as kafka-consumer-groups does.",
)
@click.option("--export", "is_exported", is_flag=True, help="Print the new offsets as CSV, for --from-file.")
@execute_option
@yes_option
@cluster_command
def reset_offsets(
    target: Target,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    is_exported: bool,
    execute: bool,
    yes: bool,
    **ways: Any,
) -> None:
    """Set the offsets of a group that has no active members.

    An offset that is out of range becomes the nearest one in range.
    """
    chosen = {name: value for name, value in ways.items() if value is not None and value is not False}
    if len(chosen) != 1:
        raise click.UsageError(
            "Use exactly one of --to-earliest, --to-latest, --to-offset, --shift-by, --to-time, --by-duration,"
            " --to-current, --from-file."
        )
    if not group:
        raise click.UsageError("Name a GROUP.")
    if is_exported and target.as_json:
        raise click.UsageError("--export and --json do not go together.")
    way, value = chosen.popitem()
    has_file = way == "from_file"
    if has_file and (topics or all_topics):
        raise click.UsageError(
            "--from-file names the partitions: do not use --topic or --all-topics with it."
        )
    if not has_file and bool(topics) == all_topics:
        raise click.UsageError("Specify partitions: --topic TOPIC[:P,...], or --all-topics.")
    from_file = read_offsets_csv(value, group) if has_file else {}
    execute = execute or yes
    with target.admin() as admin:
        committed = admin.list_group_offsets(group)
        if has_file:
            partitions = sorted(from_file)
            check_partitions(admin, partitions)
        elif all_topics:
            if not committed:
                _refuse_without_offsets(admin, group)
            partitions = list(committed)
        else:
            partitions = partitions_of(admin, topics)
        new = _new_offsets(admin, partitions, committed, way, from_file if has_file else value)
        if execute:
            _refuse_if_active(admin, group)
        rows = _rows(group, partitions, committed, new, is_executed=execute)
        if is_exported:
            write_offsets_csv(new)
        elif not target.as_json:
            show(rows, RESET, as_json=False, nothing="no partitions")
        if execute:
            confirm(f"reset {count_text(len(partitions), 'offset')} of {group}", yes=yes)
            admin.alter_group_offsets(group, new)
    if target.as_json:
        show_json(rows)
    elif execute or not is_exported:
        note("done" if execute else "Nothing was changed. Use --execute to make the changes.")


def _rows(
    group: str,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    new: dict[TopicPartition, int],
    *,
    is_executed: bool,
) -> list[dict[str, Any]]:
    rows = []
    for partition in partitions:
        before = committed[partition].offset if partition in committed else None
        rows.append(
            {
                "group": group,
                "topic": partition.topic,
                "partition": partition.partition,
                "committed_offset": before,
                "new_offset": new[partition],
                "change": None if before is None else new[partition] - before,
                "executed": is_executed,
            }
        )
    return rows


def _new_offsets(
    admin: Admin,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    way: str,
    value: Any,
) -> dict[TopicPartition, int]:
    """The new offset of each partition, within its records."""
    from barnabas.clock import SystemClock
    from barnabas.views.group_reset import ResetTo, new_offsets
    from barnabas.views.offsets import log_ranges

    if way == "from_file":
        ranges = log_ranges(admin, partitions)
        return {each: ranges[each].nearest(value[each]) for each in partitions}
    if way in ("shift_by", "to_current"):
        for each in partitions:
            if each not in committed:
                fail(f"the group has no offset for {each}; use another option than --{way.replace('_', '-')}")
    if way == "to_time":
        value = parse_time_ms(value, "--to-time")
    elif way == "by_duration":
        value = SystemClock().now_ms() - parse_duration_ms(value, "--by-duration")
    to = {
        "to_earliest": ResetTo.EARLIEST,
        "to_latest": ResetTo.LATEST,
        "to_offset": ResetTo.OFFSET,
        "shift_by": ResetTo.SHIFT,
        "to_current": ResetTo.SHIFT,
        "to_time": ResetTo.TIME,
        "by_duration": ResetTo.TIME,
    }[way]
    return new_offsets(admin, partitions, committed, to, 0 if isinstance(value, bool) else value)


def _refuse_without_offsets(admin: Admin, group: str) -> None:
    if group not in {each.group_id for each in admin.list_groups()}:
        missing_groups(admin, [group])
    fail(f"{group} has no offsets to reset; name topics with --topic")


def _refuse_if_active(admin: Admin, group: str) -> None:
    from barnabas.errors import GroupIdNotFound

    try:
        described = admin.describe_groups([group])[group]
    except GroupIdNotFound:
        # Offsets may be set for a group that does not exist yet.
        return
    if described.members:
        fail(
            f"{group} has {count_text(len(described.members), 'member')}, which would ignore the reset: stop them first"
        )
