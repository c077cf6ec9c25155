"""TLS and SASL of a broker under test: certificates and users."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.security.jaas import PLAIN, SCRAM
from barnabas.security.new_users import new_user, new_user_text
from barnabas.testing.ports import HOST

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISM: Final = "SCRAM-SHA-256"
DEFAULT_USER: Final = "tester"
_HOSTS: Final = ("localhost", HOST, "::1")

# One set of certificates for all brokers of a process: to create one takes a tenth of a second.
_certificates: dict[str, str] = {}


def new_security(protocol: str, users: Mapping[str, str] | None) -> TestSecurity | None:
    """None for PLAINTEXT. Raises ValueError."""
    name = protocol.upper()
    if name not in PROTOCOLS:
        raise ValueError(f"security must be one of {', '.join(PROTOCOLS).lower()}, and not {protocol!r}")
    if users and not name.startswith("SASL"):
        raise ValueError("users log in with sasl_ssl or sasl_plaintext: set security")
    if name == "PLAINTEXT":
        return None
    return TestSecurity(name, users or {DEFAULT_USER: secrets.token_urlsafe()})


class TestSecurity:
    # pytest would otherwise take it for a test.
    __test__ = False

    def __init__(self, protocol: str, users: Mapping[str, str]) -> None:
        self.protocol = protocol
        self._users = dict(users)
        self._has_tls = protocol.endswith("SSL")
        self._has_sasl = protocol.startswith("SASL")

    def broker_settings(self, folder: Path, given: Mapping[str, str]) -> Mapping[str, str]:
        """Several brokers log in to each other as the first user. `given` are the settings of the test."""
        settings: dict[str, str] = {}
        if self._has_tls:
            for name in ("server", "ca"):
                file = folder / f"{name}.pem"
                if not file.exists():
                    file.touch(mode=0o600)
                    file.write_text(_certificate(name))
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(folder / "server.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(folder / "ca.pem"),
            }
        if self._has_sasl:
            users = " ".join(f'user_{name}="{_escaped(password)}"' for name, password in self._users.items())
            name, password = next(iter(self._users.items()))
            login = f'username="{_escaped(name)}" password="{_escaped(password)}"'
            listener = f"listener.name.{self.protocol.lower()}."
            enabled = given.get("sasl.enabled.mechanisms", "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN")
            settings["sasl.enabled.mechanisms"] = enabled
            if "PLAIN" in enabled.split(","):
                # A broker refuses the users of a mechanism that it does not have.
                settings |= {
                    "sasl.mechanism.inter.broker.protocol": "PLAIN",
                    f"{listener}plain.sasl.jaas.config": f"{PLAIN} required {login} {users};",
                }
        return settings

    def new_users(self) -> list[str]:
        """For `barnabas start --add-scram`."""
        if not self._has_sasl:
            return []
        return [
            new_user_text(new_user(name, password, mechanism))
            for name, password in self._users.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        ]

    def client_settings(self, user: str | None = None) -> dict[str, str]:
        settings = {"security.protocol": self.protocol}
        if self._has_tls:
            settings |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": _certificate("ca"),
            }
        if self._has_sasl:
            name = user or next(iter(self._users))
            password = _escaped(self._users[name])
            settings |= {
                "sasl.mechanism": MECHANISM,
                "sasl.jaas.config": f'{SCRAM} required username="{_escaped(name)}" password="{password}";',
            }
        return settings


def _certificate(name: str) -> str:
    if not _certificates:
        from barnabas.security.dev_certificates import dev_certificates

        _certificates.update(dev_certificates(_HOSTS, (), datetime.datetime.now(datetime.UTC)))
    return _certificates[name]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
