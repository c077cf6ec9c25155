"""The errors of messages in decoding and encoding. Each error names message, version, field and position."""

from __future__ import annotations

from barnabas.errors import InvalidRequest, KafkaError, UnsupportedVersion


class DecodeError(InvalidRequest):
    """Bytes that are not the message that they should be.

    `field` is the path to the field at fault, such as `topics[2].partitions[0].records`, empty if the fault lies
    with the message as a whole. `position` is the first byte of that field, counted from the start of the buffer.
    """

    def __init__(self, message: str, version: int, field: str, position: int, reason: str) -> None:
        super().__init__(message, version, field, position, reason)
        self.message = message
        self.version = version
        self.field = field
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        where = f"field {self.field} " if self.field else ""
        return f"{self.message} v{self.version}: {where}at byte {self.position}: {self.reason}"


class EncodeError(KafkaError):
    """A message that cannot be written. It is always raised as one of its two kinds."""

    def __init__(self, message: str, version: int, field: str, reason: str) -> None:
        super().__init__(message, version, field, reason)
        self.message = message
        self.version = version
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        where = f"field {self.field}: " if self.field else ""
        return f"{self.message} v{self.version}: {where}{self.reason}"


class InvalidValue(InvalidRequest, EncodeError):
    """A value that does not fit its field: out of range, too long, of another type, or null in a field that is not
    nullable.
    """


class FieldNotInVersion(UnsupportedVersion, EncodeError):
    """A field that the version does not have holds more than its default, and must not be lost silently."""


class UnsupportedMessageVersion(UnsupportedVersion):
    """A version that the message does not have."""

    def __init__(self, message: str, version: int, versions: str) -> None:
        super().__init__(message, version, versions)
        self.message = message
        self.version = version
        self.versions = versions

    def __str__(self) -> str:
        return f"{self.message} has no version {self.version}, only {self.versions}"


class TooManyElements(Exception):
    """Raised inside a codec where a message has more elements than it may have, in all its arrays together."""


class Malformed(ValueError):
    """Raised inside a codec where something does not fit; the codec's caller finds out what and where."""
