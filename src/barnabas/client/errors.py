"""Every error of the clients that is not one of Kafka's codes: `barnabas.errors` exports them beside those."""

from __future__ import annotations

import sys

from barnabas import errors
from barnabas.client.admin.errors import AdminErrors
from barnabas.client.consumer.intake import DeserializationError
from barnabas.client.failures import (
    BufferExhausted,
    CalledInCallback,
    ClientClosed,
    DeliveryTimedOut,
    RecordTooLarge,
    SerializationError,
    TransactionMisuse,
)
from barnabas.client.schemas.failures import (
    NoSchemaHeader,
    SchemaNotFound,
    SchemaRegistryError,
    SchemaRegistryUnavailable,
)
from barnabas.client.subscription import ConsumerError, ConsumerWakeup, LogTruncation, NoOffsetForPartition
from barnabas.config.definition import InvalidSetting, UnknownSetting

__all__ = [
    "AdminErrors",
    "BufferExhausted",
    "CalledInCallback",
    "ClientClosed",
    "ConsumerError",
    "ConsumerWakeup",
    "DeliveryTimedOut",
    "DeserializationError",
    "InvalidSetting",
    "LogTruncation",
    "NoOffsetForPartition",
    "NoSchemaHeader",
    "RecordTooLarge",
    "SchemaNotFound",
    "SchemaRegistryError",
    "SchemaRegistryUnavailable",
    "SerializationError",
    "TransactionMisuse",
    "UnknownSetting",
]


def exported(name: str) -> object:
    """What `barnabas.errors` has besides Kafka's codes."""
    if name in __all__:
        return getattr(sys.modules[__name__], name)
    if name == "__all__":
        kafka = (each.__name__ for each in errors.ERRORS.values())
        return ["KafkaError", "RetriableError", *kafka, *__all__, "error_for_code", "error_name"]
    raise AttributeError(f"module 'barnabas.errors' has no attribute {name!r}")
