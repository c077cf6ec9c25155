"""The definition of a setting: its name, type, default and allowed values.

A table of settings is data. One line of text defines the allowed values. The check parses this line, and error messages
show it almost unchanged:

    >=14              a number of at least 14
    0..1              a number between 0 and 1, both included
    1..9 or -1        several ranges or numbers
    a|b|c             one of these words; in a list, some of these words
    a|b (any case)    the same, in capitals or not
    throttled         '*', or pairs such as 0:1 (partition:broker)
    release           a release of Kafka, such as 3.0 or 3.0-IV1
    nonempty          a text or list with something in it
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from barnabas.errors import InvalidConfig

SettingValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None

VALUE_LENGTH_MAX: Final = 1 << 20
_SHOWN_LENGTH_MAX: Final = 120
_NOT_A_NUMBER: Final = "Not a number of type"


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


class InvalidSetting(InvalidConfig):
    """A value that a setting does not take, in Kafka's words: people and tools search for them.

    Where Kafka's reason does not say what the setting takes, or there is none, ours follows.
    """

    def __init__(self, name: str, value: object, allowed: str, *, reason: str = "") -> None:
        shown = str(value)
        if len(shown) > _SHOWN_LENGTH_MAX:
            shown = shown[:_SHOWN_LENGTH_MAX] + "…"
        why = reason
        if not reason or reason.startswith(_NOT_A_NUMBER):
            why = f"{reason}{'. ' if reason else ''}{name} takes {allowed}"
        super().__init__(f"Invalid value {shown} for configuration {name}: {why}")
        self.setting = name
        self.allowed = allowed
        self._shown = shown
        self._reason = reason

    def under(self, prefix: str) -> InvalidSetting:
        """The same error for a user who gave the setting a longer name, such as `kafka.acks` in Spark options."""
        return InvalidSetting(prefix + self.setting, self._shown, self.allowed, reason=self._reason)


class UnknownSetting(InvalidConfig):
    """A name that no setting has."""


class Setting(NamedTuple):
    """One row of a table of settings."""

    name: str
    type: SettingType
    default: SettingValue
    allowed: str = ""
    importance: Importance = Importance.MEDIUM

    def parse(self, text: str) -> SettingValue:
        """Parses and checks a value. Surrounding white space does not count, as in Kafka."""
        text = text.strip()
        if len(text) > VALUE_LENGTH_MAX:
            raise InvalidSetting(self.name, text, f"at most {VALUE_LENGTH_MAX} characters")
        value = _PARSERS[self.type](self, text)
        if not self.allows(value):
            shown, reason = _refused(self.name, self.allowed, value)
            raise self._refusal(shown, reason)
        return value

    def allows(self, value: SettingValue) -> bool:
        return not self.allowed or value is None or _satisfies(self.allowed, value)

    def describe_allowed(self) -> str:
        """The allowed values, for an error message."""
        kind = _KINDS[self.type]
        if not self.allowed:
            return kind
        if self.allowed in _SPECIAL:
            return _SPECIAL[self.allowed][0]
        if "|" in self.allowed:
            words = self.allowed.replace("|", ", ")
            return f"a list of some of {words}" if self.type is SettingType.LIST else f"one of {words}"
        return f"{kind}, {self.allowed}"

    def _refusal(self, text: str, reason: str) -> InvalidSetting:
        # A message goes to logs and clients; a password must not.
        shown = "[hidden]" if self.type is SettingType.PASSWORD else text
        return InvalidSetting(self.name, shown, self.describe_allowed(), reason=reason)

    def _parse_boolean(self, text: str) -> bool:
        word = text.lower()
        if word not in ("true", "false"):
            raise self._refusal(text, "Expected value to be either true or false")
        return word == "true"

    def _parse_integer(self, text: str) -> int:
        # Python's int() takes underscores and any script's digits; Java's parser does not.
        digits = text[1:] if text[:1] in ("+", "-") else text
        if len(digits) <= 19 and digits.isascii() and digits.isdigit():
            number = int(text)
            bound = _BOUNDS[self.type]
            if -bound <= number < bound:
                return number
        raise self._refusal(text, f"{_NOT_A_NUMBER} {self.type.name}")

    def _parse_double(self, text: str) -> float:
        if len(text) <= 64 and _DOUBLE_CHARACTERS.issuperset(text):
            try:
                return float(text)
            except ValueError:
                pass
        raise self._refusal(text, f"{_NOT_A_NUMBER} {self.type.name}")

    def _parse_text(self, text: str) -> str:
        return text

    def _parse_list(self, text: str) -> tuple[str, ...]:
        return tuple(item.strip() for item in text.split(",")) if text else ()


def to_text(value: SettingValue) -> str | None:
    """A value as Java prints it: the form that a client sees in a response."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        mantissa, _, exponent = repr(value).partition("e")
        if not exponent:
            return mantissa
        point = "" if "." in mantissa else ".0"
        return f"{mantissa}{point}E{int(exponent)}"
    return None if value is None else str(value)


