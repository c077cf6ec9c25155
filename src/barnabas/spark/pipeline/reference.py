"""The reference of pipeline files as Markdown, from the model: `python -m barnabas.spark.pipeline.reference`."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, get_type_hints

from barnabas.spark.pipeline import model
from barnabas.spark.pipeline.tables import key_of, takes_text, type_names

# A heading, and the tables below it by their names in a file.
TABLES: Final[tuple[tuple[str, type], ...]] = (
    ("the file", model.Pipeline),
    *(
        (f'`[sources.NAME]` with `type = "{name}"`', table)
        for name, table in type_names(model.Source).items()
    ),
    ("`format`", model.Format),
    ("`watermark`", model.Watermark),
    ("`[[transforms]]`", model.Transform),
    *((f'`[sink]` with `type = "{name}"`', table) for name, table in type_names(model.Sink).items()),
    ("`[dead_letters]`", model.DeadLetters),
)


def reference() -> str:
    return "\n".join(_section(heading, table) for heading, table in TABLES)


def _section(heading: str, table: type) -> str:
    hints = get_type_hints(table)
    lines = [f"### {heading[0].upper()}{heading[1:]}", "", _flowed(table.__doc__ or ""), ""]
    lines += ["| key | takes | default | meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(table):
        takes = takes_text(hints[field.name], field.metadata["takes"])
        lines.append(
            f"| `{key_of(field)}` | {_escaped(takes)} | {_default(field)} | {_escaped(field.metadata['meaning'])} |"
        )
    return "\n".join(lines) + "\n"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING or field.default in (None, ()):
        return ""
    if field.default is dataclasses.MISSING:
        return "required"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    return f'`"{field.default}"`' if isinstance(field.default, str) else f"`{field.default}`"


def _flowed(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(reference())
