"""`barnabas topics delete-records`: the oldest records of partitions, deleted before an offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.shared.arguments import check_partitions, confirm, execute_option, partitions_of, yes_option
from barnabas.cli.shared.offset_files import read_offsets_json
from barnabas.cli.shared.output import Column, count_text, fail, note, show, show_json
from barnabas.cli.shared.ranges import WHERE_HELP, Where, parse_where
from barnabas.cli.shared.target import Target, cluster_command, complete_topics

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.model import TopicPartition
    from barnabas.views.offsets import LogRange

DELETED: Final = (
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("first_offset", "first"),
    Column("new_first_offset", "new first"),
    Column("end_offset", "end"),
    Column("deleted", "deleted"),
)
# As in Kafka: up to the high watermark.
ALL_RECORDS: Final = -1


@click.command(
    name="delete-records",
    epilog="""\b
Examples:
  barnabas topics delete-records orders --before end               preview: all records
  barnabas topics delete-records orders:0 --before 1200 --execute
  barnabas topics delete-records orders --before 7d --yes          older than a week
  barnabas topics delete-records --from-file offsets.json --execute""",
)
@click.argument("topics", nargs=-1, metavar="[TOPIC[:P,...]]...", shell_complete=complete_topics)
@click.option("--before", metavar="WHERE", help=f"Delete all records before this position: {WHERE_HELP}.")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Partitions and offsets in a JSON file, in the format of kafka-delete-records.",
)
@execute_option
@yes_option
@cluster_command
def delete_records(
    target: Target,
    topics: tuple[str, ...],
    before: str | None,
    from_file: str | None,
    execute: bool,
    yes: bool,
) -> None:
    """Delete the oldest records of partitions, those before an offset or a time.

    Offsets of other records do not change.
    """
    from barnabas.views.offsets import log_ranges

    if (from_file is None) == (not topics or before is None) or (from_file and (topics or before)):
        raise click.UsageError("Name topics and --before WHERE, or --from-file FILE.")
    where = None if before is None else parse_where(before, "--before")
    wanted = {} if from_file is None else read_offsets_json(from_file)
    execute = execute or yes
    with target.admin() as admin:
        if wanted:
            check_partitions(admin, wanted)
        partitions = sorted(wanted) or partitions_of(admin, topics)
        ranges = log_ranges(admin, partitions)
        if where is not None:
            wanted = _wanted(admin, ranges, where)
        _check(wanted, ranges)
        new = {each: ranges[each].nearest(wanted[each]) for each in partitions}
        new |= {each: ranges[each].end_offset for each in partitions if wanted[each] == ALL_RECORDS}
        affected = {each: offset for each, offset in new.items() if offset > ranges[each].first_offset}
        deleted = sum(offset - ranges[each].first_offset for each, offset in affected.items())
        if not target.as_json:
            show(_rows(ranges, new, is_executed=False), DELETED, as_json=False, nothing="no partitions")
        if execute and affected:
            confirm(
                f"delete {count_text(deleted, 'record')} of {count_text(len(affected), 'partition')}", yes=yes
            )
            new |= admin.delete_records(affected)
    if target.as_json:
        show_json(_rows(ranges, new, is_executed=execute))
    else:
        _tell(deleted, execute=execute)


def _tell(deleted: int, *, execute: bool) -> None:
    if not deleted:
        note("no records to delete")
    else:
        note(
            f"{count_text(deleted, 'record')} deleted"
            if execute
            else "Nothing was deleted. Use --execute to delete the records."
        )


def _wanted(
    admin: Admin, ranges: Mapping[TopicPartition, LogRange], where: Where
) -> dict[TopicPartition, int]:
    if where.kind == "beginning":
        return {partition: each.first_offset for partition, each in ranges.items()}
    if where.kind == "end":
        return dict.fromkeys(ranges, ALL_RECORDS)
    if where.kind == "time":
        listed = admin.list_offsets(dict.fromkeys(ranges, where.number))
        return {
            partition: each.end_offset if (found := listed[partition].offset) is None else found
            for partition, each in ranges.items()
        }
    if where.kind == "last":
        return {
            partition: max(each.end_offset - where.number, each.first_offset)
            for partition, each in ranges.items()
        }
    return dict.fromkeys(ranges, where.number)


def _check(wanted: Mapping[TopicPartition, int], ranges: Mapping[TopicPartition, LogRange]) -> None:
    for partition, offset in wanted.items():
        end_offset = ranges[partition].end_offset
        if offset < ALL_RECORDS or offset > end_offset:
            fail(f"{partition} ends at offset {end_offset}: records before {offset} cannot be deleted")


def _rows(
    ranges: Mapping[TopicPartition, LogRange],
    new: Mapping[TopicPartition, int],
    *,
    is_executed: bool,
) -> list[dict[str, Any]]:
    return [
        {
            "topic": each.topic,
            "partition": each.partition,
            "first_offset": ranges[each].first_offset,
            "new_first_offset": offset,
            "end_offset": ranges[each].end_offset,
            "deleted": offset - ranges[each].first_offset,
            "executed": is_executed,
        }
        for each, offset in new.items()
    ]
