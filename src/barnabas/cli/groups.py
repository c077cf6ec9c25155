"""`barnabas groups`: consumer groups, their members, offsets and lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.arguments import confirm, partitions_of
from barnabas.cli.output import Column, count_text, fail, note, show, show_json
from barnabas.cli.target import Target, cluster_command, complete_groups, complete_topics, missing_groups
from barnabas.cli.times import parse_duration_ms, parse_time_ms

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.admin_results import CommittedOffset, GroupDescription, ListedOffset
    from barnabas.model import TopicPartition

LISTED: Final = (
    Column("group", "group"),
    Column("type", "type"),
    Column("state", "state"),
    Column("protocol_type", "protocol"),
)
OFFSETS: Final = (
    Column("group", "group"),
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("committed_offset", "committed"),
    Column("end_offset", "end"),
    Column("lag", "lag"),
    Column("member_id", "member"),
    Column("client_id", "client"),
    Column("host", "host"),
)
MEMBERS: Final = (
    Column("group", "group"),
    Column("member_id", "member"),
    Column("instance_id", "instance"),
    Column("client_id", "client"),
    Column("host", "host"),
    Column("member_epoch", "epoch"),
    Column("partition_count", "partitions"),
    Column("assignment", "assignment"),
)
RESET: Final = (
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("committed_offset", "committed"),
    Column("new_offset", "new"),
    Column("change", "change"),
)
_STATES: Final = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Assigning",
    "Reconciling",
)


@click.group()
def groups() -> None:
    """Consumer groups: members, lag, offsets."""


@groups.command(name="list")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_STATES, case_sensitive=False), help="Only these."
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(["classic", "consumer"], case_sensitive=False),
    help="Only these.",
)
@cluster_command
def list_groups(target: Target, states: tuple[str, ...], types: tuple[str, ...]) -> None:
    """List groups."""
    with target.admin() as admin:
        listed = admin.list_groups(states=states, types=types)
    rows = [
        {
            "group": group.group_id,
            "type": group.type,
            "state": group.state,
            "protocol_type": group.protocol_type,
        }
        for group in listed
    ]
    show(rows, LISTED, as_json=target.as_json, nothing="no groups")


@groups.command()
@click.argument("names", nargs=-1, metavar="GROUP...", shell_complete=complete_groups)
@click.option("--members", is_flag=True, help="The members and what they are assigned, instead of offsets.")
@cluster_command
def describe(target: Target, names: tuple[str, ...], members: bool) -> None:
    """Show the offsets and the lag of groups, of all if none is named."""
    with target.admin() as admin:
        described = _described(admin, names)
        offsets = [] if members else [row for group in described for row in _lag_rows(admin, group)]
    if target.as_json:
        show_json([_group_row(group, offsets, members) for group in described])
        return
    if not described:
        note("no groups")
    for group in described:
        click.echo(
            f"{group.group_id}: {group.state}, {group.type}"
            f"{f', assignor {group.assignor}' if group.assignor else ''}, coordinator {group.coordinator},"
            f" {count_text(len(group.members), 'member')}"
        )
    if members:
        rows = [row for group in described for row in _member_rows(group)]
        shown = [column for column in MEMBERS if _any(rows, column.key)]
        show(rows, shown, as_json=False, nothing="no members")
    elif described:
        shown = [
            column
            for column in OFFSETS
            if column.key in ("lag", "committed_offset") or _any(offsets, column.key)
        ]
        show(offsets, shown, as_json=False, nothing="no offsets are committed")


def _any(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return any(row.get(key) is not None for row in rows)


def _described(admin: Admin, names: Sequence[str]) -> list[GroupDescription]:
    from barnabas.client.admin_core import AdminErrors
    from barnabas.errors import GroupIdNotFound

    wanted = list(names) or [group.group_id for group in admin.list_groups(types=["classic", "consumer"])]
    if not wanted:
        return []
    try:
        return list(admin.describe_groups(wanted).values())
    except GroupIdNotFound:
        missing_groups(admin, wanted)
    except AdminErrors as failed:
        if any(isinstance(error, GroupIdNotFound) for error in failed.errors.values()):
            missing_groups(admin, wanted)
        raise


def _lag_rows(admin: Admin, group: GroupDescription) -> list[dict[str, Any]]:
    """A row for each partition with a committed offset or a member that reads it."""
    committed = admin.list_group_offsets(group.group_id)
    readers = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted(committed.keys() | readers.keys())
    ends = _listed(admin, dict.fromkeys(partitions, -1))
    rows = []
    for partition in partitions:
        offset = committed[partition].offset if partition in committed else None
        end = ends[partition].offset if partition in ends else None
        member = readers.get(partition)
        rows.append(
            {
                "group": group.group_id,
                "topic": partition.topic,
                "partition": partition.partition,
                "committed_offset": offset,
                "end_offset": end,
                "lag": None if offset is None or end is None else max(0, end - offset),
                "metadata": committed[partition].metadata if partition in committed else "",
                "member_id": None if member is None else member.member_id,
                "client_id": None if member is None else member.client_id,
                "host": None if member is None else member.host,
            }
        )
    return rows


def _listed(admin: Admin, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
    """Offsets, as far as they can be had: a topic may be gone, a partition without a leader."""
    from barnabas.client.admin_core import AdminErrors
    from barnabas.errors import KafkaError

    try:
        return admin.list_offsets(wanted) if wanted else {}
    except AdminErrors as failed:
        return dict(failed.results)
    except KafkaError:
        return {}


def _member_rows(group: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "group": group.group_id,
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "host": member.host,
            "member_epoch": member.member_epoch,
            "partition_count": len(member.assignment),
            "assignment": [str(partition) for partition in member.assignment],
        }
        for member in group.members
    ]


def _group_row(group: GroupDescription, offsets: list[dict[str, Any]], members: bool) -> dict[str, Any]:
    row = {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "group_epoch": group.group_epoch,
        "members": _member_rows(group),
    }
    if not members:
        row["offsets"] = [each for each in offsets if each["group"] == group.group_id]
    return row


@groups.command(
    name="reset-offsets",
    epilog="""\b
