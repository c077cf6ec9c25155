"""Errors of the schema registry and of records with schemas."""

from __future__ import annotations

from barnabas.client.failures import SerializationError
from barnabas.errors import InvalidConfig


class SchemaRegistryError(InvalidConfig):
    """The schema registry refuses a request. `status` is the HTTP status, `error_code` the registry's own code."""

    def __init__(self, message: str = "", *, status: int = 0, error_code: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code


class SchemaNotFound(SchemaRegistryError):
    """The schema registry has no such schema, subject or version."""


class SchemaRegistryUnavailable(SchemaRegistryError):
    """The schema registry cannot be reached, or fails; the call may be repeated."""

    retriable = True


class NoSchemaHeader(SerializationError):
    """The bytes do not begin with a schema id, so they were not written with a schema registry."""
