"""`barnabas groups`: consumer groups, their members, offsets and lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.reset_offsets import reset_offsets
from barnabas.cli.shared.arguments import confirm, partitions_of, topics_option, yes_option
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import (
    Column,
    count_text,
    fail,
    heading,
    note,
    note_left_out,
    show,
    show_json,
    show_table,
)
from barnabas.cli.shared.target import Target, cluster_command, complete_groups, missing_groups

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.results import GroupDescription
    from barnabas.views.lag import PartitionLag


def _assignment_text(partitions: Sequence[str]) -> str:
    """The partitions by topic, as commands take them: orders:0-2,5 payments:0."""
    by_topic: dict[str, list[int]] = {}
    for each in partitions:
        topic, _, number = each.rpartition("-")
        by_topic.setdefault(topic, []).append(int(number))
    return " ".join(f"{topic}:{_ranges_text(sorted(numbers))}" for topic, numbers in sorted(by_topic.items()))


def _ranges_text(numbers: Sequence[int]) -> str:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


LISTED: Final = (
    Column("group", "group"),
    Column("type", "type"),
    Column("state", "state"),
    Column("protocol_type", "protocol", rank=1),
)
OFFSETS: Final = (
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("committed_offset", "committed"),
    Column("end_offset", "end"),
    Column("lag", "lag"),
    Column("client_id", "client", rank=1),
    Column("host", "host", rank=2),
    Column("member_id", "member", rank=3),
)
MEMBERS: Final = (
    Column("client_id", "client"),
    Column("instance_id", "instance", rank=1),
    Column("host", "host", rank=2),
    Column("member_epoch", "epoch", rank=3),
    Column("member_id", "member", rank=4),
    Column("partition_count", "partitions"),
    Column("assignment", "assignment", _assignment_text),
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


@click.group(cls=ClusterGroup)
def groups() -> None:
    """Show consumer groups, reset their offsets, and delete them."""


@groups.command(name="list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only groups in this state. May be repeated.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(["classic", "consumer"], case_sensitive=False),
    help="Only groups of this type. May be repeated.",
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
@click.argument("names", nargs=-1, metavar="[GROUP]...", shell_complete=complete_groups)
@click.option("--members", is_flag=True, help="Show members and their partitions instead of offsets.")
@cluster_command
def describe(target: Target, names: tuple[str, ...], members: bool) -> None:
    """Show the offsets and the lag of groups. Without GROUP, of all groups."""
    from barnabas.views.lag import group_lag

    with target.admin() as admin:
        described = _described(admin, names)
        lags = [] if members else [each for group in described for each in group_lag(admin, group)]
    offsets = [_lag_row(each) for each in lags]
    if target.as_json:
        show_json([_group_row(group, offsets, members) for group in described])
        return
    if not described:
        note("no groups")
    left_out: list[str] = []
    for number, group in enumerate(described):
        if number:
            click.echo()
        heading(
            f"{group.group_id}: {group.state}, {group.type}"
            f"{f', assignor {group.assignor}' if group.assignor else ''}, coordinator {group.coordinator},"
            f" {count_text(len(group.members), 'member')}"
        )
        if members:
            rows = _member_rows(group)
            shown = [column for column in MEMBERS if _any(rows, column.key)]
        else:
            rows = [row for row in offsets if row["group"] == group.group_id]
            shown = [
                column
                for column in OFFSETS
                if column.key in ("lag", "committed_offset") or _any(rows, column.key)
            ]
        if rows:
            left_out += show_table(rows, shown)
        else:
            note("no members" if members else "no committed offsets")
    note_left_out(left_out)


def _any(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return any(row.get(key) is not None for row in rows)


def _described(admin: Admin, names: Sequence[str]) -> list[GroupDescription]:
    from barnabas.client.admin.errors import AdminErrors
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


def _lag_row(each: PartitionLag) -> dict[str, Any]:
    member = each.member
    return {
        "group": each.group_id,
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "committed_offset": each.committed_offset,
        "end_offset": each.end_offset,
        "lag": each.lag,
        "metadata": each.metadata,
        "member_id": None if member is None else member.member_id,
        "client_id": None if member is None else member.client_id,
        "host": None if member is None else member.host,
    }


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


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups)
@yes_option
@cluster_command
def delete(target: Target, names: tuple[str, ...], yes: bool) -> None:
    """Delete groups that have no members, with their offsets."""
    with target.admin() as admin:
        described = _described(admin, names)
        for group in described:
            if group.members:
                fail(
                    f"{group.group_id} has {count_text(len(group.members), 'member')}: stop them first, or remove"
                    " them with barnabas groups remove-members"
                )
        confirm(f"delete {count_text(len(names), 'group')} with all offsets ({', '.join(names)})", yes=yes)
        admin.delete_groups(names)
    _tell_all(target, names, "deleted")


@groups.command(name="delete-offsets")
@click.argument("group", metavar="GROUP", shell_complete=complete_groups)
@topics_option(required=True)
@yes_option
@cluster_command
def delete_offsets(target: Target, group: str, topics: tuple[str, ...], yes: bool) -> None:
    """Delete a group's offsets for topics that it no longer reads."""
    with target.admin() as admin:
        _described(admin, [group])
        partitions = partitions_of(admin, topics)
        confirm(f"delete the offsets of {group} for {', '.join(topics)}", yes=yes)
        admin.delete_group_offsets(group, partitions)
    _tell_all(target, [str(partition) for partition in partitions], "offset deleted")


@groups.command(name="remove-members")
@click.argument("group", metavar="GROUP", shell_complete=complete_groups)
@click.option(
    "--instance", "instances", multiple=True, metavar="ID", help="A static member. May be repeated."
)
@click.option("--all", "everybody", is_flag=True, help="All members.")
@click.option(
    "--reason", default="removed by barnabas groups", show_default=True, help="A reason for the broker's log."
)
@yes_option
@cluster_command
def remove_members(
    target: Target, group: str, instances: tuple[str, ...], everybody: bool, reason: str, yes: bool
) -> None:
    """Remove members from a group. A member that still runs joins again."""
    if bool(instances) == everybody:
        raise click.UsageError("Specify members: --instance ID, or --all.")
    with target.admin() as admin:
        described = _described(admin, [group])[0]
        whom = ", ".join(instances) or "all members"
        confirm(f"remove {whom} from {group}", yes=yes)
        admin.remove_members(group, instances or None, reason=reason)
    names = list(instances) or [member.member_id for member in described.members]
    _tell_all(target, names, "removed")


def _tell_all(target: Target, names: Sequence[str], what: str) -> None:
    if target.as_json:
        show_json([{"name": name, "done": what} for name in names])
        return
    for name in names:
        click.echo(f"{name}: {what}")


groups.add_command(reset_offsets)
