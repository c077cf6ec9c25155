"""Encodes large responses in a thread. This module is not compiled, so that the event loop runs in between."""

from __future__ import annotations

from typing import Any, Final

from barnabas.protocol.codec import encode
from barnabas.protocol.message import Message

CLEARED_AT_ONCE: Final = 100


def encode_and_clear(body: Message, version: int, elements: list[Any]) -> bytes:
    """The encoded message. Its elements are freed a few at a time."""
    encoded = encode(body, version)
    while elements:
        del elements[-CLEARED_AT_ONCE:]
    return encoded
