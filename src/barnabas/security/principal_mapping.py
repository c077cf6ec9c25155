"""`ssl.principal.mapping.rules`: from the subject of a certificate to the name of a user.

    RULE:^CN=([^,]+),.*$/$1/L,DEFAULT

Rules are tried in order. `DEFAULT` takes the subject as it is. A rule has a pattern that must match the whole subject,
a replacement, in which $1 is the first group, and L or U for lower or upper case.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from barnabas.config.definition import InvalidSetting
from barnabas.security.java_patterns import compiled, expanded

SETTING: Final = "ssl.principal.mapping.rules"
_FORM: Final = "DEFAULT, or rules of the form RULE:pattern/replacement/[LU]"
# As Kafka reads rules: first they are separated at commas outside of patterns, then each must be a rule to its end.
_ONE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|.*?"
_SPLITTER: Final = re.compile(rf"\s*({_ONE})\s*(?:,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_ONE)
_SUBJECT_CHARACTERS_MAX: Final = 4_096


class _Rule(NamedTuple):
    # None for DEFAULT.
    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = self.pattern.sub(lambda each: expanded(self.replacement, each), subject)
        if self.case == "L":
            return name.lower()
        return name.upper() if self.case == "U" else name


class PrincipalMapping:
    """Raises InvalidSetting for rules that cannot be read."""

    def __init__(self, text: str) -> None:
        self._rules = _parsed(text)

    def name_of(self, subject: str) -> str | None:
        """The name of the user; None if no rule matches, so that the client is refused."""
        if len(subject) > _SUBJECT_CHARACTERS_MAX:
            return None
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        return None


def _parsed(text: str) -> list[_Rule]:
    rules = []
    for split in _SPLITTER.finditer(text.strip()):
        found = _PARSER.match(split[1])
        assert found is not None
        if found.end() != len(split[1]):
            raise InvalidSetting(SETTING, text, f"{_FORM}; this is none: {split[1]}")
        if found[1] is not None:
            rules.append(_Rule(None))
        elif found[2] is not None:
            rules.append(_Rule(compiled(SETTING, found[2], _FORM), found[3], found[4]))
    return rules