Examples:
  barnabas groups reset-offsets billing --topic orders --to-earliest
  barnabas groups reset-offsets billing --topic orders:0,1 --shift-by -100 --execute
  barnabas groups reset-offsets billing --all-topics --to-time 2026-01-31T12:00:00 --execute""",
)
@click.argument("group", metavar="GROUP", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,…]",
    help="A topic, or some of its partitions. May be repeated.",
    shell_complete=complete_topics,
)
@click.option("--all-topics", is_flag=True, help="All partitions that the group has offsets of.")
@click.option("--to-earliest", is_flag=True, help="To the first record there is.")
@click.option("--to-latest", is_flag=True, help="Behind the last record there is.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Forwards, or with a minus backwards.")
@click.option("--to-time", metavar="TIME", help="To the first record at or after a time.")
@click.option("--by-duration", metavar="DURATION", help="To the first record of the last 30s, 15m, 2h, 7d.")
@click.option("--to-current", is_flag=True, help="Leave them as they are; to see or export them.")
@click.option("--execute", is_flag=True, help="Do it. Without this, what would be done is only shown.")
@cluster_command
def reset_offsets(
    target: Target, group: str, topics: tuple[str, ...], all_topics: bool, execute: bool, **ways: Any
) -> None:
    """Set the offsets of a group that has no members at the moment.

    An offset beyond the records there are becomes the nearest one.
    """
    chosen = {name: value for name, value in ways.items() if value is not None and value is not False}
    if len(chosen) != 1:
        raise click.UsageError(
            "Say where to with one of --to-earliest, --to-latest, --to-offset, --shift-by, --to-time, --by-duration,"
            " --to-current."
        )
    if not group:
        raise click.UsageError("Name a GROUP.")
    if bool(topics) == all_topics:
        raise click.UsageError("Say which partitions: --topic TOPIC[:P,…], or --all-topics.")
    with target.admin() as admin:
        committed = admin.list_group_offsets(group)
        if all_topics:
            if not committed:
                _described(admin, [group])
                fail(f"{group} has no offsets to reset; name topics with --topic")
            partitions = list(committed)
        else:
            partitions = partitions_of(admin, topics)
        new = _new_offsets(admin, partitions, committed, *chosen.popitem())
        if execute:
            _refuse_if_active(admin, group)
            admin.alter_group_offsets(group, new)
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
                "executed": execute,
            }
        )
    show(rows, RESET, as_json=target.as_json, nothing="no partitions")
    if not target.as_json:
        note("done" if execute else "nothing was changed: add --execute to do it")


def _new_offsets(
    admin: Admin,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    way: str,
    value: Any,
) -> dict[TopicPartition, int]:
    """The offset that each partition gets, within the records there are."""
    from barnabas.clock import SystemClock

    first = {
        each: found.offset or 0 for each, found in admin.list_offsets(dict.fromkeys(partitions, -2)).items()
    }
    end = {
        each: found.offset or 0 for each, found in admin.list_offsets(dict.fromkeys(partitions, -1)).items()
    }
    if way in ("to_time", "by_duration"):
        if way == "to_time":
            time_ms = parse_time_ms(value, "--to-time")
        else:
            time_ms = SystemClock().now_ms() - parse_duration_ms(value, "--by-duration")
        found = admin.list_offsets(dict.fromkeys(partitions, max(0, time_ms)))
        return {each: end[each] if (offset := found[each].offset) is None else offset for each in partitions}
    wanted: dict[TopicPartition, int] = {}
    for each in partitions:
        if way == "to_earliest":
            offset = first[each]
        elif way == "to_latest":
            offset = end[each]
        elif way == "to_offset":
            offset = value
        else:
            if each not in committed:
                fail(
                    f"the group has no offset of {each} to begin with; use another way than --{way.replace('_', '-')}"
                )
            offset = committed[each].offset + (value if way == "shift_by" else 0)
        wanted[each] = min(max(offset, first[each]), end[each])
    return wanted


def _refuse_if_active(admin: Admin, group: str) -> None:
    from barnabas.errors import GroupIdNotFound

    try:
        described = admin.describe_groups([group])[group]
    except GroupIdNotFound:
        # Offsets may be set for a group that is yet to come.
        return
    if described.members:
        fail(
            f"{group} has {count_text(len(described.members), 'member')}, who would go on where they are: stop them"
            " first"
        )


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cluster_command
def delete(target: Target, names: tuple[str, ...], yes: bool) -> None:
    """Delete groups that have no members, with their offsets."""
    with target.admin() as admin:
        described = _described(admin, names)
        for group in described:
            if group.members:
                fail(
                    f"{group.group_id} has {count_text(len(group.members), 'member')}: stop them first, or take them"
                    " out with barnabas groups remove-members"
                )
        if not yes:
            confirm(f"Delete {count_text(len(names), 'group')} with their offsets: {', '.join(names)}?")
        admin.delete_groups(names)
    _tell_all(target, names, "deleted")


@groups.command(name="delete-offsets")
@click.argument("group", metavar="GROUP", shell_complete=complete_groups)
@click.option("--topic", "topics", multiple=True, required=True, metavar="TOPIC[:P,…]", help="Whose offsets.")
@cluster_command
def delete_offsets(target: Target, group: str, topics: tuple[str, ...]) -> None:
    """Forget a group's offsets of topics that it does not read any more."""
    with target.admin() as admin:
        _described(admin, [group])
        partitions = partitions_of(admin, topics)
        admin.delete_group_offsets(group, partitions)
    _tell_all(target, [str(partition) for partition in partitions], "offset deleted")


@groups.command(name="remove-members")
@click.argument("group", metavar="GROUP", shell_complete=complete_groups)
@click.option(
    "--instance", "instances", multiple=True, metavar="ID", help="A static member. May be repeated."
)
@click.option("--all", "everybody", is_flag=True, help="All members.")
@click.option(
    "--reason", default="removed by barnabas groups", show_default=True, help="For the broker's log."
)
@cluster_command
def remove_members(
    target: Target, group: str, instances: tuple[str, ...], everybody: bool, reason: str
) -> None:
    """Take members out of a group. One that still runs comes back by itself."""
    if bool(instances) == everybody:
        raise click.UsageError("Say whom: --instance ID, or --all.")
    with target.admin() as admin:
        described = _described(admin, [group])[0]
        admin.remove_members(group, instances or None, reason=reason)
    names = list(instances) or [member.member_id for member in described.members]
    _tell_all(target, names, "removed")


def _tell_all(target: Target, names: Sequence[str], what: str) -> None:
    if target.as_json:
        show_json([{"name": name, "done": what} for name in names])
        return
    for name in names:
        click.echo(f"{name}: {what}")
