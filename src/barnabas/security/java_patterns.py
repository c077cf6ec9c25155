"""Patterns and replacements as Java has them in Kafka's settings.

In Java, \\w, \\d, \\s and (?i) are about ASCII only, and `.` matches none of the ends of lines, of which Java has more.
What Python reads otherwise, or not at all, is an error: a pattern that matches more than in Kafka would give a client
the name of another user.
"""

from __future__ import annotations

import re
import warnings
from typing import Final

from barnabas.config.definition import InvalidSetting

_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{([a-zA-Z][a-zA-Z0-9]*)\}", re.DOTALL | re.ASCII)
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
# Java writes named groups as (?<name>…).
_PART: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>"
    r"|\(\?(?P<flags>[a-zA-Z-]+)(?P<end>[:)])|[().]",
    re.DOTALL,
)
_NO_LINE_END: Final = r"[^\n\r\u0085\u2028\u2029]"


def compiled(setting: str, pattern: str, form: str) -> re.Pattern[str]:
    """Raises InvalidSetting, which says the form of the setting."""
    try:
        with warnings.catch_warnings():
            # Python warns about what it reads as single characters, and Java as an operation on classes.
            warnings.simplefilter("error", FutureWarning)
            return re.compile(_python_pattern(pattern), re.ASCII)
    except (re.error, ValueError, OverflowError, FutureWarning) as error:
        raise InvalidSetting(setting, pattern, f"{form}; the pattern is invalid: {error}") from None


def checked_replacement(replacement: str, pattern: re.Pattern[str]) -> bool:
    """Whether Java takes the replacement: each reference is to a group that the pattern has."""
    for found in _REFERENCE.finditer(replacement):
        if found[2] is not None and int(found[2][0]) > pattern.groups:
            return False
        if found[3] is not None and found[3] not in pattern.groupindex:
            return False
    rest = _REFERENCE.sub("", replacement)
    return "$" not in rest and "\\" not in rest


def expanded(replacement: str, found: re.Match[str]) -> str:
    def reference(each: re.Match[str]) -> str:
        if each[1] is not None:
            return each[1]
        digits = each[2]
        if digits is None:
            return found[each[3]] or ""
        # As in Kafka and Java: as many digits as name a group, and a number without a group stays as it is.
        groups = found.re.groups
        if int(digits[0]) > groups:
            return f"${digits}"
        count = 1
        while count < len(digits) and int(digits[: count + 1]) <= groups:
            count += 1
        return (found[int(digits[:count])] or "") + digits[count:]

    return _REFERENCE.sub(reference, replacement)


def _python_pattern(java: str) -> str:
    """Raises re.error for what Python would read otherwise than Java."""
    # Whether `.` matches ends of lines too, by open group.
    dot_all = [False]

    def part(found: re.Match[str]) -> str:
        text = found[0]
        if text[0] == "[" and "[" in _ESCAPED.sub("", text[1:]):
            raise re.error("a class within a class is not supported", java, found.start())
        if found["name"] is not None:
            dot_all.append(dot_all[-1])
            return f"(?P<{found['name']}>"
        if found["flags"] is not None:
            on, _, off = found["flags"].partition("-")
            has_dot_all = ("s" in on or dot_all[-1]) and "s" not in off
            if found["end"] == ":":
                dot_all.append(has_dot_all)
            else:
                dot_all[-1] = has_dot_all
        elif text == "(":
            dot_all.append(dot_all[-1])
        elif text == ")" and len(dot_all) > 1:
            dot_all.pop()
        return _NO_LINE_END if text == "." and not dot_all[-1] else text

    return _PART.sub(part, java)
