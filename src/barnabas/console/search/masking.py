"""Rules that hide parts of records: TOPICS:WHAT, where TOPICS is a name or a pattern with `*` and `?`.

    customers:$.email       a field of a JSON value; $.items[*].price and $..name (at any depth) work too
    orders-*:value          the whole value; also key
    *:header.authorization  a header

Records are masked before a search compares them, so that no search finds what it does not show. A value that a rule for
a field applies to, and that is not JSON, is masked as a whole.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.console.search.language import BadQuery, PathStep, parse_path
from barnabas.errors import InvalidConfig
from barnabas.records.record import Headers

MASK: Final = "•••"
RULES_MAX: Final = 200
VALUE_BYTES_MAX: Final = 4 << 20
DEPTH_MAX: Final = 100
_ANY_DEPTH: Final = "$.."
_HEADER: Final = "header."

Fields = tuple[bytes | None, bytes | None, Headers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`path` and `name` are for fields of JSON: at a path, or a name at any depth."""

    text: str
    topics: str
    part: str
    header: str = ""
    path: tuple[PathStep, ...] = ()
    name: str = ""


def parse_rule(text: str) -> Rule:
    topics, colon, what = text.strip().partition(":")
    if colon and topics:
        if what in ("key", "value"):
            return Rule(text=text, topics=topics, part=what)
        if what.startswith(_HEADER) and len(what) > len(_HEADER):
            return Rule(text=text, topics=topics, part="header", header=what[len(_HEADER) :])
        if what.startswith(_ANY_DEPTH) and len(what) > len(_ANY_DEPTH):
            return Rule(text=text, topics=topics, part="json", name=what[len(_ANY_DEPTH) :])
        if what.startswith("$") and len(what) > 1:
            try:
                return Rule(text=text, topics=topics, part="json", path=parse_path(what))
            except BadQuery as error:
                raise InvalidConfig(f"{text[:100]}: {error}") from None
    raise InvalidConfig(
        f"{text[:100]!r} is no rule for masking: write TOPICS:WHAT, where WHAT is key, value, header.NAME, $.field or"
        " $..name"
    )


@dataclass(frozen=True, slots=True)
class Masks:
    """The rules of a console."""

    rules: tuple[Rule, ...] = ()

    def of(self, topic: str) -> Mask | None:
        """What hides parts of the records of a topic; None if nothing does."""
        found = [each for each in self.rules if fnmatch.fnmatchcase(topic, each.topics)]
        return Mask(found) if found else None

    def as_texts(self) -> list[str]:
        return [each.text for each in self.rules]


NO_MASKS: Final = Masks()


def parse_masks(texts: Sequence[str]) -> Masks:
    if len(texts) > RULES_MAX:
        raise InvalidConfig(f"there are {len(texts)} rules for masking; the limit is {RULES_MAX}")
    return Masks(tuple(parse_rule(each) for each in texts))


class Mask:
    """The rules of one topic."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._parts = {each.part for each in rules}
        self._headers = {each.header for each in rules if each.part == "header"}
        self._fields = [each for each in rules if each.part == "json"]

    def apply(self, key: bytes | None, value: bytes | None, headers: Headers) -> Fields:
        """The key, value and headers to show."""
        if key is not None and "key" in self._parts:
            key = MASK.encode()
        if value is not None:
            if "value" in self._parts:
                value = MASK.encode()
            elif self._fields:
                value = self._masked_json(value)
        if self._headers:
            headers = tuple(
                (name, MASK.encode() if name in self._headers and each is not None else each)
                for name, each in headers
            )
        return key, value, headers

    def _masked_json(self, value: bytes) -> bytes:
        if len(value) > VALUE_BYTES_MAX:
            return MASK.encode()
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return MASK.encode()
        for rule in self._fields:
            if rule.name:
                parsed = _hide_name(parsed, rule.name, 0)
            else:
                parsed = _hide_path(parsed, rule.path, 0)
        return json.dumps(parsed, ensure_ascii=False).encode(errors="replace")


def _hide_path(value: Any, path: tuple[PathStep, ...], depth: int) -> Any:
    if depth == len(path):
        return MASK
    step = path[depth]
    if step is None and isinstance(value, list):
        return [_hide_path(each, path, depth + 1) for each in value]
    if step is None and isinstance(value, dict):
        return {name: _hide_path(each, path, depth + 1) for name, each in value.items()}
    is_there = (isinstance(step, str) and isinstance(value, dict) and step in value) or (
        isinstance(step, int) and isinstance(value, list) and step < len(value)
    )
    if is_there:
        value[step] = _hide_path(value[step], path, depth + 1)
    return value


def _hide_name(value: Any, name: str, depth: int) -> Any:
    if depth > DEPTH_MAX:
        return MASK
    if isinstance(value, list):
        return [_hide_name(each, name, depth + 1) for each in value]
    if isinstance(value, dict):
        return {
            each: MASK if each == name else _hide_name(found, name, depth + 1)
            for each, found in value.items()
        }
    return value
