"""The lines of downloads: JSON lines, or CSV. A file that is not complete says so in its last line."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, Final

from barnabas.console.search.job import Event
from barnabas.console.search.render import plain_text

CSV_COLUMNS: Final = ("partition", "offset", "timestamp_ms", "key", "value", "headers", "cut")
# Spreadsheets take cells that begin so for formulas.
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
WARNINGS_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How a file begins, a record as a line, and the line about what is missing."""

    heading: str
    line_of: Callable[[dict[str, Any]], str]
    missing: Callable[[str], str]


async def download_lines(
    events: AsyncGenerator[Event, None], form: Format, records_max: int | None
) -> AsyncGenerator[str, None]:
    """`records_max` is a limit that the user has not set, so the file names it where it ends."""
    problems: list[str] = []
    async with contextlib.aclosing(events):
        yield form.heading
        async for name, data in events:
            if name == "hit":
                yield form.line_of(data)
            elif name == "warning" and len(problems) < WARNINGS_MAX:
                problems.append(data["message"])
            elif name == "end" and data["reason"] == "limit" and records_max is not None:
                problems.append(
                    f"it ends at the limit of {records_max} records; narrow the search or raise limit"
                )
            elif name == "end" and data["reason"] == "timeout":
                problems.append("the search took too long and was stopped")
    if problems:
        yield form.missing(f"this file is not complete: {'; '.join(problems)}")


def _json_line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def _csv_row(record: dict[str, Any]) -> str:
    headers = {each["name"]: plain_text(each["value"]) for each in record["headers"]}
    cut = [name for name in ("key", "value") if (record[name] or {}).get("truncated")]
    if "headers_omitted" in record or any(
        (each["value"] or {}).get("truncated") for each in record["headers"]
    ):
        cut.append("headers")
    return _row(
        [
            record["partition"],
            record["offset"],
            record["timestamp_ms"],
            _cell(plain_text(record["key"])),
            _cell(plain_text(record["value"])),
            _cell(json.dumps(headers, ensure_ascii=False) if headers else ""),
            " ".join(cut),
        ]
    )


def _row(cells: list[Any]) -> str:
    row = io.StringIO()
    csv.writer(row).writerow(cells)
    return row.getvalue()


def _cell(text: str | None) -> str:
    if text is None:
        return ""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


JSON_LINES: Final = Format(
    heading="", line_of=_json_line, missing=lambda text: json.dumps({"incomplete": text}) + "\n"
)
CSV: Final = Format(
    heading=",".join(CSV_COLUMNS) + "\r\n", line_of=_csv_row, missing=lambda text: _row([f"# {text}"])
)
