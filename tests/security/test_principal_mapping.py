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
