"""The error for a client when the store rejects a change."""

from __future__ import annotations

from barnabas.coordination.store.contract import SessionExpired, StoreError, StoreUnavailable
from barnabas.errors import KafkaError, KafkaStorageError, NotController, UnknownServerError


def as_kafka_error(error: StoreError) -> KafkaError:
    match error:
        case StoreUnavailable():
            return KafkaStorageError(f"the cluster's store is not available: {error}")
        case SessionExpired():
            return NotController(f"this broker has lost the cluster's store: {error}")
    return UnknownServerError(f"the cluster's store refused a change: {error}")
