"""Who sent a request: a principal, as in Kafka, has a type (nearly always `User`) and a name."""

from __future__ import annotations

from typing import Final, NamedTuple

USER: Final = "User"


class Principal(NamedTuple):
    """Written as `User:ann`."""

    type: str
    name: str
    # Whether the client has logged in with a delegation token. Such a client may not create tokens.
    has_token: bool = False

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")


def parse_principal(text: str) -> Principal:
    """`User:ann` as a principal. Raises ValueError."""
    kind, separator, name = text.partition(":")
    if not kind or not separator or not name:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return Principal(kind, name)
