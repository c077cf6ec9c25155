"""The error of one result in a response."""

from __future__ import annotations

from barnabas.errors import NONE, KafkaError


def code_of(error: KafkaError | None) -> int:
    return NONE if error is None else error.code


def message_of(error: KafkaError | None) -> str | None:
    return None if error is None else str(error)
