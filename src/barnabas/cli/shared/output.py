"""The output of commands: rows, as a table for people or as JSON for scripts.

The same rows serve both: JSON has all fields of a row, a table has the columns that a person wants to see. On a
terminal a table has the columns that fit its width, so that a row is one line; in a pipe it has all of them.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TextIO, TypeAlias

import click

from barnabas.cli.shared.exit_codes import FAILED

Row: TypeAlias = Mapping[str, Any]

_WIDTH_UNLIMITED: Final = 10_000
_WIDTH_MIN: Final = 40
_TEXT_WIDTH_MIN: Final = 12
_GAP: Final = 2
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


class CommandFailed(click.ClickException):
    """One line for a person, and an exit code for a script."""

    exit_code: int = FAILED  # type: ignore[misc]

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def show(self, file: Any = None) -> None:
        complain(self.message)


class Column(NamedTuple):
    """A column of a table: the row's key, its title, and the format of its values.

    On a narrow terminal the columns with the highest rank are omitted first; those with rank 0 always stay.
    """

    key: str
    title: str
    shown: Callable[[Any], str] | None = None
    rank: int = 0


def show(rows: Iterable[Row], columns: Sequence[Column], *, as_json: bool, nothing: str) -> None:
    """Prints rows, or a note if there are none."""
    listed = list(rows)
    if as_json:
        show_json(listed)
    elif listed:
        note_left_out(show_table(listed, columns))
    else:
        note(nothing)


def show_json(value: object) -> None:
    sys.stdout.write(_harmless(json.dumps(value, ensure_ascii=False, indent=2, default=str)) + "\n")


def show_json_line(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    sys.stdout.write(_harmless(text) + "\n")


def _harmless(text: str) -> str:
    """JSON without the control characters that `json` leaves as they are."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def note(text: str) -> None:
    """A note for the user that is not part of the result."""
    click.echo(_wrapped(text, sys.stderr), err=True)


def heading(text: str) -> None:
    """A line above a table."""
    click.echo(_wrapped(text, sys.stdout))


def complain(text: str) -> None:
    """An error message."""
    text = _wrapped(f"barnabas: {text}", sys.stderr)
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        text = click.style("barnabas:", fg="red", bold=True) + text.removeprefix("barnabas:")
    click.echo(text, err=True)


def show_error(error: click.ClickException) -> None:
    """Prints our errors, and click's errors about wrong usage."""
    if isinstance(error, CommandFailed):
        error.show()
        return
    text = io.StringIO()
    error.show(text)
    click.echo(_wrapped(text.getvalue().rstrip("\n"), sys.stderr), err=True)


def printable(text: str) -> str:
    """Text without control characters, which could control a terminal; line ends and tabs stay."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _wrapped(text: str, stream: TextIO) -> str:
    """Wraps lines between words on a terminal; elsewhere returns the text unchanged."""
    text = printable(text)
    if not stream.isatty():
        return text
    import textwrap

    width = max(shutil.get_terminal_size().columns, _WIDTH_MIN)
    return "\n".join(
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    )


def show_table(rows: Sequence[Row], columns: Sequence[Column]) -> list[str]:
    """Prints a table; returns the titles of the columns that did not fit."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH_UNLIMITED)
    cells = [[_cell(row.get(column.key), column.shown) for row in rows] for column in columns]
    widths = [
        max(cell_len(text) for text in (column.title, *texts))
        for column, texts in zip(columns, cells, strict=True)
    ]
    kept = _fitting(columns, widths, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold cyan")
    least = 0
    for index in kept:
        # If the columns still do not fit, text wraps to the next line, and numbers stay whole.
        is_number = _is_number(row.get(columns[index].key) for row in rows)
        justify: Any = "right" if is_number else "left"
        table.add_column(columns[index].title, justify=justify, no_wrap=is_number, overflow="fold")
        least += (widths[index] if is_number else min(widths[index], _TEXT_WIDTH_MIN)) + _GAP
    for number in range(len(rows)):
        table.add_row(*(Text(cells[index][number]) for index in kept))
    console.width = max(console.width, least)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")
    return [column.title for index, column in enumerate(columns) if index not in kept]


def note_left_out(titles: Iterable[str]) -> None:
    """Notes the columns that are missing in the tables above."""
    left_out = list(dict.fromkeys(titles))
    if left_out:
        sys.stdout.flush()
        note(f"Not shown here: {', '.join(left_out)}. A wider terminal or --json shows all.")


def _fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """The indexes of the columns that fit: columns of high rank are dropped first."""
    kept = list(range(len(columns)))
    for rank in sorted({column.rank for column in columns if column.rank}, reverse=True):
        if sum(widths[index] + _GAP for index in kept) - _GAP <= width:
            break
        kept = [index for index in kept if columns[index].rank < rank]
    return kept


def _is_number(values: Iterable[Any]) -> bool:
    given = [value for value in values if value is not None]
    return bool(given) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in given
    )


def _cell(value: Any, shown: Callable[[Any], str] | None) -> str:
    if value is None:
        return "-"
    if shown is not None:
        text = shown(value)
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, list | tuple):
        text = ",".join(str(item) for item in value)
    else:
        text = str(value)
    return printable(text).replace("\n", "\\n").replace("\t", "\\t") or "-"


def bytes_text(size_bytes: float) -> str:
    """A size with three digits and a decimal unit."""
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
    """A local time in milliseconds."""
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
    """`; did you mean orders?`, if a known name is similar."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""
