"""The listeners of a broker and their advertised addresses: `NAME://host:port`, separated by commas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from barnabas.config.definition import InvalidSetting
from barnabas.value import Value

LISTENERS_MAX: Final = 64
EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")
_FORM: Final = "NAME://host:port, such as PLAINTEXT://localhost:9092 or PLAINTEXT://[::1]:9092"
_HOST_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-%._:")


class SecurityProtocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)


class Endpoint(Value, kw_only=True):
    """A listener. An empty host means every interface of the machine, or its own name when advertised."""

    listener_name: str
    host: str
    port: int
    security_protocol: SecurityProtocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"

    @property
    def local_address(self) -> str:
        """For a command on the same machine. A free port is not known before the start."""
        host = "localhost" if self.host in EVERY_ADDRESS else self.host
        return f"{f'[{host}]' if ':' in host else host}:{self.port or 'PORT'}"


def parse_security_protocols(setting: str, text: str) -> dict[str, SecurityProtocol]:
    """`listener.security.protocol.map`: NAME:PROTOCOL pairs."""
    protocols = {}
    for pair in text.split(","):
        name, colon, protocol = (part.strip() for part in pair.partition(":"))
        if not name or not colon or protocol.upper() not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol)
            raise InvalidSetting(
                setting, pair.strip(), f"pairs of NAME:PROTOCOL, PROTOCOL being one of {known}"
            )
        protocols[name.upper()] = SecurityProtocol(protocol.upper())
    return protocols


def parse_endpoints(
    setting: str, items: Iterable[str], protocols: Mapping[str, SecurityProtocol]
) -> tuple[Endpoint, ...]:
    endpoints = tuple(_parse_endpoint(setting, item, protocols) for item in items)
    if len(endpoints) > LISTENERS_MAX:
        raise InvalidSetting(setting, len(endpoints), f"at most {LISTENERS_MAX} listeners")
    names = [endpoint.listener_name for endpoint in endpoints]
    if len(set(names)) < len(names):
        raise InvalidSetting(setting, ",".join(names), "each listener name once")
    return endpoints


def _parse_endpoint(setting: str, text: str, protocols: Mapping[str, SecurityProtocol]) -> Endpoint:
    name, separator, address = text.strip().partition("://")
    host, colon, port = address.rpartition(":")
    if host[:1] == "[" and host[-1:] == "]":
        host = host[1:-1]
    if not (
        name
        and separator
        and colon
        and _HOST_CHARACTERS.issuperset(host)
        and port.isascii()
        and port.isdigit()
        and len(port) <= 5
        and int(port) <= 65535
    ):
        raise InvalidSetting(setting, text, _FORM)
    name = name.upper()
    if name not in protocols:
        known = ", ".join(protocols)
        raise InvalidSetting(
            setting, text, f"listener names that listener.security.protocol.map has, which are {known}"
        )
    return Endpoint(listener_name=name, host=host, port=int(port), security_protocol=protocols[name])
