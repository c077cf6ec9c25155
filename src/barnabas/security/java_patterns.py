"""Patterns and replacements as Java has them in Kafka's settings."""

from __future__ import annotations

import re
from typing import Final

from barnabas.config.definition import InvalidSetting

_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{([a-zA-Z][a-zA-Z0-9]*)\}", re.DOTALL)


def compiled(setting: str, pattern: str, form: str) -> re.Pattern[str]:
    """Raises InvalidSetting, which says the form of the setting."""
    try:
        return re.compile(_python_pattern(pattern))
    except re.error as error:
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
    """Java writes named groups as (?<name>…)."""
    return re.sub(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>", r"(?P<\1>", java)
