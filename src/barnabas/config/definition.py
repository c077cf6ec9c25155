"""What a setting is: its name, type, default, and which values it takes.

A table of settings is data. The values that are allowed are written in a line of text, which the check reads and a
message to a person shows nearly as it stands:

    >=14              a number of at least 14
    0..1              a number between 0 and 1, both included
    1..9 or -1        several ranges or numbers
    a|b|c             one of these words, or in a list, some of these words
    throttled         '*', or pairs such as 0:1 (partition:broker)
    release           a release of Kafka, such as 3.0 or 3.0-IV1
    nonempty          a text or list with something in it
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple, TypeAlias

from barnabas.errors import InvalidConfig

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

VALUE_LENGTH_MAX: Final = 1 << 20
_SHOWN_LENGTH_MAX: Final = 120


class SettingType(StrEnum):
    BOOLEAN = "boolean"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    CLASS = "class"
    PASSWORD = "password"


class Importance(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(IntEnum):
    """Where a running broker takes a new value from."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


class InvalidSetting(InvalidConfig):
    """A value that a setting does not take."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        shown = str(value)
        if len(shown) > _SHOWN_LENGTH_MAX:
            shown = shown[:_SHOWN_LENGTH_MAX] + "…"
        super().__init__(f"{name}: {shown!r} is not allowed; it takes {allowed}")
        self.setting = name
        self.allowed = allowed


class UnknownSetting(InvalidConfig):
    """A name that no setting has."""


class Setting(NamedTuple):
    """One row of a table of settings."""

    name: str
    type: SettingType
    default: Value
    allowed: str = ""
    importance: Importance = Importance.MEDIUM

    def parse(self, text: str) -> Value:
        """The value that a text stands for, checked. Space around it does not count, as in Kafka."""
        text = text.strip()
        if len(text) > VALUE_LENGTH_MAX:
            raise InvalidSetting(self.name, text, f"at most {VALUE_LENGTH_MAX} characters")
        value = _PARSERS[self.type](self, text)
        if not self.allows(value):
            raise InvalidSetting(self.name, text, self.describe_allowed())
        return value

    def allows(self, value: Value) -> bool:
        return not self.allowed or value is None or _satisfies(self.allowed, value)

    def describe_allowed(self) -> str:
        """What the setting takes, for a person."""
        kind = _KINDS[self.type]
        if not self.allowed:
            return kind
        if self.allowed == "throttled":
            return "* or a list of partition:broker, such as 0:1,1:2"
        if self.allowed == "release":
            return "a release of Kafka, such as 3.0 or 3.0-IV1"
        if self.allowed == "nonempty":
            return f"{kind} that is not empty"
        if "|" in self.allowed:
            words = self.allowed.replace("|", ", ")
            return f"a list of some of {words}" if self.type is SettingType.LIST else f"one of {words}"
        return f"{kind}, {self.allowed}"


def parse_boolean(setting: Setting, text: str) -> bool:
    word = text.lower()
    if word not in ("true", "false"):
        raise InvalidSetting(setting.name, text, _KINDS[SettingType.BOOLEAN])
    return word == "true"


def parse_integer(setting: Setting, text: str) -> int:
    # Python's int() takes underscores and any script's digits; Java's parser, like this pattern, does not.
    if len(text) <= 20 and _INTEGER.fullmatch(text) is not None:
        number = int(text)
        bound = _BOUNDS[setting.type]
        if -bound <= number < bound:
            return number
    raise InvalidSetting(setting.name, text, setting.describe_allowed())


def parse_double(setting: Setting, text: str) -> float:
    if len(text) > 64 or _DOUBLE.fullmatch(text) is None:
        raise InvalidSetting(setting.name, text, setting.describe_allowed())
    return float(text)


def parse_string(setting: Setting, text: str) -> str:
    return text


def parse_list(setting: Setting, text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",")) if text else ()


_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)
_RANGE: Final = re.compile(r"(-?[0-9.]*[0-9])\.\.(-?[0-9.]+)|>=(-?[0-9.]+)|(-?[0-9.]+)", re.ASCII)
_THROTTLED: Final = re.compile(r"([0-9]+:[0-9]+)?", re.ASCII)
_RELEASE: Final = re.compile(r"[0-9]{1,2}(\.[0-9]{1,2}){1,3}(-IV[0-9]{1,2})?", re.ASCII)
_BOUNDS: Final = {SettingType.SHORT: 1 << 15, SettingType.INT: 1 << 31, SettingType.LONG: 1 << 63}
_KINDS: Final = {
    SettingType.BOOLEAN: "true or false",
    SettingType.SHORT: "a whole number of 16 bits",
    SettingType.INT: "a whole number of 32 bits",
    SettingType.LONG: "a whole number of 64 bits",
    SettingType.DOUBLE: "a number",
    SettingType.STRING: "a text",
    SettingType.LIST: "a list with commas",
    SettingType.CLASS: "the name of a class",
    SettingType.PASSWORD: "a text",
}
_PARSERS: Final[dict[SettingType, Callable[[Setting, str], Value]]] = {
    SettingType.BOOLEAN: parse_boolean,
    SettingType.SHORT: parse_integer,
    SettingType.INT: parse_integer,
    SettingType.LONG: parse_integer,
    SettingType.DOUBLE: parse_double,
    SettingType.STRING: parse_string,
    SettingType.LIST: parse_list,
    SettingType.CLASS: parse_string,
    SettingType.PASSWORD: parse_string,
}


def _satisfies(allowed: str, value: Value) -> bool:
    if allowed == "throttled":
        assert isinstance(value, tuple)
        return "".join(value) == "*" or all(_THROTTLED.fullmatch(item) for item in value)
    if allowed == "nonempty":
        return bool(value)
    if allowed == "release":
        return isinstance(value, str) and _RELEASE.fullmatch(value) is not None
    if "|" in allowed:
        words = allowed.split("|")
        return all(item in words for item in value) if isinstance(value, tuple) else value in words
    assert isinstance(value, int | float), (allowed, value)
    return any(_in_range(part, value) for part in allowed.split(" or "))


def _in_range(part: str, value: float) -> bool:
    match = _RANGE.fullmatch(part)
    assert match is not None, part
    low, high, least, exact = match.groups()
    if exact is not None:
        return value == float(exact)
    if least is not None:
        return value >= float(least)
    return float(low) <= value <= float(high)
