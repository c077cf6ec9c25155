"""Java's .properties files, as `java.util.Properties.load` reads them.

A line is a key, then `=`, `:` or white space, then a value. `#` and `!` start a comment line. A backslash at the end
joins the next line, whose leading white space is dropped; elsewhere it escapes one character, or four hexadecimal
digits after `\\u`. The last of equal keys wins. Java reads Latin-1: here a file that is valid UTF-8 is read as such.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from barnabas.errors import InvalidConfig

FILE_BYTES_MAX: Final = 1 << 20

_SPACE: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


class MalformedProperties(InvalidConfig):
    """A properties file that cannot be read. The message names the file, the line and the error."""


def load_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise MalformedProperties(f"{path}: {error.strerror or error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise MalformedProperties(f"{path}: more than {FILE_BYTES_MAX} bytes, so hardly a file of settings")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text, source=str(path))


def parse_properties(text: str, *, source: str = "properties") -> dict[str, str]:
    properties = {}
    for number, line in _logical_lines(text):
        key_end = _key_end(line)
        value_start = _value_start(line, key_end)
        where = f"{source}: line {number}"
        properties[_unescape(line[:key_end], where)] = _unescape(line[value_start:], where)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined, without comments and blank lines, each with the number of its first line."""
    joined = ""
    first_number = 0
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = natural.lstrip(_SPACE)
        if not joined:
            if not line or line[0] in "#!":
                continue
            first_number = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield first_number, joined + line
        joined = ""
    if joined:
        yield first_number, joined


def _key_end(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _value_start(line: str, key_end: int) -> int:
    position = _skip_space(line, key_end)
    if position < len(line) and line[position] in "=:":
        position = _skip_space(line, position + 1)
    return position


def _skip_space(line: str, position: int) -> int:
    while position < len(line) and line[position] in _SPACE:
        position += 1
    return position


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while (escape := text.find("\\", position)) >= 0:
        parts.append(text[position:escape])
        letter = text[escape + 1 : escape + 2]
        position = escape + 2
        if letter == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not _HEX_DIGITS.issuperset(digits):
                raise MalformedProperties(f"{where}: \\u{digits} is not four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(letter, letter))
    parts.append(text[position:])
    return _join_surrogates("".join(parts))


def _join_surrogates(text: str) -> str:
    # Java's strings are UTF-16: two escapes may form one character outside the basic plane.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
