"""How the console reaches its cluster: the settings of its clients, and one admin client for all threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from barnabas.client.admin.admin import Admin

DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Settings with Kafka's names, each set for one kind of client. They may have passwords, so no page shows them."""

    bootstrap: str
    admin: Mapping[str, object] = field(repr=False)
    consumer: Mapping[str, object] = field(repr=False)
    producer: Mapping[str, object] = field(repr=False)

    def new_admin(self) -> Admin:
        return Admin(self.admin)

    def as_user(self, user: str, password: str) -> Connection:
        """The same connection with the SASL login of a user."""
        login = {"sasl.username": user, "sasl.password": password}

        def settings(base: Mapping[str, object]) -> Mapping[str, object]:
            given = {name: value for name, value in base.items() if name != "sasl.jaas.config"}
            protocol = str(given.get("security.protocol", "PLAINTEXT")).upper()
            if not protocol.startswith("SASL_"):
                protocol = f"SASL_{protocol}"
            return {"sasl.mechanism": DEFAULT_MECHANISM, **given, **login, "security.protocol": protocol}

        return replace(
            self,
            admin=settings(self.admin),
            consumer=settings(self.consumer),
            producer=settings(self.producer),
        )

    def consumer_settings(self, *, is_committed: bool) -> dict[str, str]:
        """The settings of readers, as texts. Readers belong to no group."""
        unused = ("group.id", "group.instance.id", "enable.auto.commit")
        level = "read_committed" if is_committed else "read_uncommitted"
        return {
            **{name: str(value) for name, value in self.consumer.items() if name not in unused},
            "isolation.level": level,
            "allow.auto.create.topics": "false",
            "auto.offset.reset": "earliest",
        }


def connection_to(
    bootstrap: str, *, api_timeout_ms: int = 15_000, settings: Mapping[str, str] = MappingProxyType({})
) -> Connection:
    """A connection with the same settings for all clients."""
    settings = {**settings, "bootstrap.servers": bootstrap, "client.id": "barnabas-console"}
    return Connection(
        bootstrap=bootstrap,
        admin={**settings, "default.api.timeout.ms": api_timeout_ms},
        consumer=settings,
        producer=settings,
    )
