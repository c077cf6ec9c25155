"""The progress of a long command, on a terminal."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def goes_to_a_file() -> bool:
    """Whether standard output is a file or /dev/null. The reader of a pipe may print to the terminal itself."""
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not sys.stdout.isatty())


@contextmanager
def progress_bar(
    what: str,
    total: int | None,
    *,
    unit: str = "bytes",
    beside_output: bool = False,
    is_wanted: bool = True,
) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of completed items; it draws a bar if standard error is a terminal.

    Without a total the bar only shows activity and the number of completed items. A command that prints continuously
    sets `beside_output`: it gets a bar only if its output goes to a file, because on the same terminal the bar would be
    in the way.
    """
    if not is_wanted or not sys.stderr.isatty() or (beside_output and not goes_to_a_file()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    done = DownloadColumn() if unit == "bytes" else TextColumn("{task.completed:,.0f} " + unit)
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn())
    # Lines that are printed in the meantime go above the bar if they are for the terminal.
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda amount: progress.advance(task, amount)
