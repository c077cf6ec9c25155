"""The subject of a certificate as Kafka writes it: RFC 2253, as Java's `X500Principal.getName()`; alternative names.

Python's `ssl` gives a subject without the types of its strings, which Java prints for attributes that RFC 2253 does not
name. So this reads the certificate itself (DER), as far as the subject.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from barnabas.errors import UnknownServerError

SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_ID: Final = 0x06
INTEGER: Final = 0x02
VERSION: Final = 0xA0
EXTENSIONS: Final = 0xA3
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
# Of alternative names: mail addresses, hosts and URIs are text.
_TEXT_KINDS: Final = (1, 2, 6)
_ADDRESS_KIND: Final = 7
# Attributes that RFC 2253 names. Java prints others as numbers with their encoded values.
_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# By the tag of the string's type: UTF-8, numeric, printable, teletex, IA5, visible, universal, BMP.
_ENCODINGS: Final = {
    0x0C: "utf-8",
    0x12: "ascii",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1A: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
# Java writes these with a backslash, and spaces at the beginning and the end.
_ESCAPED: Final = frozenset(',+"\\<>;=#')


class MalformedCertificate(UnknownServerError):
    """Bytes that are no certificate."""


def subject_of(certificate: bytes) -> str:
    """Raises MalformedCertificate."""
    try:
        return ",".join(reversed([_relative_name(each) for each in _subject(certificate)]))
    except (IndexError, UnicodeDecodeError, StopIteration):
        raise MalformedCertificate("the subject of a certificate cannot be read") from None


def alternative_names_of(certificate: bytes) -> list[str]:
    """The subject alternative names, as `2:localhost` with the number of their kind. Raises MalformedCertificate."""
    try:
        return [_general_name(tag, content) for tag, content in _alternative_names(certificate)]
    except (IndexError, ValueError):
        raise MalformedCertificate("the alternative names of a certificate cannot be read") from None


def _alternative_names(certificate: bytes) -> Iterator[tuple[int, bytes]]:
    _, whole, _ = _element(certificate, 0)
    _, signed, _ = _element(whole, 0)
    for tag, content in _tagged_elements(signed):
        if tag != EXTENSIONS:
            continue
        _, extensions, _ = _element(content, 0)
        for extension in _elements(extensions):
            # Its number, perhaps whether it is critical, and its value as a string of bytes.
            parts = list(_elements(extension))
            if _dotted(parts[0]) == _ALTERNATIVE_NAMES:
                _, names, _ = _element(parts[-1], 0)
                yield from _tagged_elements(names)


def _general_name(tag: int, content: bytes) -> str:
    kind = tag & 0x1F
    if kind in _TEXT_KINDS:
        return f"{kind}:{content.decode('ascii')}"
    if kind == _ADDRESS_KIND:
        return f"{kind}:{ipaddress.ip_address(content)}"
    return f"{kind}:#{content.hex()}"


def _subject(certificate: bytes) -> Iterator[bytes]:
    """The encoded parts of the subject, in the order of the certificate."""
    _, whole, _ = _element(certificate, 0)
    _, signed, _ = _element(whole, 0)
    position = 0
    tag, _, after = _element(signed, position)
    if tag == VERSION:
        position = after
    # Serial number, algorithm of the signature, issuer, period; then the subject.
    for _ in range(4):
        _, _, position = _element(signed, position)
    _, subject, _ = _element(signed, position)
    return _elements(subject)


def _relative_name(attributes: bytes) -> str:
    return "+".join(_attribute(each) for each in _elements(attributes))


def _attribute(encoded: bytes) -> str:
    _, object_id, position = _element(encoded, 0)
    tag, value, end = _element(encoded, position)
    number = _dotted(object_id)
    name = _NAMES.get(number)
    encoding = _ENCODINGS.get(tag)
    if name is None or encoding is None:
        return f"{name or number}=#{encoded[position:end].hex()}"
    return f"{name}={_escaped(value.decode(encoding))}"


def _escaped(text: str) -> str:
    first, last = len(text) - len(text.lstrip(" ")), len(text.rstrip(" "))
    return "".join(
        f"\\{each}" if each in _ESCAPED or (each == " " and not first <= index < last) else each
        for index, each in enumerate(text)
    )


def _dotted(object_id: bytes) -> str:
    numbers = []
    value = 0
    for byte in object_id:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _elements(data: bytes) -> Iterator[bytes]:
    for _, content in _tagged_elements(data):
        yield content


def _tagged_elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        tag, content, position = _element(data, position)
        yield tag, content


def _element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Tag, content, and the position behind it."""
    tag, size = data[position], data[position + 1]
    begin = position + 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(data[begin : begin + count], "big")
        begin += count
    end = begin + size
    if end > len(data):
        raise IndexError
    return tag, data[begin:end], end