_DOUBLE_CHARACTERS: Final = frozenset("0123456789+-.eE")
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
_PARSERS: Final[dict[SettingType, Callable[[Setting, str], SettingValue]]] = {
    SettingType.BOOLEAN: Setting._parse_boolean,
    SettingType.SHORT: Setting._parse_integer,
    SettingType.INT: Setting._parse_integer,
    SettingType.LONG: Setting._parse_integer,
    SettingType.DOUBLE: Setting._parse_double,
    SettingType.STRING: Setting._parse_text,
    SettingType.LIST: Setting._parse_list,
    SettingType.CLASS: Setting._parse_text,
    SettingType.PASSWORD: Setting._parse_text,
}


def _satisfies(allowed: str, value: SettingValue) -> bool:
    if allowed in _SPECIAL:
        return _SPECIAL[allowed][1](value)
    if "|" in allowed:
        words, any_case, _ = allowed.partition(" (any case)")
        known = words.split("|")
        given = value if isinstance(value, tuple) else (str(value),)
        return all((item.upper() if any_case else item) in known for item in given)
    assert isinstance(value, int | float), (allowed, value)
    return any(_in_range(part, value) for part in allowed.split(" or "))


def _refused(name: str, allowed: str, value: SettingValue) -> tuple[str, str]:
    """The value that is refused, and why, in the words of Kafka's validators; no reason where Kafka has none."""
    shown = to_text(value) or ""
    if allowed == "throttled":
        return f"[{shown.replace(',', ', ')}]", (
            f"{name} must be the literal '*' or a list of replicas in the following format:"
            " [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )
    if allowed in _SPECIAL:
        return shown, ""
    if "|" in allowed:
        words, any_case, _ = allowed.partition(" (any case)")
        one_of = "one of (case insensitive)" if any_case else "one of"
        given = value if isinstance(value, tuple) else (shown,)
        wrong = next(item for item in given if not _satisfies(allowed, item))
        return wrong, f"String must be {one_of}: {words.replace('|', ', ')}"
    assert isinstance(value, int | float), (allowed, value)
    ranged, _, single = allowed.partition(" or ")
    low, _, high = ranged.removeprefix(">=").partition("..")
    if single:
        between = f"between {low} and {high}" if high else f"at least {low}"
        return shown, f"Value must be {between} or equal to {single}"
    return (
        shown,
        f"Value must be at least {low}" if value < float(low) else f"Value must be no more than {high}",
    )


def _in_range(part: str, value: float) -> bool:
    # Floats compare exactly with ints of any size, and bounds in the tables are small.
    if part.startswith(">="):
        return value >= float(part[2:])
    low, dots, high = part.partition("..")
    return float(low) <= value <= float(high) if dots else value == float(low)


def _is_throttled_list(value: SettingValue) -> bool:
    assert isinstance(value, tuple)
    return value == ("*",) or all(
        item == "" or (all(part.isascii() and part.isdigit() for part in pair) and len(pair) == 2)
        for item in value
        for pair in (item.split(":"),)
    )


def _is_release(value: SettingValue) -> bool:
    release, _, iteration = str(value).partition("-IV")
    parts = release.split(".")
    numbers = [*parts, iteration or "0"]
    return 2 <= len(parts) <= 4 and all(
        part.isascii() and part.isdigit() and len(part) <= 3 for part in numbers
    )


_SPECIAL: Final[dict[str, tuple[str, Callable[[SettingValue], bool]]]] = {
    "throttled": ("* or a list of partition:broker, such as 0:1,1:2", _is_throttled_list),
    "release": ("a release of Kafka, such as 3.0 or 3.0-IV1", _is_release),
    "nonempty": ("a text that is not empty", bool),
}
