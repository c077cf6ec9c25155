"""GSSAPI between our clients and our broker, with a real KDC; and what a broker says to clients that do it wrong."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import barnabas
from barnabas import aio
from barnabas.broker.authentication.counts import AuthenticationCounts
from barnabas.broker.authentication.slow_server import SaslThreads, SlowServer
from barnabas.errors import InvalidConfig, KafkaError, NetworkException, SaslAuthenticationFailed
from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from barnabas.security.gssapi import GssapiClient
from barnabas.security.kerberos_login import KerberosLogin
from barnabas.security.sasl import Login, SaslFailed
from tests.broker.authentication.test_sasl import principals
from tests.broker.raw_client import RawClient
from tests.broker.running import RunningBroker
from tests.security.kdc import MODULE, REALM, Kdc, client_settings, keytab_entry, running_kdc
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SASL_AUTHENTICATION_FAILED = 58
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
TICKET_S = 2


class Realm(NamedTuple):
    kdc: Kdc
    # Keytabs by principal.
    keytabs: dict[str, Path]

    def login(self, principal: str = "ann", keytab: Path | None = None) -> KerberosLogin:
        file = keytab or self.keytabs[principal]
        return KerberosLogin("kafka", f"{principal}@{REALM}", str(file))


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with running_kdc(tmp_path_factory.mktemp("kdc")) as kdc:
        names = ("kafka/localhost", "ann", "Bob/admin", "a/b/c")
        keytabs = {name: kdc.add(name) for name in names}
        keytabs["brief"] = kdc.add("brief", options=f"-maxlife {TICKET_S}seconds")
        keytabs["expired"] = kdc.add("expired", options="-expire yesterday")
        yield Realm(kdc, keytabs)


def broker_settings(realm: Realm) -> dict[str, str]:
    entry = keytab_entry(realm.keytabs["kafka/localhost"], "kafka/localhost")
    return {
        "listeners": "SASL_PLAINTEXT://localhost:0,KERBEROS://localhost:0,PLAINTEXT://localhost:0",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,KERBEROS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": r"RULE:[2:$2-$1@$0](.*@BARNABAS\.TEST)s/@.*//L,DEFAULT",
        "connection.failed.authentication.delay.ms": "10",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": entry,
        "listener.name.kerberos.gssapi.sasl.jaas.config": entry,
        "listener.name.kerberos.connections.max.reauth.ms": "1300",
    }


@pytest.fixture(scope="module")
def broker(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("broker"), broker_settings(realm)) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker.server.ports["SASL_PLAINTEXT"], host="localhost") as connected:
        yield connected


def settings_for(broker: RunningBroker, entry: str, listener: str = "SASL_PLAINTEXT") -> dict[str, str]:
    return client_settings(broker.server.ports[listener], entry)


def choose(client: RawClient, version: int = 1) -> None:
    answer = client.ask("SaslHandshake", version, SaslHandshakeRequest(mechanism="GSSAPI"))
    assert (answer.error_code, answer.mechanisms) == (0, ["GSSAPI"])


def say(client: RawClient, message: bytes) -> Any:
    return client.ask("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=message))


def log_in(client: RawClient, login: KerberosLogin) -> None:
    machine = GssapiClient(login, "localhost")
    message = machine.first()
    while not machine.is_complete:
        answer = say(client, message)
        assert answer.error_code == 0, answer.error_message
        message = machine.step(answer.auth_bytes)


def is_served(client: RawClient) -> bool:
    return bool(client.ask("Metadata", 9, MetadataRequest(topics=[])).brokers)


def test_producer_consumer_and_admin(broker: RunningBroker, realm: Realm) -> None:
    settings = settings_for(broker, keytab_entry(realm.keytabs["ann"], "ann"))
    with barnabas.Admin(settings) as admin:
        admin.create_topics(["t"])
    with barnabas.Producer(settings) as producer:
        producer.send("t", value=b"x" * 300_000)
    with barnabas.Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("t", 0)])
        [record] = wait_until(lambda: consumer.poll(1_000))
    assert record.value == b"x" * 300_000
    assert "User:ann" in principals("SASL_PLAINTEXT")


def test_aio_with_a_ticket_cache(broker: RunningBroker, realm: Realm) -> None:
    cache = realm.kdc.kinit(realm.keytabs["ann"], "ann")
    settings = settings_for(broker, f'{MODULE} required useTicketCache=true ticketCache="{cache}";')

    async def run() -> None:
        async with aio.Admin(settings) as admin:
            assert (await admin.describe_cluster()).nodes

    asyncio.run(run())


def test_command_line(broker: RunningBroker, realm: Realm, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    settings = settings_for(broker, keytab_entry(realm.keytabs["ann"], "ann"))
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [sys.executable, "-m", "barnabas", "topics", "list", "--client-config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_rules_decide_the_user(client: RawClient, realm: Realm) -> None:
    choose(client)
    log_in(client, realm.login("Bob/admin"))
    assert is_served(client)
    assert "User:admin-bob" in principals("SASL_PLAINTEXT")


def test_bare_messages_after_version_0_of_the_handshake(client: RawClient, realm: Realm) -> None:
    choose(client, version=0)
    machine = GssapiClient(realm.login(), "localhost")
    message = machine.first()
    while not machine.is_complete:
        client.send_bytes(len(message).to_bytes(4, "big") + message)
        message = machine.step(client.receive_frame())
    assert is_served(client)


def test_a_session_is_renewed_beyond_the_end_of_tickets(broker: RunningBroker, realm: Realm) -> None:
    """The library asks for the next ticket; Kafka's sessions end by connections.max.reauth.ms, not with tickets."""
    entry = keytab_entry(realm.keytabs["brief"], "brief")
    [counts] = [
        each
        for each in gc.get_objects()
        if isinstance(each, AuthenticationCounts) and each.listener == "KERBEROS"
    ]
    with barnabas.Admin(settings_for(broker, entry, "KERBEROS")) as admin:
        admin.describe_cluster()
        wait_until(
            lambda: counts.successful_reauthentication_total >= 2 * TICKET_S, meanwhile=admin.describe_cluster
        )
    assert counts.failed_reauthentication_total == 0


