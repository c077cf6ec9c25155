"""Tables of a TOML file as frozen dataclasses. The annotation of a field defines the values of its key:

    str, int, bool            as in TOML
    Literal["a", "b"]         one of these words
    DurationMs                a text such as 500ms, 10s, 5m, 1h30m
    Location                  a path, relative to the file's folder, or a URL
    Settings                  a table of settings, whose names may have dots with or without quotes
    tuple[str, ...]           a list of texts (or of Locations); one text is a list of one
    tuple[Table, ...]         a list of tables
    Table                     a table
    A | B                     a table whose key `type` selects one
    Mapping[str, A | B]       a table of named tables
    … | None                  optional

All faults of a file are collected, each with the key's path, its value, the allowed values and the closest known key,
so that a user with three mistakes sees all three. `${NAME}` in a text is the environment variable NAME,
`${NAME:-other}` has the default `other`, and `$${` is a literal `${`.
"""

from __future__ import annotations

import dataclasses
import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import (
    Any,
    Final,
    Literal,
    NewType,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from barnabas.errors import InvalidConfig

DurationMs = NewType("DurationMs", int)
Location = NewType("Location", str)
Settings = NewType("Settings", Mapping[str, str])

FAULTS_MAX: Final = 50
FILE_BYTES_MAX: Final = 1 << 20
SETTING_WORDS_MAX: Final = 20
TYPE_KEY: Final = "type"
_SHOWN_LENGTH_MAX: Final = 80
_VARIABLE: Final = re.compile(r"\$?\$\{([^}]*)\}")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_DURATION_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_URL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")

Value: TypeAlias = Any
T = TypeVar("T")


class InvalidPipeline(InvalidConfig):
    """A file that is no pipeline; the message has a line for each fault."""

    def __init__(self, path: Path, faults: Sequence[str]) -> None:
        shown = list(faults[:FAULTS_MAX])
        if len(faults) > FAULTS_MAX:
            shown.append(f"and {len(faults) - FAULTS_MAX} more")
        super().__init__("\n".join(f"{path}: {fault}" for fault in shown))
        self.path = path
        self.faults = tuple(faults)


def entry(
    meaning: str,
    *,
    default: Any = dataclasses.MISSING,
    takes: str = "",
    check: Callable[[Any], bool] | None = None,
) -> Any:
    """A key of a table. Errors about a value that `check` rejects, and the reference, show `takes`."""
    metadata = {"meaning": meaning, "takes": takes, "check": check}
    if default == {}:
        return dataclasses.field(default_factory=dict, metadata=metadata, kw_only=True)
    return dataclasses.field(default=default, metadata=metadata, kw_only=True)


def key_of(field: dataclasses.Field[Any]) -> str:
    """The key of a field: `from` is a word of Python, and its field is `from_`."""
    return field.name.removesuffix("_")


def duration_ms(text: str) -> int | None:
    """The duration of a text such as 1h30m; None if it is not a duration."""
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        return None
    return round(sum(float(number) * _DURATION_UNITS_MS[unit] for number, unit in parts))


def located(text: str, folder: Path) -> Location:
    """A URL as it is, or a path as seen from a folder."""
    return Location(text if _URL.match(text) else str((folder / text).absolute()))


def nearest(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def type_names(union: Any) -> dict[str, type]:
    """The tables of a union by the value of their key `type`."""
    return {each.TYPE: each for each in _members(union)}


def takes_text(hint: Any, extra: str = "") -> str:
    """The allowed values of a key, for an error message."""
    hint = _without_none(hint)
    if extra:
        return extra
    if get_origin(hint) is Literal:
        return _either([f'"{word}"' for word in get_args(hint)])
    if get_origin(hint) is tuple:
        return "tables" if dataclasses.is_dataclass(get_args(hint)[0]) else "texts"
    if get_origin(hint) is Mapping:
        return "named tables"
    return _NAMES.get(hint, "a table")


_NAMES: Final[dict[Any, str]] = {
    str: "a text",
    int: "a number",
    bool: "true or false",
    DurationMs: 'a duration such as "500ms", "10s" or "1h30m"',
    Location: "a path or a URL",
    Settings: "a table of settings",
}


class TableReader:
    """Reads the tables of one file and collects their faults."""

    def __init__(self, path: Path, environment: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.faults: list[str] = []
        self._environment = os.environ if environment is None else environment

    def fault(self, where: str, what: str) -> None:
        self.faults.append(f"{where}: {what}")

    def raise_faults(self) -> None:
        if self.faults:
            raise InvalidPipeline(self.path, self.faults)

    def table(self, kind: type[T], value: Value, where: str) -> T | None:
        """The table as the dataclass `kind`; None if something is wrong with it, which is noted then."""
        if not isinstance(value, dict):
            self._refuse(where, value, "a table")
            return None
        hints = get_type_hints(kind)
        fields = {key_of(field): field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
        known = [*fields, *([TYPE_KEY] if hasattr(kind, "TYPE") else [])]
        count_before = len(self.faults)
        for name in value:
            if name not in known:
                self.fault(
                    _join(where, name),
                    f"there is no such key{nearest(name, known)}; there are {', '.join(known)}",
                )
        found = {}
        for name, field in fields.items():
            place = _join(where, name)
            if name not in value:
                if field.default is field.default_factory is dataclasses.MISSING:
                    takes = takes_text(hints[field.name], field.metadata["takes"])
                    self.fault(place, f"is missing; it takes {takes}: {field.metadata['meaning']}")
                continue
            made = self._value(hints[field.name], value[name], place, field.metadata["takes"])
            check = field.metadata["check"]
            if made is not None and check is not None and not check(made):
                self._refuse(place, value[name], field.metadata["takes"])
            found[field.name] = made
        return kind(**found) if len(self.faults) == count_before else None

    def _value(self, hint: Any, value: Value, where: str, extra: str = "") -> Any:
        hint = _without_none(hint)
        takes = takes_text(hint, extra)
        if hint in (str, Location):
            if not isinstance(value, str) or (text := self._substituted(value, where)) is None:
                return None if isinstance(value, str) else self._refuse(where, value, takes)
            return text if hint is str else located(text, self.path.parent)
        if hint is bool or hint is int:
            return value if type(value) is hint else self._refuse(where, value, takes)
        if hint is DurationMs:
            made = duration_ms(value) if isinstance(value, str) else None
            return self._refuse(where, value, takes) if made is None else made
        if hint is Settings:
            return self._settings(value, where)
        if get_origin(hint) is Literal:
            words = get_args(hint)
            if value in words:
                return value
            return self._refuse(
                where, value, takes + (nearest(value, words) if isinstance(value, str) else "")
            )
        if get_origin(hint) is tuple:
            return self._list(get_args(hint)[0], value, where, takes)
        if get_origin(hint) is Mapping:
            if not isinstance(value, dict):
                return self._refuse(where, value, takes)
            return {
                name: self._value(get_args(hint)[1], each, _join(where, name)) for name, each in value.items()
            }
        if _members(hint):
            return self._one_of(hint, value, where)
        return self.table(hint, value, where)

    def _list(self, hint: Any, value: Value, where: str, takes: str) -> tuple[Any, ...] | None:
        if hint not in (str, Location) and not isinstance(value, list):
            self._refuse(where, value, takes)
            return None
        items = value if isinstance(value, list) else [value]
        return tuple(self._value(hint, item, f"{where}[{index}]") for index, item in enumerate(items))

    def _one_of(self, union: Any, value: Value, where: str) -> Any:
        if not isinstance(value, dict):
            return self._refuse(where, value, "a table")
        names = type_names(union)
        place = _join(where, TYPE_KEY)
        takes = _either([f'"{name}"' for name in names])
        chosen = value.get(TYPE_KEY)
        if chosen is None:
            return self.fault(place, f"is missing; it takes {takes}")
        if not isinstance(chosen, str) or chosen not in names:
            return self._refuse(place, chosen, takes + nearest(str(chosen), list(names)))
        return self.table(names[chosen], value, where)

    def _settings(self, value: Value, where: str, depth: int = 1) -> dict[str, str] | None:
        """Names with dots come as tables in tables unless they are quoted: both are the same here."""
        if not isinstance(value, dict) or depth > SETTING_WORDS_MAX:
            self._refuse(where, value, "a table of settings")
            return None
        found: dict[str, str] = {}
        for name, each in value.items():
            place = _join(where, name)
            if isinstance(each, dict):
                nested = self._settings(each, place, depth + 1) or {}
                found |= {f"{name}.{below}": text for below, text in nested.items()}
            elif isinstance(each, bool):
                found[name] = str(each).lower()
            elif isinstance(each, int | float):
                found[name] = str(each)
            elif isinstance(each, str):
                text = self._substituted(each, place)
                found[name] = "" if text is None else text
            else:
                self._refuse(place, each, "a text, a number, or true or false")
        return found

    def _substituted(self, text: str, where: str) -> str | None:
        missing: list[str] = []

        def found(match: re.Match[str]) -> str:
            if match[0].startswith("$$"):
                return match[0][1:]
            name, has_default, default = match[1].partition(":-")
            value = self._environment.get(name)
            if value is None and not has_default:
                missing.append(name)
            return default if value is None else value

        made = _VARIABLE.sub(found, text)
        for name in missing:
            self.fault(
                where,
                f"the environment has no {name}: set it, or write ${{{name}:-other}} for a default",
            )
        return None if missing else made

    def _refuse(self, where: str, value: Value, takes: str) -> None:
        shown = repr(value) if not isinstance(value, dict) else "a table"
        if isinstance(value, bool):
            shown = str(value).lower()
        if len(shown) > _SHOWN_LENGTH_MAX:
            shown = shown[:_SHOWN_LENGTH_MAX] + "…"
        self.fault(where, f"{shown} is not allowed; it takes {takes}")


def _join(where: str, name: str) -> str:
    quoted = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'
    return f"{where}.{quoted}" if where else quoted


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _without_none(hint: Any) -> Any:
    members = [each for each in _members(hint) if each is not type(None)]
    if not members:
        return hint
    return members[0] if len(members) == 1 else Union[tuple(members)]  # noqa: UP007


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()
