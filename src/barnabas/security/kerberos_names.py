"""`sasl.kerberos.principal.to.local.rules`: from a Kerberos principal to the name of a user.

    RULE:[1:$1@$0](.*@EXAMPLE\\.COM)s/@.*//L,DEFAULT

Rules are tried in order. `DEFAULT` takes the first component of a principal of the default realm. A rule is for
principals with as many components as its first number says. In its format, $0 is the realm, and $1 and $2 are the
components. The result must match the pattern in parentheses, if there is one. s/pattern/replacement/ replaces the first
match, or with g all of them. L and U change the case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from barnabas.config.definition import InvalidSetting
from barnabas.security.java_patterns import checked_replacement, compiled, expanded

SETTING: Final = "sasl.kerberos.principal.to.local.rules"
_FORM: Final = "DEFAULT, or rules of the form RULE:[n:format](pattern)s/pattern/replacement/g/[LU]"
_RULE: Final = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<count>\d*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?",
    re.ASCII,
)
_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_PARAMETER: Final = re.compile(r"([^$]*)(?:\$(\d*))?", re.ASCII)
_COUNT_MAX: Final = 2**31 - 1
_PRINCIPAL_CHARACTERS_MAX: Final = 4_096
_RULES_MAX: Final = 1_000


class NoName(Exception):
    """A principal has no name of a user by the rules."""


class _Rule(NamedTuple):
    text: str
    # None for DEFAULT.
    components: int | None = None
    format: str = ""
    match: re.Pattern[str] | None = None
    change: Callable[[str], str] | None = None
    case: str = ""

    def apply(self, parts: Sequence[str], default_realm: str) -> str | None:
        """`parts` are the realm and the components. Raises NoName for a name that is still a principal."""
        if self.components is None:
            name = parts[1] if parts[0] == default_realm else None
        elif self.components == len(parts) - 1:
            name = self._formatted(parts)
            if self.match is not None and self.match.fullmatch(name) is None:
                name = None
            elif self.change is not None:
                name = self.change(name)
        else:
            name = None
        if name is None:
            return None
        if "/" in name or "@" in name:
            raise NoName(f"the rule {self.text} gives {name}, which has / or @")
        if self.case == "L":
            return name.lower()
        return name.upper() if self.case == "U" else name

    def _formatted(self, parts: Sequence[str]) -> str:
        pieces = []
        for found in _PARAMETER.finditer(self.format):
            pieces.append(found[1])
            if found[2] is not None:
                pieces.append(parts[int(found[2])])
        return "".join(pieces)


class KerberosNames:
    """Raises InvalidSetting for rules that cannot be read."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        if len(rules) > _RULES_MAX:
            raise InvalidSetting(SETTING, f"{len(rules)} rules", f"at most {_RULES_MAX} rules")
        self._rules = [_parsed(rule) for rule in rules]
        self._default_realm = default_realm

    def user_of(self, principal: str) -> str:
        """The name of the user. Raises NoName."""
        found = _NAME.fullmatch(principal)
        if len(principal) > _PRINCIPAL_CHARACTERS_MAX:
            raise NoName(f"a principal has more than {_PRINCIPAL_CHARACTERS_MAX} characters")
        if found is None:
            if "@" in principal:
                raise NoName(f"the principal {principal} has not one or two components and a realm")
            return principal
        service, host, realm = found.groups()
        parts = (realm, service) if host is None else (realm, service, host)
        for rule in self._rules:
            name = rule.apply(parts, self._default_realm)
            if name is not None:
                return name
        raise NoName(f"no rule of {SETTING} is for {principal}; the default realm is {self._default_realm}")


def _parsed(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise InvalidSetting(SETTING, text, _FORM)
    if found["default"] is not None:
        return _Rule(text)
    count = int(found["count"] or _COUNT_MAX + 1)
    if count > _COUNT_MAX:
        raise InvalidSetting(SETTING, text, f"{_FORM}; n is the number of components")
    for each in _PARAMETER.finditer(found["format"]):
        # Principals have two components at most; of a rule for another number nothing is ever formatted.
        if each[2] is not None and count <= 2 and not (each[2] and int(each[2]) <= count):
            raise InvalidSetting(SETTING, text, f"{_FORM}; the format names $0 to ${count}")
    return _Rule(
        text,
        count,
        found["format"],
        None if found["match"] is None else compiled(SETTING, found["match"], _FORM),
        None if found["from"] is None else _change(found, text),
        found["case"] or "",
    )


def _change(found: re.Match[str], text: str) -> Callable[[str], str]:
    pattern = compiled(SETTING, found["from"], _FORM)
    replacement = found["to"]
    if not checked_replacement(replacement, pattern):
        raise InvalidSetting(SETTING, text, f"{_FORM}; the pattern has no such group as {replacement} names")
    limit = 0 if found["all"] else 1
    return lambda name: pattern.sub(lambda each: expanded(replacement, each), name, count=limit)