def test_a_new_key_of_the_broker(
    broker: RunningBroker, realm: Realm, caplog: pytest.LogCaptureFixture
) -> None:
    """It counts once the keytab has it: nothing is restarted."""
    realm.kdc.kadmin("cpw -randkey kafka/localhost")
    settings = settings_for(broker, keytab_entry(realm.kdc.add("carl"), "carl"))
    with pytest.raises(SaslAuthenticationFailed, match=REFUSED), barnabas.Admin(settings) as admin:
        admin.describe_cluster()
    wait_until(lambda: "Cannot find key for kafka/localhost@BARNABAS.TEST kvno 2 in keytab" in caplog.text)
    realm.kdc.kadmin(f"ktadd -k {realm.keytabs['kafka/localhost']} -norandkey kafka/localhost")
    with barnabas.Admin(settings) as admin:
        assert admin.describe_cluster().nodes


def test_a_principal_that_no_rule_is_for(
    client: RawClient, realm: Realm, caplog: pytest.LogCaptureFixture
) -> None:
    choose(client)
    with pytest.raises(AssertionError, match=REFUSED):
        log_in(client, realm.login("a/b/c"))
    assert client.is_closed_by_broker()
    assert "the principal a/b/c@BARNABAS.TEST has not one or two components" in caplog.text


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"", "the first token is empty"),
        (b"x", "Invalid token was supplied"),
        (b"\x60\x82\xff\xff" + b"a" * 500, "Invalid token was supplied"),
        (b"\0" * 200_000, "Invalid token was supplied"),
    ],
)
def test_garbage(client: RawClient, caplog: pytest.LogCaptureFixture, token: bytes, reason: str) -> None:
    choose(client)
    answer = say(client, token)
    assert (answer.error_code, answer.error_message) == (SASL_AUTHENTICATION_FAILED, REFUSED)
    assert client.is_closed_by_broker()
    assert f"authentication with GSSAPI failed: {reason}" in caplog.text


