"""Keys and values that name a schema of a registry (Confluent's format), decoded for pages: Avro, JSON, Protobuf.

A registry that does not answer is left alone for a while, and records are shown as bytes.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from barnabas.client.schemas.decoding import SchemaDecoder
from barnabas.client.schemas.registry import SchemaRegistry
from barnabas.errors import InvalidRecord, KafkaError

MAGIC: Final = 0
HEADER_BYTES: Final = 5
TIMEOUT_MS: Final = 3_000
PAUSE_S: Final = 10.0
FAILURES_MAX: Final = 1_000


class SchemaView:
    """Decodes what pages show. For several threads."""

    def __init__(self, url: str) -> None:
        self._decoder = SchemaDecoder(SchemaRegistry(url, timeout_ms=TIMEOUT_MS))
        self._lock = threading.Lock()
        # When a schema id may be asked for again, with the reason why it could not be used.
        self._failed: dict[int, tuple[float, str]] = {}

    def decorate(self, record: Mapping[str, Any]) -> None:
        """Adds `schema` to the key and the value of a rendered record: id, type, name and the value as JSON."""
        for form in (record["key"], record["value"]):
            if form is not None and not form.get("truncated"):
                data = _bytes_of(form)
                if len(data) >= HEADER_BYTES and data[0] == MAGIC:
                    form["schema"] = self._decoded(data)

    def _decoded(self, data: bytes) -> dict[str, Any]:
        schema_id = int.from_bytes(data[1:HEADER_BYTES], "big")
        with self._lock:
            again_s, reason = self._failed.get(schema_id, (0.0, ""))
        if again_s > time.monotonic():
            return {"id": schema_id, "error": reason}
        try:
            found = self._decoder.decode(data)
            return {
                "id": schema_id,
                "type": found.schema_type,
                "name": found.name,
                "json": found.to_json(),
            }
        except (KafkaError, ImportError, ValueError, RecursionError) as error:
            reason = str(error)[:500] or type(error).__name__
            # Bytes that do not fit their schema say nothing about other records.
            if not isinstance(error, InvalidRecord):
                self._remember(schema_id, reason)
            return {"id": schema_id, "error": reason}

    def _remember(self, schema_id: int, reason: str) -> None:
        with self._lock:
            while len(self._failed) >= FAILURES_MAX:
                del self._failed[next(iter(self._failed))]
            self._failed[schema_id] = (time.monotonic() + PAUSE_S, reason)


def _bytes_of(form: Mapping[str, Any]) -> bytes:
    return base64.b64decode(form["base64"]) if "base64" in form else str(form["text"]).encode()
