"""`barnabas log`: log directories of Barnabas and of Apache Kafka, looked at, checked and repaired without a broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

DIRECTORY = click.Path(exists=True, file_okay=False)


@click.group()
def log() -> None:
    """Look at log directories, check and recover them."""


@log.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--records", "with_records", is_flag=True, help="Of a .log file, each batch's records too.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
def dump(files: tuple[str, ...], with_records: bool, as_json: bool) -> None:
    """Print what FILES say: .log .index .timeindex .txnindex .snapshot, checkpoints, partition.metadata,
    meta.properties.

    Exits with 1 if a file is damaged.
    """
    from barnabas.log.dump import dump_file
    from barnabas.log.file_system import DiskFileSystem

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
    """Check a log directory, or one partition's, and name each fault with its file and position.

    Nothing is changed. Exits with 1 if there is any fault.
    """
    from barnabas.log.file_system import DiskFileSystem
    from barnabas.log.verify import log_bytes, verify_directory

    fs = DiskFileSystem()
    count = 0
    with progress_bar("verifying", log_bytes(fs, directory)) as advance:
        for fault in verify_directory(fs, directory, advance):
            count += 1
            click.echo(str(fault))
    click.echo(f"{count} fault{'' if count == 1 else 's'}", err=True)
    click.get_current_context().exit(1 if count else 0)


@contextmanager
def progress_bar(what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """A function to be told of bytes done; there is a bar where a person looks at the errors, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total_bytes)
        yield lambda done_bytes: progress.advance(task, done_bytes)
