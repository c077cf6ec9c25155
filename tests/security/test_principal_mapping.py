"""Rules and subjects, in the words of Kafka's documentation and of its own tests."""

from __future__ import annotations

import pytest

from barnabas.config.definition import InvalidSetting
from barnabas.security.principal_mapping import PrincipalMapping

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,"
    "DEFAULT"
)


LINE_ENDS = "\n\r\u0085\u2028\u2029"
DOTS_FOR_ALL = ["(?s)^CN=(.)$", "(?s:^CN=(.)$)", "^CN=((?s:(.)))$", "^CN=(?:(?-s:x)|(?s:.))$", "^CN=[^.]$"]


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("O=Myorg,CN=duke.x", "DUKE.X"),
        ("O=Myorg", "O=Myorg"),
    ],
)
def test_rules_in_order(subject: str, name: str) -> None:
    assert PrincipalMapping(RULES).name_of(subject) == name


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=ann,O=x", "CN=ann,O=x"),
        ("", "CN=ann", None),
        ("RULE:^CN=([^,]+),.*$/$1/", "CN=ann", None),
        ("RULE:^CN=(\\w+)$/svc-$1-$2/", "CN=ann", "svc-ann-$2"),
        ("RULE:^CN=(\\w+)$/$12/", "CN=ann", "ann2"),
        ("RULE:^CN=(?<who>\\w+)$/${who}/U", "CN=ann", "ANN"),
        ("RULE:^CN=(\\w+)\\/(\\w+)$/$2/", "CN=kafka/db1", "db1"),
        (" RULE:^CN=a$/x/ , DEFAULT ", "CN=b", "CN=b"),
        # \\w, \\s and (?i) are about ASCII in Java, and it has more ends of lines.
        ("RULE:^CN=(\\w+)$/$1/", "CN=ünal", None),
        ("RULE:^CN=(\\d+)$/$1/", "CN=\u0661\u0662", None),
        ("RULE:(?i)^cn=(\\w+)$/$1/", "CN=\u212a", None),
        ("RULE:(?i)^cn=(k)$/$1/", "CN=\u212a", None),
        ("RULE:(?i)^cn=(k)$/$1/", "CN=K", "K"),
        ("RULE:(?i)^CN=str.*$/x/", "CN=\u017ftr", None),
        ("RULE:^CN=(\\S+)$/$1/", "CN=a\u00a0b", "a\u00a0b"),
        *(
            (f"RULE:^CN=({dot})$/x/", f"CN={end}", None)
            for dot in (".", ".*", "(?s:b)|.")
            for end in LINE_ENDS
        ),
        *((f"RULE:{dot}/x/", f"CN={end}", "x") for dot in DOTS_FOR_ALL for end in LINE_ENDS),
        ("RULE:^CN=([.])$/$1/", "CN=x", None),
        ("RULE:^CN=(\\.)$/$1/", "CN=x", None),
        ("RULE:^CN=([]a]+)$/x/", "CN=a]", "x"),
    ],
)
def test_single_rules(rules: str, subject: str, name: str | None) -> None:
    assert PrincipalMapping(rules).name_of(subject) == name


@pytest.mark.parametrize(
    "rules",
    ["default", "DEFAULT,nonsense", "RULE:CN=(.*)", "RULE:CN=(.*/$1/", "RULE:^CN=(.*)$/$1", "RULE:a/b"],
)
def test_invalid_rules(rules: str) -> None:
    with pytest.raises(InvalidSetting, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)


@pytest.mark.parametrize(
    "pattern", ["[a-z&&[^b]]", "[a-z&&b]", "[[a]b]", "[a[bc]]", "(?u)a", "a{99999999999}"]
)
def test_patterns_that_mean_something_else_in_java(pattern: str) -> None:
    with pytest.raises(InvalidSetting, match=r"ssl\.principal\.mapping\.rules.* the pattern is invalid"):
        PrincipalMapping(f"RULE:^CN=({pattern})$/$1/,DEFAULT")
