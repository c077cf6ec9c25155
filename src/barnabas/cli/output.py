"""What commands print: rows, as a table for people or as JSON for scripts.

The same rows serve both: JSON has all that a row has, a table the columns that a person wants to see. Tables look the
same in a pipe, but for colours, and are never cut there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import click

from barnabas.cli.exit_codes import FAILED

Row: TypeAlias = Mapping[str, Any]

_WIDTH_UNLIMITED: Final = 10_000
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


class CommandFailed(click.ClickException):
    """One line for a person, and an exit code for a script."""

    exit_code: int = FAILED  # type: ignore[misc]

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def show(self, file: Any = None) -> None:
        click.echo(f"barnabas: {self.message}", err=True, file=file)


class Column(NamedTuple):
    """A column of a table: the row's key, its title, and how its values are shown."""

    key: str
    title: str
    shown: Callable[[Any], str] | None = None


def show(rows: Iterable[Row], columns: Sequence[Column], *, as_json: bool, nothing: str) -> None:
    """Prints rows; for a person a note if there are none."""
    listed = list(rows)
    if as_json:
        show_json(listed)
    elif listed:
        show_table(listed, columns)
    else:
        note(nothing)


def show_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n")


def show_json_line(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str) + "\n")


def note(text: str) -> None:
    """Something for a person to know, which is not what was asked for."""
    click.echo(text, err=True)


def show_table(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    console = Console(highlight=False, width=None if is_terminal else _WIDTH_UNLIMITED)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
    for column in columns:
        values = [row.get(column.key) for row in rows]
        numbers = [
            value for value in values if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        is_number = bool(numbers) and len(numbers) == sum(value is not None for value in values)
        table.add_column(column.title, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column.key), column.shown)) for column in columns))
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")


def _cell(value: Any, shown: Callable[[Any], str] | None) -> str:
    if value is None:
        return "-"
    if shown is not None:
        return shown(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value) or "-"
    return str(value) or "-"


def bytes_text(size_bytes: float) -> str:
    """A size that a person can compare with others: three digits and a unit of a thousand."""
    value = float(size_bytes)
    for unit in _UNITS:
        if abs(value) < 999.5 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 99.95 else f"{value:.3g} {unit}"


def count_text(count: int, what: str) -> str:
    """`1 topic`, `2 topics`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def time_text(timestamp_ms: int) -> str:
    """A time in the zone of this machine, to the millisecond."""
    local = time.localtime(timestamp_ms / 1000)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', local)}.{timestamp_ms % 1000:03d}"


def duration_text(duration_ms: float) -> str:
    seconds = duration_ms / 1000
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def fail(message: str, exit_code: int = FAILED) -> NoReturn:
    raise CommandFailed(message, exit_code)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean orders?`, if one of the known names is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""