def test_a_token_with_damage_anywhere(broker: RunningBroker, realm: Realm) -> None:
    """One clear error for each, and no crash of the library that brings the broker down."""
    for place in range(0, 600, 37):
        with RawClient(broker.server.ports["SASL_PLAINTEXT"], host="localhost") as client:
            choose(client)
            token = bytearray(GssapiClient(realm.login(), "localhost").first())
            token[place] ^= 0x55
            answer = say(client, bytes(token))
            if answer.error_code == 0:
                # Some bytes only say how old the ticket is.
                continue
            assert (answer.error_code, answer.error_message) == (SASL_AUTHENTICATION_FAILED, REFUSED)


def test_another_mechanism_of_gssapi(client: RawClient, realm: Realm) -> None:
    """SPNEGO would let the client choose, and is not what Kafka speaks."""
    import gssapi.raw as raw

    name = raw.import_name(b"kafka@localhost", raw.NameType.hostbased_service)
    spnego = raw.OID.from_int_seq("1.3.6.1.5.5.2")
    cache = realm.kdc.kinit(realm.keytabs["ann"], "ann").encode()
    credentials = raw.acquire_cred_from({b"ccache": cache}, None, mechs={spnego}, usage="initiate").creds
    token = raw.init_sec_context(name, credentials, None, spnego).token
    choose(client)
    answer = say(client, token)
    assert (answer.error_code, answer.error_message) == (SASL_AUTHENTICATION_FAILED, REFUSED)


def test_a_token_that_was_used_before(broker: RunningBroker, realm: Realm) -> None:
    token = GssapiClient(realm.login(), "localhost").first()
    codes = []
    for _ in range(2):
        with RawClient(broker.server.ports["SASL_PLAINTEXT"], host="localhost") as client:
            choose(client)
            codes.append(say(client, token).error_code)
    assert codes == [0, SASL_AUTHENTICATION_FAILED]


def test_a_message_above_the_limit(client: RawClient) -> None:
    choose(client)
    client.send_bytes((600_000).to_bytes(4, "big") + bytes(100))
    assert client.is_closed_by_broker()


def test_a_client_that_wants_a_security_layer(
    client: RawClient, realm: Realm, caplog: pytest.LogCaptureFixture
) -> None:
    import gssapi.raw as raw

    choose(client)
    machine = GssapiClient(realm.login(), "localhost")
    say(client, machine.step(say(client, machine.first()).auth_bytes))
    confidentiality = raw.wrap(machine._context, b"\x04\0\xff\xff", confidential=False).message
    answer = say(client, confidentiality)
    assert answer.error_code == SASL_AUTHENTICATION_FAILED
    assert "there is no security layer. Use TLS" in answer.error_message
    assert client.is_closed_by_broker()
    assert "the client asks for the security layer 4" in caplog.text


