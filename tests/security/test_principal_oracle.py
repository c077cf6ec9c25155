"""Subjects of certificates, Kerberos principals, and the rules for their users, compared with Kafka's classes."""

from __future__ import annotations

import base64
import datetime
import os
import random
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from barnabas.config.definition import InvalidSetting
from barnabas.security.distinguished_name import subject_of
from barnabas.security.kerberos_names import KerberosNames, NoName
from barnabas.security.principal_mapping import PrincipalMapping
from tests.peers.kafka_peer import V4, PeerUnavailable, jars

pytestmark = [pytest.mark.slow, pytest.mark.peer]

ORACLE = Path(__file__).parent / "PrincipalOracle.java"
IS_SOAK = os.environ.get("BARNABAS_SOAK") == "1"
TIMEOUT_S = 3_600 if IS_SOAK else 240
RULES = 1_000_000 if IS_SOAK else 3_000
SUBJECTS = 300
PRINCIPALS = 3_000
SEED = 20_261_118


def ask(lines: list[str]) -> list[str]:
    try:
        libraries = jars(V4)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        ["java", "-Xmx256M", "-cp", f"{libraries}/*", str(ORACLE)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return [base64.b64decode(line).decode() for line in done.stdout.splitlines()]


def encoded(data: str | bytes) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


PATTERNS = [
    "^CN=(.*?),.*$", "^CN=([^,]+)$", "^CN=(.*?),OU=(.*?),O=(.*?)$", ".*", "CN=(\\w+)", "^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$",
    "(?i)^cn=(a|b)(.*)$", "^CN=(.*)\\/(.*)$", "CN=.*", "^O=(.*)$", "(CN=[a-z]+)(,OU=[a-z]+)?(.*)", "CN=(.*", "[a-",
    "^CN=(\\S+)$", "^CN=(\\W*)(\\d*)$", "(?i)^cn=(k|s).*$", "(?s)^CN=(.).*$", "(?i)^cn=([a-z]+)$", "^CN=(?s:(.*))$",
]  # fmt: skip
REPLACEMENTS = ["$1", "$1@$2", "$0", "x", "", "$2$1", "$1-$3", "$12", "a\\/b", "svc.$1"]
ENDINGS = ["", "L", "U", "x", "L ", "LU"]
VALUES = ["a", "b", "ann", "Kafka-1", "kafka/db1.test", "b.c", "Org", "x y"]
# Letters, digits, spaces and ends of lines that are not of ASCII; K and s have relatives that are none.
VALUES += [
    "ünal",
    "k\u212a",
    "\u017ftr",
    "\u0661\u0662",
    "a\u00a0b",
    "a\u0085",
    "\u2028",
    "a\u2029b",
    "İ",
    "日本",
]


def random_rules(chooser: random.Random) -> str:
    rules = []
    for _ in range(chooser.randint(1, 3)):
        kind = chooser.random()
        if kind < 0.2:
            rules.append("DEFAULT")
        elif kind < 0.25:
            rules.append(chooser.choice(["default", "nonsense", ""]))
        else:
            ending = chooser.choice(ENDINGS)
            rules.append(f"RULE:{chooser.choice(PATTERNS)}/{chooser.choice(REPLACEMENTS)}/{ending}")
    return chooser.choice([",", ", ", " , "]).join(rules)


def random_subject(chooser: random.Random) -> str:
    names = ["CN", "OU", "O"][: chooser.randint(1, 3)]
    if chooser.random() < 0.2:
        names = ["O", "cn"]
    return ",".join(f"{name}={chooser.choice(VALUES)}" for name in names)


def our_name(rules: str, subject: str) -> str:
    try:
        mapping = PrincipalMapping(rules)
    except InvalidSetting:
        return "invalid"
    name = mapping.name_of(subject)
    return "none" if name is None else f"name {name}"


REALM = "EXAMPLE.COM"
FORMATS = [
    "1:$1",
    "1:$1@$0",
    "2:$1/$2",
    "2:$2",
    "2:$1-$2@$0",
    "1:x$1y",
    "2:$1",
    "1:",
    "3:$1",
    "1:$0",
    ":$1",
    "x:$1",
]
MATCHES = ["", "(.*)", "(.*@EXAMPLE\\.COM)", "(ann.*)", "([a-z]+)", "(kafka-.*@.*)", "([)", "()"]
CHANGES = [
    "", "s/@.*//", "s/a/b/", "s/a/b/g", "s/([a-z])(.*)/$2$1/", "s/^(.*)@EXAMPLE\\.COM$/$1/", "s/n//g", "s/-.*//",
    "s/x/\\$/",
    "s/(?<first>a)/${first}1/g", "s/(a/b/", "s/a/b",
]  # fmt: skip
CASES = ["", "/L", "/U", "L", "U", "/", "/x"]
NAMES = [
    "ann",
    "Ann",
    "kafka/broker-1.example.com",
    "bob/admin",
    "a/b/c",
    "x",
    "",
    "nobody/",
    "/host",
    "a.b-c_d",
    "ünal",
    "ann\u212a",
    "a\u0085b",
]
REALMS = ["@EXAMPLE.COM", "@OTHER.ORG", "@", "", "@A@B"]


def random_kerberos_rules(chooser: random.Random) -> str:
    def rule() -> str:
        if chooser.random() < 0.2:
            return chooser.choice(["DEFAULT", "DEFAULT", "DEFAULT", "default", ""])
        parts = (f"RULE:[{chooser.choice(FORMATS)}]", *map(chooser.choice, (MATCHES, CHANGES, CASES)))
        return "".join(parts)

    return "\n".join(rule() for _ in range(chooser.randint(1, 3)))


def random_principal(chooser: random.Random) -> str:
    return chooser.choice(NAMES) + chooser.choice([REALMS[0], chooser.choice(REALMS)])


def our_kerberos_name(rules: str, principal: str) -> str:
    try:
        names = KerberosNames(rules.split("\n"), REALM)
    except InvalidSetting:
        return "invalid"
    try:
        return f"name {names.user_of(principal)}"
    except NoName:
        return "none"


ATTRIBUTES = [
    NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME, NameOID.STREET_ADDRESS, NameOID.USER_ID, NameOID.DOMAIN_COMPONENT,
    NameOID.EMAIL_ADDRESS, NameOID.SERIAL_NUMBER, NameOID.GIVEN_NAME, NameOID.TITLE,
]  # fmt: skip
TEXTS = [
    "ann",
    "a b",
    " edges ",
    "  two",
    "#hash",
    "a#b",
    "x,y",
    "a+b",
    'q"q',
    "b\\s",
    "<l>",
    "s;m",
    "e=q",
    "Ünï",
    "日本",
    "a  b",
]


def random_certificate(chooser: random.Random, key: Any) -> bytes:
    def attribute() -> x509.NameAttribute[str]:
        kind = chooser.choice(ATTRIBUTES)
        text = chooser.choice(TEXTS)
        if kind in (NameOID.DOMAIN_COMPONENT, NameOID.EMAIL_ADDRESS):
            return x509.NameAttribute(kind, text if text.isascii() else "plain")
        if text.replace(" ", "").isalnum() and text.isascii() and chooser.random() < 0.5:
            return x509.NameAttribute(kind, text, _ASN1Type.PrintableString)
        return x509.NameAttribute(kind, text, _ASN1Type.UTF8String)

    parts = []
    for _ in range(chooser.randint(1, 4)):
        several = {each.oid: each for each in (attribute() for _ in range(chooser.choice([1, 1, 1, 2])))}
        parts.append(x509.RelativeDistinguishedName(several.values()))
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(parts))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(key.public_key())
        .serial_number(chooser.getrandbits(100) + 1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


class Compared(NamedTuple):
    """Cases with Java's answers: rules and subjects or principals with names, certificates with subjects."""

    names: list[tuple[tuple[str, str], str]]
    kerberos: list[tuple[tuple[str, str], str]]
    subjects: list[tuple[bytes, str]]


@pytest.fixture(scope="module")
def compared() -> Compared:
    """One JVM for all of them: it takes longer to start than to answer."""
    chooser = random.Random(SEED)
    cases = [(random_rules(chooser), random_subject(chooser)) for _ in range(RULES)]
    key = ec.generate_private_key(ec.SECP256R1())
    certificates = [random_certificate(chooser, key) for _ in range(SUBJECTS)]
    principals = [(random_kerberos_rules(chooser), random_principal(chooser)) for _ in range(PRINCIPALS)]
    answers = ask(
        [
            *(f"{encoded(rules)} {encoded(subject)}" for rules, subject in cases),
            *(f"{encoded(REALM)} {encoded(rules)} {encoded(name)}" for rules, name in principals),
            *map(encoded, certificates),
        ]
    )
    end = RULES + PRINCIPALS
    return Compared(
        list(zip(cases, answers[:RULES], strict=True)),
        list(zip(principals, answers[RULES:end], strict=True)),
        list(zip(certificates, answers[end:], strict=True)),
    )


def test_rules(compared: Compared) -> None:
    differences = [
        (rules, subject, answer, our_name(rules, subject))
        for (rules, subject), answer in compared.names
        if answer not in ("error", our_name(rules, subject))
    ]
    assert differences == []
    assert {answer.partition(" ")[0] for _, answer in compared.names} >= {"name", "none", "invalid"}


def test_kerberos_rules(compared: Compared) -> None:
    differences = [
        (*case, answer, our_kerberos_name(*case))
        for case, answer in compared.kerberos
        if answer != our_kerberos_name(*case)
    ]
    assert differences == []
    assert {answer.partition(" ")[0] for _, answer in compared.kerberos} == {"name", "none", "invalid"}


def test_subjects(compared: Compared) -> None:
    differences = [
        (answer, subject_of(each)) for each, answer in compared.subjects if answer != subject_of(each)
    ]
    assert differences == []
