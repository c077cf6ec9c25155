"""Rules for Kerberos principals and the options of Krb5LoginModule, as far as they need no KDC."""

from __future__ import annotations

import sys

import pytest

from barnabas.client.settings import ClientSettings
from barnabas.config.definition import InvalidSetting
from barnabas.errors import InvalidConfig
from barnabas.security import gssapi
from barnabas.security.kerberos_login import KerberosLogin, acceptor, initiator
from barnabas.security.kerberos_names import KerberosNames, NoName

JAAS = "sasl.jaas.config"
KEYTAB = {"useKeyTab": "true", "keyTab": "/k", "principal": "ann@R"}


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        (["DEFAULT"], "ann@R", "ann"),
        (["DEFAULT"], "kafka/host@R", "kafka"),
        (["RULE:[1:$1@$0](.*@OTHER)s/@.*//", "DEFAULT"], "ann@OTHER", "ann"),
        (["RULE:[2:$2]/L"], "kafka/HOST@R", "host"),
        (["RULE:[1:$1]s/a/b/g"], "banana@R", "bbnbnb"),
        (["DEFAULT"], "without-a-realm", "without-a-realm"),
    ],
)
def test_users(rules: list[str], principal: str, user: str) -> None:
    assert KerberosNames(rules, "R").user_of(principal) == user


@pytest.mark.parametrize(
    ("rules", "principal", "reason"),
    [
        (["DEFAULT"], "ann@OTHER", "no rule of sasl.kerberos.principal.to.local.rules is for ann@OTHER"),
        (["DEFAULT"], "a/b/c@R", "has not one or two components"),
        (["RULE:[1:$1@$0]"], "ann@R", "gives ann@R, which has / or @"),
        (["DEFAULT"], "a" * 5_000 + "@R", "more than 4096 characters"),
    ],
)
def test_principals_without_a_user(rules: list[str], principal: str, reason: str) -> None:
    with pytest.raises(NoName, match=reason):
        KerberosNames(rules, "R").user_of(principal)


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "default",
        "RULE:[1:$2]",
        "RULE:[1:$]",
        "RULE:[:$1]",
        "RULE:[1:$1](()",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]s/a/$/",
        "RULE:[1:$1]x",
    ],
)
def test_rules_that_cannot_work(rule: str) -> None:
    with pytest.raises(InvalidSetting, match=r"principal\.to\.local\.rules"):
        KerberosNames([rule], "R")


def test_logins() -> None:
    expected = KerberosLogin("kafka", "ann@R", "/k")
    assert initiator(KEYTAB, "kafka", JAAS) == expected
    assert initiator({**KEYTAB, "serviceName": "kafka", "debug": "true"}, None, JAAS) == expected
    assert acceptor({**KEYTAB, "keyTab": "FILE:/k", "principal": "*"}, "kafka", JAAS).principal == "*"
    cached = initiator({"useTicketCache": "TRUE", "ticketCache": "/c"}, "kafka", JAAS)
    assert cached == KerberosLogin("kafka", None, None, "/c")


@pytest.mark.parametrize(
    ("options", "service", "reason"),
    [
        (KEYTAB, None, "sasl.kerberos.service.name is missing"),
        ({**KEYTAB, "serviceName": "http"}, "kafka", "differs from serviceName=http"),
        (KEYTAB, "kafka/host", "the part of the principal before the /"),
        ({**KEYTAB, "keytab": "/k"}, "kafka", "Krb5LoginModule has no option keytab. It has keyTab"),
        ({"useKeyTab": "true", "keyTab": "/k"}, "kafka", "needs keyTab and principal"),
        ({"keyTab": "/k"}, "kafka", "keyTab has no effect without useKeyTab=true"),
        ({}, "kafka", "must say where the keys for GSSAPI are"),
        ({**KEYTAB, "principal": "*"}, "kafka", "is for listeners only"),
    ],
)
def test_logins_that_cannot_work(options: dict[str, str], service: str | None, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        initiator(options, service, JAAS)


def test_a_broker_needs_a_keytab() -> None:
    with pytest.raises(InvalidConfig, match="a broker needs a keytab"):
        acceptor({"useTicketCache": "true"}, "kafka", JAAS)


def client_error(**settings: object) -> str:
    with pytest.raises(InvalidConfig) as refused:
        ClientSettings(bootstrap_servers="localhost:9092", security_protocol="SASL_SSL", **settings)
    return str(refused.value)


def test_a_client_that_has_only_a_password() -> None:
    """GSSAPI is the default of sasl.mechanism: the error says what to set."""
    assert "set sasl.mechanism to one of PLAIN" in client_error(sasl_username="ann", sasl_password="secret")
    assert "set sasl.mechanism to one of PLAIN" in client_error()


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(InvalidConfig, match=r"pip install 'barnabas\[gssapi\]'"):
        gssapi.need_library()
