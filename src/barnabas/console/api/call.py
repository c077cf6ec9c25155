"""One request to the API: its path, parameters and body, checked as they are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar

from barnabas.console.connection import Connection
from barnabas.console.sampling import Sampler
from barnabas.console.search.masking import NO_MASKS, Masks
from barnabas.errors import InvalidRequest

BODY_BYTES_MAX: Final = 2 << 20
PARAMETER_CHARACTERS_MAX: Final = 4_000
INT64_MAX: Final = 2**63 - 1

E = TypeVar("E", bound=StrEnum)


class Pipelines(Protocol):
    """The pipelines whose files the console was given, as JSON."""

    def list(self) -> list[dict[str, Any]]: ...

    def show(self, name: str) -> dict[str, Any] | None: ...


class Schemas(Protocol):
    """A schema registry."""

    def decorate(self, record: Mapping[str, Any]) -> None:
        """Adds what schemas say about the key and value of a rendered record."""


@dataclass(slots=True)
class SessionState:
    """Whether the session of a user still lasts; streams end with it."""

    is_open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """What the handlers share: the console of one user, or of all if there is no login."""

    connection: Connection
    sampler: Sampler
    is_read_only: bool
    may_read_files: bool
    masks: Masks = NO_MASKS
    pipelines: Pipelines | None = None
    schemas: Schemas | None = None
    user: str | None = None
    state: SessionState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        value = self.query.get(name, default)
        if len(value) > PARAMETER_CHARACTERS_MAX:
            raise InvalidRequest(f"the parameter {name} is too long: {len(value)} characters")
        return value

    def integer(self, name: str, default: int, minimum: int = 0, maximum: int = INT64_MAX) -> int:
        text = self.text(name)
        return default if not text else bounded(name, text, minimum, maximum)

    def flag(self, name: str) -> bool:
        return self.text(name) in ("1", "true")

    def choice(self, name: str, default: E) -> E:
        return choice(name, self.text(name) or default, type(default))

    def partitions(self) -> tuple[int, ...]:
        """The parameter `partition`: numbers with commas between them."""
        text = self.text("partition")
        return tuple(bounded("partition", each, 0, 2**31 - 1) for each in text.split(",")) if text else ()

    def body_text(self, name: str, *, required: bool = True) -> str | None:
        value = self.body.get(name)
        if value is None and not required:
            return None
        if not isinstance(value, str):
            raise InvalidRequest(f"the body needs {name}, a text")
        return value

    def body_integer(self, name: str, default: int | None = None) -> int:
        value = self.body.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > INT64_MAX:
            raise InvalidRequest(f"the body needs {name}, a whole number")
        return value


Handler = Callable[[Console, Call], Any]


def bounded(name: str, text: str, minimum: int, maximum: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise InvalidRequest(f"{name}={text[:40]!r} is not a whole number") from None
    if not minimum <= value <= maximum:
        raise InvalidRequest(f"{name}={value} must be from {minimum} to {maximum}")
    return value


def choice(name: str, text: str, kind: type[E]) -> E:
    try:
        return kind(text)
    except ValueError:
        raise InvalidRequest(
            f"{name}={text[:40]!r} is not known; it is one of {', '.join(each.value for each in kind)}"
        ) from None


def parse_body(data: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        raise InvalidRequest("the body is not JSON") from None
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object")
    return body
