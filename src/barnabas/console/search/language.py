"""The language of the search box: terms with spaces between them, all of which a record must match.

    word  "two words"  /regular expression/  /ignores case/i     in key, value or headers
    key:word  value:word  header:word  header.NAME:word          only there; `=` instead of `:` for the whole of it
    $.user.id=42  $.total>10  $.tags[0]:new  $.note:/x+/         fields of a value in JSON
    is:tombstone                                                 records without a value
    -term                                                        records that do not match the term

Regular expressions are RE2's, whose time is linear in the length of the input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from barnabas.errors import InvalidRequest

QUERY_CHARACTERS_MAX: Final = 2_000
TERMS_MAX: Final = 20

_PATH_STEP: Final = re.compile(r"""\.([\w-]+)|\[(\d{1,9})\]|\[(\*)\]|\["([^"]*)"\]""")
_HEAD: Final = re.compile(
    r"""(?P<plain>key|value|header(?:\.[^:=\s]+)?|is)(?P<plain_op>[:=])"""
    r"""|(?P<path>\$(?:\.[\w-]+|\[\d+\]|\[\*\]|\["[^"]*"\])*)(?P<path_op>!=|>=|<=|[:=<>])"""
)
_REGEX: Final = re.compile(r"/((?:[^/\\]|\\.|/(?!i?(?:\s|$)))+)/(i?)(?=\s|$)")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(?=\s|$)')
_WORD: Final = re.compile(r"\S+")

PathStep = str | int | None
"""The name of a field, the index of an element, or None for every element."""


class BadQuery(InvalidRequest):
    """A search that cannot be understood; the message says which part, and what to write instead."""


class Target(StrEnum):
    ANY = "any"
    KEY = "key"
    VALUE = "value"
    HEADER = "header"
    JSON = "json"
    TOMBSTONE = "tombstone"


class Operation(StrEnum):
    CONTAINS = ":"
    EQUALS = "="
    DIFFERS = "!="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    MATCHES = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One condition. `name` is the name of a header, empty for all of them."""

    target: Target
    operation: Operation
    operand: str
    name: str = ""
    path: tuple[PathStep, ...] = ()
    ignores_case: bool = False
    is_negated: bool = False


def parse_query(text: str) -> tuple[Term, ...]:
    """The terms of a search; none if the text is blank. Raises BadQuery."""
    if len(text) > QUERY_CHARACTERS_MAX:
        raise BadQuery(f"a search of {len(text)} characters is too long; the limit is {QUERY_CHARACTERS_MAX}")
    terms: list[Term] = []
    position = 0
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text):
            return tuple(terms)
        if len(terms) == TERMS_MAX:
            raise BadQuery(f"a search may have at most {TERMS_MAX} terms")
        term, position = _parse_term(text, position)
        terms.append(term)


def _parse_term(text: str, position: int) -> tuple[Term, int]:
    is_negated = text[position] == "-" and position + 1 < len(text) and not text[position + 1].isspace()
    if is_negated:
        position += 1
    head = _HEAD.match(text, position)
    target, operation, name, path = Target.ANY, Operation.CONTAINS, "", ()
    steps: tuple[PathStep, ...] = path
    if head is not None:
        position = head.end()
        if head["path"] is not None:
            target, operation, steps = Target.JSON, Operation(head["path_op"]), parse_path(head["path"])
        else:
            word, _, name = head["plain"].partition(".")
            target = Target.TOMBSTONE if word == "is" else Target(word)
            operation = Operation(head["plain_op"])
    operand, is_regex, ignores_case, position = _parse_operand(text, position)
    if target is Target.TOMBSTONE and operand != "tombstone":
        raise BadQuery(f"is:{operand} is not known; use is:tombstone")
    if is_regex:
        if operation not in (Operation.CONTAINS, Operation.EQUALS):
            raise BadQuery(f"{operation} needs a value, not a regular expression: use : before /{operand}/")
        operation = Operation.MATCHES
    if not operand and operation is not Operation.EQUALS:
        raise BadQuery('a term has no text after its ":"; write what to look for, such as key:order-7')
    term = Term(
        target=target,
        operation=operation,
        operand=operand,
        name=name,
        path=steps,
        ignores_case=ignores_case,
        is_negated=is_negated,
    )
    return term, position


def _parse_operand(text: str, position: int) -> tuple[str, bool, bool, int]:
    """The operand, whether it is a regular expression, whether that ignores case, and where it ends."""
    regex = _REGEX.match(text, position)
    if regex is not None:
        return regex[1].replace("\\/", "/"), True, regex[2] == "i", regex.end()
    quoted = _QUOTED.match(text, position)
    if quoted is not None:
        return re.sub(r"\\(.)", r"\1", quoted[1]), False, False, quoted.end()
    word = _WORD.match(text, position)
    if word is None:
        return "", False, False, position
    return word[0], False, False, word.end()


def parse_path(text: str) -> tuple[PathStep, ...]:
    """The steps of a JSON path such as $.items[0].name; `[*]` is every element."""
    steps: list[PathStep] = []
    position = 1
    while position < len(text):
        step = _PATH_STEP.match(text, position)
        if step is None:
            raise BadQuery(f"{text} is not a JSON path such as $.items[0].name")
        name, index, star, quoted = step.groups()
        if star:
            steps.append(None)
        elif index is not None:
            steps.append(int(index))
        else:
            steps.append(name if name is not None else quoted)
        position = step.end()
    return tuple(steps)
