"""How far a long command is, for a person at a terminal."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def goes_to_a_file() -> bool:
    """Whether standard output is a file or /dev/null. What reads a pipe may print to the terminal itself."""
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
    """A function to be called with what is done; there is a bar if standard error is a terminal, else nothing.

    Without a total the bar only shows that something goes on, and how much is done. A command that prints all the while
    says so: there is a bar only if its output goes to a file, since on the same terminal it would stand in the way.
    """
    if not is_wanted or not sys.stderr.isatty() or (beside_output and not goes_to_a_file()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    done = DownloadColumn() if unit == "bytes" else TextColumn("{task.completed:,.0f} " + unit)
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn())
    # Lines that are printed meanwhile go above the bar if they are for the terminal, and else where they belong.
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda amount: progress.advance(task, amount)
