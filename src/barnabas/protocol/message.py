"""The common parts of all message types: the types of their fields, comparison and representation.

Message types are plain classes without a common base, so that each of their modules can be compiled on its own.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeAlias

from barnabas.primitives.file_slice import FileSlice

Uuid: TypeAlias = bytes
"""16 bytes; Kafka's text form of it is unpadded base64url (see `json_form`)."""

Buffer: TypeAlias = bytes | bytearray | memoryview
"""The bytes of an encoded message."""

Records: TypeAlias = bytes | bytearray | memoryview | FileSlice
"""The value of a `records` field: a view of the bytes it was decoded from, any bytes to encode, or for
`codec.encode_parts` a part of a file that is sent without being read."""

TaggedFields: TypeAlias = tuple[tuple[int, bytes], ...]
"""Tagged fields that the schema does not know, by ascending tag: encoders refuse any other order, as Kafka does."""

ZERO_UUID: Final = bytes(16)

EMPTY: Final[list[Any]] = []
"""The default of array arguments: `None` is null there, and each message gets an empty list of its own."""


class Message(Protocol):
    """A message or a struct: a slotted class of `messages/`, all of whose arguments have Kafka's defaults."""

    unknown_tagged_fields: TaggedFields


def equal(one: object, other: object) -> bool:
    return type(one) is type(other) and all(
        getattr(one, name) == getattr(other, name) for name in field_names(one)
    )


def show(message: object) -> str:
    """All fields except empty unknown tagged fields; records are shown by their size."""
    shown = []
    for name in field_names(message):
        value = getattr(message, name)
        if isinstance(value, memoryview | bytearray):
            shown.append(f"{name}=<{len(value)} bytes>")
        elif name != "unknown_tagged_fields" or value:
            shown.append(f"{name}={value!r}")
    return f"{type(message).__name__}({', '.join(shown)})"


def field_names(message: object) -> tuple[str, ...]:
    # A compiled class has no __slots__: mypyc omits them and lists the attributes under a different name.
    message_type = type(message)
    names: tuple[str, ...] = getattr(message_type, "__slots__", None) or message_type.__mypyc_attrs__  # type: ignore[attr-defined]
    return names
