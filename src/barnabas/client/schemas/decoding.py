"""Values of all three kinds, by the schema that their bytes name: for tools that show records.

    decoder = SchemaDecoder(SchemaRegistry("http://localhost:8081"))
    decoder.decode(record.value).value

`decode` blocks while it asks the registry, once per schema.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import uuid
from dataclasses import dataclass
from typing import Any

from barnabas.client.failures import SerializationError
from barnabas.client.schemas.registry import AVRO, JSON, PROTOBUF, SchemaRegistry
from barnabas.client.schemas.serializers import check_registry
from barnabas.client.schemas.wire import HEADER, read_message_indexes, schema_id_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedValue:
    """A value, plain enough for JSON but for what `to_json` converts, and the schema that it was written with."""

    schema_id: int
    schema_type: str
    # The name of the record or message, where the schema has one.
    name: str | None
    value: Any

    def to_json(self) -> str:
        """The value as JSON: bytes in base64, times in ISO 8601, decimals and ids as text."""
        return json.dumps(self.value, default=_plain, ensure_ascii=False)


class SchemaDecoder:
    """Decodes values by their schema ids. Each kind needs its extra (avro, protobuf; JSON needs none) at first use."""

    def __init__(self, registry: SchemaRegistry) -> None:
        check_registry(registry, self)
        self._registry = registry
        self._avro: Any = None
        self._protobuf: Any = None

    def decode(self, data: bytes) -> DecodedValue:
        """The value of bytes with a schema id.

        Raises NoSchemaHeader for other bytes, SchemaNotFound for an unknown id, and SerializationError for bytes that
        do not fit their schema.
        """
        schema_id = schema_id_of(data)
        schema = self._registry.schema(schema_id)
        if schema.type == AVRO:
            name, value = self._decode_avro(schema_id, data)
        elif schema.type == JSON:
            name, value = self._decode_json(schema_id, data)
        elif schema.type == PROTOBUF:
            name, value = self._decode_protobuf(schema_id, data)
        else:
            raise SerializationError(f"schema {schema_id} is of the unknown type {schema.type}")
        return DecodedValue(schema_id=schema_id, schema_type=schema.type, name=name, value=value)

    def _decode_avro(self, schema_id: int, data: bytes) -> tuple[str | None, Any]:
        if self._avro is None:
            from barnabas.client.schemas.avro import AvroSchemas

            self._avro = AvroSchemas(self._registry)
        schema = self._registry.schema(schema_id)
        parsed = self._avro.parsed(schema)
        name = parsed.get("name") if isinstance(parsed, dict) else None
        return name, self._avro.decode(schema, schema_id, data)

    def _decode_json(self, schema_id: int, data: bytes) -> tuple[str | None, Any]:
        from barnabas.client.schemas.json_schema import parse_json_schema, read_json

        tree = parse_json_schema(self._registry.schema(schema_id))
        title = tree.get("title") if isinstance(tree, dict) else None
        return title, read_json(data)

    def _decode_protobuf(self, schema_id: int, data: bytes) -> tuple[str | None, Any]:
        from barnabas.client.schemas.protobuf import MessageClasses, parse

        if self._protobuf is None:
            self._protobuf = MessageClasses(self._registry)
        from google.protobuf import json_format

        indexes, position = read_message_indexes(data, HEADER.size)
        message = parse(self._protobuf.get(schema_id, indexes), data[position:], schema_id)
        return message.DESCRIPTOR.full_name, json_format.MessageToDict(
            message, preserving_proto_field_name=True
        )


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    raise SerializationError(f"a value of type {type(value).__name__} has no form in JSON")
