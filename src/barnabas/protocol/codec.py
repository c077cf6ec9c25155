"""Messages to bytes and back: codecs made for one version of one message when it is first seen.

    message = decode(FetchRequest, data, version=12)
    data = encode(message, version=12)

The bytes here are a message alone, without size and header; `requests` puts them together. A decoded `records` field
is a view of `data`, which therefore must not be written to while the message lives; everything else is copied.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.protocol.errors import DecodeError, TooManyElements, UnsupportedMessageVersion
from barnabas.protocol.message import Buffer, Message, Records
from barnabas.protocol.native import native_codec
from barnabas.protocol.schema import MessageSchema, load_schema

if TYPE_CHECKING:
    from barnabas.protocol.decoders import Decoder
    from barnabas.protocol.encoders import Encoder

M = TypeVar("M", bound=Message)

_DECODERS: Final[dict[tuple[type[Any], int], Decoder]] = {}
_ENCODERS: Final[dict[tuple[type[Any], int], Encoder]] = {}

# As good as no bound: the size of a message bounds them too.
ELEMENTS_MAX: Final = 1 << 40

_DECODE_FAULTS: Final = (IndexError, ValueError, struct.error)
_ENCODE_FAULTS: Final = (AttributeError, TypeError, ValueError, OverflowError, struct.error)


def decode(message_class: type[M], data: Buffer, version: int, position: int = 0) -> M:
    """The message that fills `data` from `position` to its end; DecodeError if it does not."""
    message, end = decode_prefix(message_class, data, version, position)
    if end != len(data):
        from barnabas.protocol.faults import raise_leftover_error

        raise_leftover_error(load_schema(message_class.__name__), version, data, end)
    return message


def decode_prefix(
    message_class: type[M], data: Buffer, version: int, position: int = 0, elements_max: int = ELEMENTS_MAX
) -> tuple[M, int]:
    """The message that starts at `position`, and the position behind it.

    With more than `elements_max` elements in all its arrays it is refused, before it has cost more than those.
    """
    decoder = _DECODERS.get((message_class, version)) or _new_decoder(message_class, version)
    if type(data) is bytearray:
        data = memoryview(data)
    try:
        found: tuple[M, int] = decoder(data, position, elements_max)
    except TooManyElements:
        raise DecodeError(
            message_class.__name__, version, "", position, f"more than {elements_max} elements"
        ) from None
    except _DECODE_FAULTS:
        from barnabas.protocol.faults import raise_decode_error

        raise_decode_error(load_schema(message_class.__name__), version, data, position)
    return found


def encode(message: Message, version: int) -> bytes:
    message_class = type(message)
    encoder = _ENCODERS.get((message_class, version)) or _new_encoder(message_class, version)
    try:
        return encoder(message)
    except _ENCODE_FAULTS:
        from barnabas.protocol.faults import raise_encode_error

        raise_encode_error(load_schema(message_class.__name__), version, message)


def encode_parts(message: Message, version: int) -> list[bytes | Records]:
    """The same bytes in parts, with records as they are: a slice of a file stays one, and nothing large is copied."""
    message_class = type(message)
    encoder = _ENCODERS.get((message_class, version)) or _new_encoder(message_class, version)
    splices: list[tuple[int, Records]] = []
    try:
        written = encoder(message, splices)
    except _ENCODE_FAULTS:
        from barnabas.protocol.faults import raise_encode_error

        raise_encode_error(load_schema(message_class.__name__), version, message)
    parts: list[bytes | Records] = []
    start = 0
    for position, records in splices:
        parts.append(written[start:position])
        parts.append(records)
        start = position
    parts.append(written[start:])
    return parts


def encode_into(out: bytearray, message: Message, version: int) -> None:
    """Appends a message to `out`, which is left as it was if the message cannot be written."""
    out += encode(message, version)


def _new_decoder(message_class: type[Any], version: int) -> Decoder:
    schema = _schema(message_class, version)
    native = native_codec(message_class)
    decoder: Decoder
    if native:
        decoder = partial(native.decode, version)
    else:
        from barnabas.protocol.decoders import write_decoder

        decoder = write_decoder(schema, version, message_class)
    _DECODERS[message_class, version] = decoder
    return decoder


def _new_encoder(message_class: type[Any], version: int) -> Encoder:
    schema = _schema(message_class, version)
    native = native_codec(message_class)
    encoder: Encoder
    if native:
        encoder = partial(native.encode, version)
    else:
        from barnabas.protocol.encoders import write_encoder

        encoder = write_encoder(schema, version, message_class)
    _ENCODERS[message_class, version] = encoder
    return encoder


def _schema(message_class: type[Any], version: int) -> MessageSchema:
    schema = load_schema(message_class.__name__)
    if version not in schema.versions:
        raise UnsupportedMessageVersion(schema.name, version, str(schema.versions))
    return schema
