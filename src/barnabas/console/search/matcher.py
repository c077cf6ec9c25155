"""Decides which records match the terms of a search.

Most batches have no match. `may_match` looks for what a match must contain in the bytes of a whole batch, or of many,
without decoding its records: keys, values and headers are in it as they are. Only batches that pass are decoded, and
then each record is compared with all terms.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import re2

from barnabas.console.search.language import BadQuery, Operation, PathStep, Target, Term
from barnabas.records.record import Headers

# A larger value is not parsed as JSON.
JSON_BYTES_MAX: Final = 4 << 20
PATTERN_MEMORY_BYTES: Final = 8 << 20
# What a pattern matches may depend on the bytes around it if it has one of these.
_DEPENDS_ON_PLACE: Final = re.compile(r"[\^$]|\\[bBAzZ]")
_ABSENT: Final = object()

Filter = Callable[[bytes, int, int], bool]
"""Whether the bytes from a position to another may contain a match."""
Check = Callable[["Candidate"], bool]


class Candidate:
    """A record that is compared with the terms; its value is parsed once."""

    __slots__ = ("_json", "headers", "key", "value")

    def __init__(self, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        self.key = key
        self.value = value
        self.headers = headers
        self._json: Any = None

    def json(self) -> Any:
        if self._json is None:
            self._json = _ABSENT
            if self.value is not None and len(self.value) <= JSON_BYTES_MAX:
                with contextlib.suppress(ValueError, RecursionError):
                    self._json = json.loads(self.value)
        return self._json


class Matcher:
    """The terms of a search, compiled."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._checks: list[tuple[Check, bool]] = [(_check(term), term.is_negated) for term in terms]
        self._filters: list[Filter] = [
            each for term in terms if not term.is_negated for each in _filters(term)
        ]
        self.matches_all: Final = not terms

    @property
    def has_filter(self) -> bool:
        return bool(self._filters)

    def may_match(self, data: bytes, start: int, end: int) -> bool:
        """False if no record whose bytes are there can match."""
        return all(each(data, start, end) for each in self._filters)

    def matches(self, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        candidate = Candidate(key, value, headers)
        return all(check(candidate) is not is_negated for check, is_negated in self._checks)


def compile_pattern(text: str, *, ignores_case: bool = False, is_literal: bool = False) -> Any:
    options = re2.Options()
    options.literal = is_literal
    options.log_errors = False
    options.case_sensitive = not ignores_case
    options.never_capture = True
    options.max_mem = PATTERN_MEMORY_BYTES
    try:
        return re2.compile(text, options)
    except re2.error as error:
        detail = (
            error.args[0].decode(errors="replace")
            if error.args and isinstance(error.args[0], bytes)
            else error
        )
        raise BadQuery(
            f"/{text}/ is not a regular expression of RE2: {detail}. To search for the characters themselves, use"
            f' quotes: "{text}"'
        ) from None


def _filters(term: Term) -> Iterator[Filter]:
    """What a batch must contain if it has a record that matches the term."""
    if term.target is Target.TOMBSTONE:
        return
    if term.target is Target.JSON:
        names = [step for step in term.path if isinstance(step, str)]
        # In a JSON text without a backslash, names are spelled as they are.
        if names and names[-1].isascii() and term.operation is not Operation.DIFFERS:
            yield _literal_or_backslash(names[-1])
        return
    if term.target is Target.HEADER and term.name:
        yield _literal(term.name)
    if term.operation is Operation.MATCHES:
        if _DEPENDS_ON_PLACE.search(term.operand) is None:
            yield _pattern(compile_pattern(term.operand, ignores_case=term.ignores_case))
    elif term.operand:
        yield _literal(term.operand)


def _literal(text: str) -> Filter:
    """RE2 looks for a text with vector instructions, many times as fast as `bytes.find`."""
    return _pattern(compile_pattern(text, is_literal=True))


def _literal_or_backslash(text: str) -> Filter:
    literal, backslash = _literal(text), _literal("\\")

    def may_match(data: bytes, start: int, end: int) -> bool:
        return literal(data, start, end) or backslash(data, start, end)

    return may_match


def _pattern(pattern: Any) -> Filter:
    def may_match(data: bytes, start: int, end: int) -> bool:
        return pattern.search(data, start, end) is not None

    return may_match


def _check(term: Term) -> Check:
    if term.target is Target.TOMBSTONE:
        return lambda record: record.value is None
    if term.target is Target.JSON:
        return _json_check(term)
    test = _bytes_test(term)
    if term.target is Target.KEY:
        return lambda record: record.key is not None and test(record.key)
    if term.target is Target.VALUE:
        return lambda record: record.value is not None and test(record.value)
    if term.target is Target.HEADER:
        return _header_check(term.name, test)

    def anywhere(record: Candidate) -> bool:
        return (
            (record.value is not None and test(record.value))
            or (record.key is not None and test(record.key))
            or any(
                test(name.encode()) or (value is not None and test(value)) for name, value in record.headers
            )
        )

    return anywhere


def _header_check(wanted: str, test: Callable[[bytes], bool]) -> Check:
    def check(record: Candidate) -> bool:
        for name, value in record.headers:
            if wanted:
                if name == wanted and value is not None and test(value):
                    return True
            elif test(name.encode()) or (value is not None and test(value)):
                return True
        return False

    return check


def _bytes_test(term: Term) -> Callable[[bytes], bool]:
    if term.operation is Operation.MATCHES:
        pattern = compile_pattern(term.operand, ignores_case=term.ignores_case)
        return lambda data: pattern.search(data) is not None
    operand = term.operand.encode()
    if term.operation is Operation.EQUALS:
        return lambda data: data == operand
    return lambda data: operand in data


def _json_check(term: Term) -> Check:
    compare = _comparison(term)

    def check(record: Candidate) -> bool:
        parsed = record.json()
        return parsed is not _ABSENT and any(compare(each) for each in _at(parsed, term.path, 0))

    return check


def _at(value: Any, path: tuple[PathStep, ...], depth: int) -> Iterator[Any]:
    """The values at a path; its length is bounded by that of the query."""
    if depth == len(path):
        yield value
        return
    step = path[depth]
    if step is None:
        if isinstance(value, list):
            for each in value:
                yield from _at(each, path, depth + 1)
    elif isinstance(step, int):
        if isinstance(value, list) and step < len(value):
            yield from _at(value[step], path, depth + 1)
    elif isinstance(value, dict) and step in value:
        yield from _at(value[step], path, depth + 1)


def _comparison(term: Term) -> Callable[[Any], bool]:
    operand = term.operand
    try:
        parsed: Any = json.loads(operand)
    except ValueError:
        parsed = operand

    def equals(found: Any) -> bool:
        if isinstance(found, str):
            return found == operand
        return (type(found) is type(parsed) and found == parsed) or (
            _is_number(found) and _is_number(parsed) and found == parsed
        )

    operation = term.operation
    if operation is Operation.MATCHES:
        pattern = compile_pattern(operand, ignores_case=term.ignores_case)
        return lambda found: pattern.search(_text(found).encode()) is not None
    if operation is Operation.CONTAINS:
        return lambda found: operand in _text(found)
    if operation is Operation.EQUALS:
        return equals
    if operation is Operation.DIFFERS:
        return lambda found: not equals(found)
    orders: dict[Operation, Callable[[Any, Any], bool]] = {
        Operation.GREATER: lambda left, right: left > right,
        Operation.GREATER_OR_EQUAL: lambda left, right: left >= right,
        Operation.LESS: lambda left, right: left < right,
        Operation.LESS_OR_EQUAL: lambda left, right: left <= right,
    }
    order = orders[operation]

    def ordered(found: Any) -> bool:
        if _is_number(found) and _is_number(parsed):
            return order(found, parsed)
        return isinstance(found, str) and order(found, operand)

    return ordered


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
