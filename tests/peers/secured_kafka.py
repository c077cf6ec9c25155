"""Apache Kafka with its StandardAuthorizer: one listener for super users, and one for users with passwords."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from barnabas.testing import free_port
from bench.kafka import ApacheKafka
from tests.broker.raw_client import RawClient

PASSWORD: Final = "not-a-secret"


class SecuredKafka(ApacheKafka):
    """Brokers and administrators are `User:ANONYMOUS` at the port; users log in by PLAIN at `user_port`."""

    def __init__(self, directory: Path, overrides: Mapping[str, str], users: tuple[str, ...]) -> None:
        super().__init__(directory, overrides)
        self.user_port = free_port()
        known = dict(line.split("=", 1) for line in self._properties.read_text().splitlines())
        settings = {
            "listeners": f"{known['listeners']},USERS://127.0.0.1:{self.user_port}",
            "advertised.listeners": f"{known['advertised.listeners']},USERS://127.0.0.1:{self.user_port}",
            "listener.security.protocol.map": f"{known['listener.security.protocol.map']},USERS:SASL_PLAINTEXT",
            **user_settings(users),
        }
        # Of a name that is there twice, Java takes the last value.
        with self._properties.open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())

    def user_client(self, user: str) -> RawClient:
        return user_client(self.user_port, user)


def user_settings(users: tuple[str, ...]) -> dict[str, str]:
    """Of a broker with the listeners PLAINTEXT, for administrators, and USERS."""
    passwords = " ".join(f'user_{user}="{PASSWORD}"' for user in users)
    return {
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {passwords};"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def user_client(port: int, user: str) -> RawClient:
    client = RawClient(port)
    assert client.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism="PLAIN")).error_code == 0
    said = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{PASSWORD}".encode())
    answer = client.ask("SaslAuthenticate", 2, said)
    assert answer.error_code == 0, answer
    return client
