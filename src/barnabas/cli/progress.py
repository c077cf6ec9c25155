"""How far a long command is, for a person at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    what: str,
    total: int | None,
    *,
    unit: str = "bytes",
    beside_output: bool = False,
    is_wanted: bool = True,
) -> Iterator[Callable[[int], None]]:
    """A function to be told of what is done; there is a bar where a person looks at the errors, and nothing elsewhere.

    Without a total the bar only shows that there is something going on, and how much has been done. A command that
    prints all the while says so: on the same terminal a bar would stand in the way.
    """
    if not is_wanted or not sys.stderr.isatty() or (beside_output and sys.stdout.isatty()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    done = DownloadColumn() if unit == "bytes" else TextColumn("{task.completed:,.0f} " + unit)
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda amount: progress.advance(task, amount)
