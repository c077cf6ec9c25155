from __future__ import annotations

import pytest

from barnabas.errors import InvalidConfig
from barnabas.security.jaas import PLAIN, SCRAM, parse_jaas

SETTING = "listener.name.sasl_ssl.plain.sasl.jaas.config"


def test_an_entry_as_in_kafkas_documentation() -> None:
    entry = parse_jaas(
        SETTING,
        f'{PLAIN} required \\\n   username="admin" \\\n password="admin-secret" user_admin="admin-secret"\n'
        "   user_alice='alice \"x\" secret';".replace("\\\n", "\n"),
    )
    assert entry.module == PLAIN
    assert entry.options["username"] == "admin"
    assert entry.users() == {"admin": "admin-secret", "alice": 'alice "x" secret'}


def test_escapes_comments_and_bare_words() -> None:
    entry = parse_jaas(SETTING, f'/* users */ {PLAIN} REQUIRED // one\n user_a="x\\"y\\\\z" tokenauth=true;')
    assert entry.options == {"user_a": 'x"y\\z', "tokenauth": "true"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must begin"),
        (f'{PLAIN} user_a="x";', "must be one of"),
        (f'{PLAIN} required user_a="secret"', "semicolon"),
        (f"{PLAIN} required user_a;", "write each option as"),
        (f"{PLAIN} required user_a=a secret;", "write each option as"),
        (f"{PLAIN} required user_a=;", "has no value"),
        (f'{PLAIN} required user_a="secret;', "quotation mark"),
        (f"{PLAIN} required; {PLAIN} required;", "one entry"),
    ],
)
def test_faults_are_told_without_the_secret(text: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says) as caught:
        parse_jaas(SETTING, text)
    assert SETTING in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "com.example.Custom"),
        ("PLAIN", SCRAM),
        ("SCRAM-SHA-256", PLAIN),
        ("OAUTHBEARER", PLAIN),
        ("GSSAPI", SCRAM),
    ],
)
def test_a_class_of_another_mechanism(mechanism: str, module: str) -> None:
    with pytest.raises(InvalidConfig, match=f"the class {module} is not for {mechanism}") as caught:
        parse_jaas(SETTING, f'{module} required user_a="hush";', mechanism)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("module", [PLAIN, f"kafkashaded.{PLAIN}"])
def test_the_class_of_the_mechanism(module: str) -> None:
    assert parse_jaas(SETTING, f'{module} required user_a="hush";', "PLAIN").users() == {"a": "hush"}


def test_a_client_may_use_the_class_of_scram_for_plain() -> None:
    text = f'{SCRAM} required username="a" password="b";'
    assert parse_jaas(SETTING, text, "PLAIN", is_client=True).options == {"username": "a", "password": "b"}
    with pytest.raises(InvalidConfig, match="is not for SCRAM-SHA-256"):
        parse_jaas(SETTING, text.replace(SCRAM, PLAIN), "SCRAM-SHA-256", is_client=True)


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(parse_jaas(SETTING, f'{PLAIN} required user_a="hush";'))
