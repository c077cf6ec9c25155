"""`barnabas log`: inspects, checks and repairs log directories of Barnabas and Apache Kafka without a broker."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.shared.group import CommandGroup
from barnabas.cli.shared.progress import progress_bar

if TYPE_CHECKING:
    from barnabas.log.tools.inspection import Inspection
    from barnabas.model import TopicPartition

DIRECTORY = click.Path(exists=True, file_okay=False)
at_ms_option = click.option(
    "--at-ms",
    type=int,
    metavar="N",
    help="The time by which producer ids expire, in ms since 1970.  [default: now]",
)


@click.group(cls=CommandGroup)
def log() -> None:
    """Inspect, verify and recover log directories.

    If several brokers of one host have their directories in one, it stands for all of them.
    """


@log.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--records", "with_records", is_flag=True, help="Also print the records of each batch of a .log file."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def dump(files: tuple[str, ...], with_records: bool, as_json: bool) -> None:
    """Print the contents of FILES: .log .index .timeindex .txnindex .snapshot, checkpoints, partition.metadata,
    meta.properties, .kafka_cleanshutdown.

    Exits with 1 if a file is damaged.
    """
    from barnabas.log.file_system import DiskFileSystem
    from barnabas.log.tools.dump import dump_file

    fs = DiskFileSystem()
    is_damaged = False
    for path in files:
        if not as_json:
            click.echo(path)
        for row in dump_file(fs, path, with_records=with_records):
            is_damaged = is_damaged or "fault" in row
            click.echo(_json({"file": path, **row}) if as_json else _text(row))
    click.get_current_context().exit(1 if is_damaged else 0)


def _text(row: dict[str, Any]) -> str:
    indent = "    " if "headers" in row else "  "
    return indent + " ".join(
        f"{name}: {_json(value) if isinstance(value, list) else value}" for name, value in row.items()
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@log.command()
@click.argument("directory", type=DIRECTORY)
def verify(directory: str) -> None:
    """Check a log directory, or the directory of one partition, and print each fault with its file and position.

    Changes nothing. Exits with 1 if there is a fault.
    """
    from barnabas.log.file_system import DiskFileSystem
    from barnabas.log.tools.verify import log_bytes, verify_directory

    fs = DiskFileSystem()
    count = 0
    directories = _of_host(directory)
    with progress_bar("verifying", sum(log_bytes(fs, each) for each in directories)) as advance:
        for each in directories:
            for fault in verify_directory(fs, each, advance):
                count += 1
                click.echo(str(fault))
    click.echo(f"{count} fault{'' if count == 1 else 's'}", err=True)
    click.get_current_context().exit(1 if count else 0)


@log.command()
@click.argument("directory", type=DIRECTORY)
@click.option("--topic", metavar="T", help="Only this topic.")
@click.option("--partition", type=int, metavar="P", help="Only this partition.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_uncommitted",
    show_default=True,
    help="Whether to omit records of aborted and open transactions.",
)
def records(directory: str, topic: str | None, partition: int | None, isolation: str) -> None:
    """Print the records of a log directory, one JSON object per line; keys, values and header values are in hex.

    A broker may be using the directory, or a crash may have left it: the command does not print what recovery would
    truncate.
    """
    from barnabas.log.partition.read import Isolation

    level = Isolation.TXN_COMMITTED if isolation == "read_committed" else Isolation.HIGH_WATERMARK
    for inspection, chosen in _inspected(directory, None, topic, partition):
        for header, record in inspection.records(chosen, level):
            row = {
                "topic": chosen.topic,
                "partition": chosen.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "timestamp_type": header.timestamp_type.label,
                "key": _hex(record.key),
                "value": _hex(record.value),
                "headers": [[name, _hex(value)] for name, value in record.headers],
            }
            # click.echo would flush each line.
            sys.stdout.write(_json(row) + "\n")


@log.command()
@click.argument("directory", type=DIRECTORY)
@click.option("--topic", metavar="T", help="Only this topic.")
@click.option("--partition", type=int, metavar="P", help="Only this partition.")
@at_ms_option
@click.option(
    "--times", default="", metavar="T,…", help="Also print the offsets at these times, in ms since 1970."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def describe(
    directory: str, topic: str | None, partition: int | None, at_ms: int | None, times: str, as_json: bool
) -> None:
    """Print what a broker would answer about the partitions of a log directory: offsets, producers, leader epochs.

    An offset is [offset, timestamp, leader epoch]. Changes nothing.
    """
    from barnabas.log.tools.inspection import describe as describe_log
    from barnabas.log.tools.inspection import topic_id_text

    chosen_times = _parse_times(times)
    topics: dict[str, Any] = {}
    for inspection, chosen in _inspected(directory, at_ms, topic, partition):
        opened = inspection.open(chosen)
        inspection.resume_leadership(opened)
        described = describe_log(opened, chosen_times)
        entry = topics.setdefault(chosen.topic, {"id": topic_id_text(opened), "partitions": {}})
        entry["partitions"][str(chosen.partition)] = described
        if not as_json:
            click.echo(str(chosen))
            for name, value in described.items():
                click.echo(f"  {name}: {_json(value)}")
    if as_json:
        click.echo(_json({"topics": topics}))


@log.command()
@click.argument("directory", type=DIRECTORY)
@at_ms_option
def recover(directory: str, at_ms: int | None) -> None:
    """Open a log directory and close it cleanly, in place: after a crash this recovers it as a broker would.

    The command truncates damaged data and rebuilds indexes. No broker may be using the directory.
    """
    from barnabas.clock import ManualClock, SystemClock
    from barnabas.log.file_system import DiskFileSystem
    from barnabas.log.manager.loading import LoadProgress
    from barnabas.log.tools.recover import recover_directory
    from barnabas.log.tools.verify import log_bytes

    clock = SystemClock() if at_ms is None else ManualClock(at_ms)
    fs = DiskFileSystem()
    sizes_bytes = {each: log_bytes(fs, each) for each in _of_host(directory)}
    count = 0
    with progress_bar("recovering", sum(sizes_bytes.values())) as advance:
        for each, total_bytes in sizes_bytes.items():
            shown_bytes = 0

            def show(progress: LoadProgress, total_bytes: int = total_bytes) -> None:
                nonlocal shown_bytes
                done_bytes = total_bytes * progress.loaded_logs // progress.total_logs
                advance(done_bytes - shown_bytes)
                shown_bytes = done_bytes

            count += recover_directory(fs, os.path.abspath(each), clock, show)
    click.echo(f"{count} logs recovered and cleanly shut down", err=True)


def _parse_times(text: str) -> list[int]:
    try:
        return [int(time) for time in text.split(",") if time.strip()]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of numbers", param_hint="--times") from None


def _of_host(directory: str) -> list[str]:
    """The directory, and those of other brokers of the same host below it."""
    from barnabas.log.file_system import DiskFileSystem
    from barnabas.log.names import host_directories
    from barnabas.log.tools.verify import partition_directories

    directories = host_directories(directory)
    if len(directories) == 1:
        return directories
    # A broker may have no partition.
    return [each for each in directories if partition_directories(DiskFileSystem(), each)] or [directory]


def _inspected(
    directory: str, at_ms: int | None, topic: str | None, partition: int | None
) -> Iterator[tuple[Inspection, TopicPartition]]:
    """The chosen partitions of all brokers that have their directories here, in order."""
    found = [
        (chosen, inspection)
        for inspection in (_inspect(each, at_ms) for each in _of_host(directory))
        for chosen in inspection.partitions(topic, partition)
    ]
    for chosen, inspection in sorted(found, key=lambda each: each[0]):
        yield inspection, chosen


def _inspect(directory: str, at_ms: int | None) -> Inspection:
    from barnabas.clock import SystemClock
    from barnabas.log.file_system import DiskFileSystem
    from barnabas.log.tools.inspection import Inspection

    now_ms = SystemClock().now_ms() if at_ms is None else at_ms
    return Inspection(DiskFileSystem(), os.path.abspath(directory), now_ms)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
