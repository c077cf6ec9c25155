"""Quotas of users that have logged in: the most specific one counts, in Kafka's order."""

from __future__ import annotations

from pathlib import Path

from barnabas.broker.quotas.quotas import DEFAULT, PRODUCER_BYTE_RATE
from barnabas.clock import ManualClock
from barnabas.security.jaas import PLAIN
from tests.broker.authentication.test_sasl import log_in
from tests.broker.quotas.test_enforcement import HALF_A_SECOND, ask_produce
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.broker.running import RunningBroker

# As in a quota of Kafka's, which has such names in another form in the store.
STRANGE = "CN=ann, O=x/y"
USERS = {"ann": "a", "bob": "b", STRANGE: "s"}
_USERS = " ".join(f'"user_{name}"={password}' for name, password in USERS.items())
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (f"{PLAIN} required {_USERS};"),
}
LITTLE, MUCH = {PRODUCER_BYTE_RATE: HALF_A_SECOND}, {PRODUCER_BYTE_RATE: HALF_A_SECOND * 1_000}


def throttle_ms(broker: RunningBroker, user: str, client_id: str) -> int:
    with RawClient(broker.server.ports["SASL_PLAINTEXT"], client_id=client_id) as client:
        log_in(client, f"\0{user}\0{USERS[user]}".encode())
        return ask_produce(client, "t")


def test_the_quota_of_a_user(tmp_path: Path) -> None:
    clock = ManualClock()
    with RunningBroker(tmp_path, SETTINGS, clock=clock) as broker:
        with RawClient(broker.server.ports["SASL_PLAINTEXT"]) as client:
            log_in(client, b"\0bob\0b")
            create_topic(client, "t")
        writer = broker.server.broker.writer

        def limit(user: str | None, client_id: str | None, limits: dict[str, float]) -> None:
            broker.call(lambda: writer.alter_quotas({(user, client_id, None): lambda _: limits}))
            clock.advance_ms(60_000)

        limit("ann", None, LITTLE)
        assert throttle_ms(broker, "ann", "loud") == 500
        assert throttle_ms(broker, "bob", "loud") == 0
        limit("ann", "loud", MUCH)
        assert throttle_ms(broker, "ann", "loud") == 0
        assert throttle_ms(broker, "ann", "other") == 500
        limit("ann", DEFAULT, MUCH)
        assert throttle_ms(broker, "ann", "other") == 0
        # The quota of a client id counts for users without one.
        limit(None, "loud", LITTLE)
        assert throttle_ms(broker, "ann", "loud") == 0
        assert throttle_ms(broker, "bob", "loud") == 500
        limit(DEFAULT, None, MUCH)
        assert throttle_ms(broker, "bob", "loud") == 0
        limit(STRANGE, None, LITTLE)
        assert throttle_ms(broker, STRANGE, "other") == 500