def test_a_message_before_the_answer_to_the_last_one(client: RawClient, realm: Realm) -> None:
    choose(client)
    token = GssapiClient(realm.login(), "localhost").first()
    for _ in range(2):
        client.send("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=token))
    # The first may be answered, if its thread is quick. The second never is.
    with pytest.raises(ConnectionError):
        client.receive_exactly(10_000)


class _Keys(NamedTuple):
    principal: str
    keytab: str
    reason: str


@pytest.mark.parametrize(
    "keys",
    [
        _Keys("nobody", "ann", "No key table entry found for nobody@BARNABAS.TEST"),
        _Keys("expired", "expired", "Client's entry in database has expired"),
        _Keys("gone", "gone", "Client 'gone@BARNABAS.TEST' not found in Kerberos database"),
        _Keys("rekeyed", "rekeyed", "Preauthentication failed"),
    ],
)
def test_keys_that_do_not_work(broker: RunningBroker, realm: Realm, keys: _Keys) -> None:
    if keys.keytab not in realm.keytabs:
        realm.keytabs[keys.keytab] = realm.kdc.add(keys.keytab, options="+requires_preauth")
        command = "delprinc -force" if keys.keytab == "gone" else "cpw -randkey"
        realm.kdc.kadmin(f"{command} {keys.principal}")
    entry = keytab_entry(realm.keytabs[keys.keytab], keys.principal)
    with (
        pytest.raises(SaslAuthenticationFailed) as failed,
        barnabas.Admin(settings_for(broker, entry)) as admin,
    ):
        admin.describe_cluster()
    assert keys.reason in str(failed.value)


def test_no_tickets(broker: RunningBroker) -> None:
    entry = f"{MODULE} required useTicketCache=true;"
    with (
        pytest.raises(SaslAuthenticationFailed, match=r"ticket cache .* \(is there a ticket\? See klist\)"),
        barnabas.Admin(settings_for(broker, entry)) as admin,
    ):
        admin.describe_cluster()


def test_tickets_that_have_expired(broker: RunningBroker, realm: Realm) -> None:
    cache = realm.kdc.kinit(realm.keytabs["brief"], "brief", "-l", "1s")
    login = KerberosLogin("kafka", None, None, cache)

    def failure() -> str:
        try:
            GssapiClient(login, "localhost").first()
        except SaslFailed as error:
            return str(error)
        return ""

    assert "expired" in wait_until(failure, "the ticket ends")


def test_a_keytab_that_is_missing(realm: Realm, tmp_path: Path) -> None:
    entry = keytab_entry(tmp_path / "none", "ann")
    with pytest.raises(InvalidConfig, match="none cannot be read: No such file"):
        barnabas.Admin(client_settings(9092, entry))
    with pytest.raises(SaslFailed, match="none cannot be read: No such file"):
        GssapiClient(realm.login(keytab=tmp_path / "none"), "localhost").first()


def test_a_broker_of_another_service(broker: RunningBroker, realm: Realm) -> None:
    settings = settings_for(broker, keytab_entry(realm.keytabs["ann"], "ann"))
    with (
        pytest.raises(SaslAuthenticationFailed, match=r"Server http/localhost@.* not found"),
        barnabas.Admin({**settings, "sasl.kerberos.service.name": "http"}) as admin,
    ):
        admin.describe_cluster()


def test_a_kdc_that_does_not_answer(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "krb5.conf"
    conf.write_text(realm.kdc.krb5_conf.read_text().replace(f":{realm.kdc.port}", ":1"))
    monkeypatch.setenv("KRB5_CONFIG", str(conf))
    keytab = tmp_path / "ann.keytab"
    keytab.write_bytes(realm.keytabs["ann"].read_bytes())
    with pytest.raises(NetworkException, match="Cannot contact any KDC"):
        GssapiClient(realm.login(keytab=keytab), "localhost").first()


def test_a_broker_without_its_key(realm: Realm, tmp_path: Path) -> None:
    keytab = realm.keytabs["kafka/localhost"]
    for entry, reason in (
        (keytab_entry("/nowhere", "kafka/localhost"), "the keytab /nowhere cannot be read: No such file"),
        (keytab_entry(keytab, "kafka/other"), "the keytab has no key for kafka/other@BARNABAS.TEST"),
    ):
        settings = {**broker_settings(realm), "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": entry}
        with pytest.raises(InvalidConfig, match=reason):
            RunningBroker(tmp_path, settings).start()


class _Blocked:
    """A machine whose thread waits until the test lets it go on."""

    login: Login | None = None

    def __init__(self) -> None:
        self.may_go_on = threading.Event()

    def step(self, message: bytes) -> bytes:
        self.may_go_on.wait()
        return message


def test_threads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.broker.authentication import slow_server

    monkeypatch.setattr(slow_server, "WAITING_MAX", 3)
    monkeypatch.setattr(slow_server, "TIMEOUT_S", 0.05)
    machine = _Blocked()

    async def run() -> list[bytes | BaseException]:
        server = SlowServer(SaslThreads(), lambda: machine)
        return await asyncio.gather(*(server.step(b"") for _ in range(4)), return_exceptions=True)

    try:
        answers = asyncio.run(run())
    finally:
        machine.may_go_on.set()
    assert all(isinstance(each, SaslFailed) for each in answers)
    reasons = [each.log_reason for each in answers if isinstance(each, SaslFailed)]
    assert sorted(reasons) == ["3 messages wait", *["a message took longer than 0.05 s"] * 3]


def test_errors_have_no_traceback_in_the_log(
    broker: RunningBroker, realm: Realm, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(broker, keytab_entry(realm.keytabs["a/b/c"], "a/b/c"))
    with pytest.raises(KafkaError), barnabas.Admin(settings) as admin:
        admin.describe_cluster()
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
