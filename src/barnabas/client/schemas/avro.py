"""Values in Avro, by fastavro (`pip install 'barnabas[avro]'`)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.failures import SerializationError
from barnabas.client.schemas.registry import AVRO, Schema, SchemaRegistry
from barnabas.client.schemas.serializers import (
    VALUE,
    JsonSchemaLike,
    SchemaSerializer,
    check_registry,
    missing_extra,
    schema_text,
)
from barnabas.client.schemas.subjects import SubjectStrategy
from barnabas.client.schemas.wire import HEADER, header, schema_id_of
from barnabas.errors import InvalidConfig

if TYPE_CHECKING:
    from types import ModuleType

PARSED_MAX: Final = 1_000


class AvroSerializer(SchemaSerializer):
    """Makes Avro of dicts and plain values.

    `schema` is the schema as JSON text or as a dict, or a Schema with references. `to_dict` makes a dict of another
    object.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: JsonSchemaLike | None = None,
        *,
        to_dict: Callable[[Any], Any] | None = None,
        field: str = VALUE,
        auto_register: bool = True,
        use_latest_version: bool = False,
        schema_id: int | None = None,
        normalize: bool = False,
        subject_strategy: SubjectStrategy = "topic",
        strict: bool = False,
    ) -> None:
        """With `strict`, a record must have exactly the fields of the schema."""
        check_registry(registry, self)
        own = avro_schema(schema)
        super().__init__(
            registry,
            own,
            field=field,
            auto_register=auto_register,
            use_latest_version=use_latest_version,
            schema_id=schema_id,
            normalize=normalize,
            subject_strategy=subject_strategy,
        )
        self._parser = AvroSchemas(registry)
        self._to_dict = to_dict
        self._strict = strict
        # A wrong schema raises here and not with the first record.
        self._name = None if own is None else _name_of(own, self._parser.parsed(own))

    def _own_name(self) -> str | None:
        return self._name

    def _encode(self, schema_id: int, schema: Schema, given: Any) -> bytes:
        parsed = self._parser.parsed(schema)
        value = given if self._to_dict is None else self._to_dict(given)
        if is_plain_bytes(parsed):
            if isinstance(value, str):
                value = value.encode()
            if not isinstance(value, bytes | bytearray | memoryview):
                raise SerializationError(
                    f"the value does not fit the Avro schema {schema_id}: it takes bytes, and not"
                    f" {type(value).__name__}"
                )
            return header(schema_id) + bytes(value)
        buffer = io.BytesIO()
        buffer.write(header(schema_id))
        try:
            self._parser.fastavro.schemaless_writer(buffer, parsed, value, strict=self._strict)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise SerializationError(
                f"the value does not fit the Avro schema {schema_id}: {type(error).__name__}: {error}"
            ) from error
        return buffer.getvalue()


class AvroDeserializer:
    """Makes dicts and plain values of Avro.

    With a `schema`, values come in its form, by Avro's rules of schema resolution; else in that of their writers.
    `from_dict` makes another object of a dict.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: JsonSchemaLike | None = None,
        *,
        from_dict: Callable[[Any], Any] | None = None,
        named_records: bool = False,
    ) -> None:
        """With `named_records`, a record in a union is a pair of its name and its fields."""
        check_registry(registry, self)
        self._parser = AvroSchemas(registry)
        self._registry = registry
        self._from_dict = from_dict
        self._named_records = named_records
        own = avro_schema(schema)
        self._reader = None if own is None else self._parser.parsed(own)

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        """The value of bytes with a schema id; None stays None."""
        if data is None:
            return None
        schema_id = schema_id_of(data)
        schema = self._registry.schema(schema_id)
        if schema.type != AVRO:
            raise SerializationError(
                f"schema {schema_id} of topic {topic!r} is of type {schema.type}, not AVRO"
            )
        value = self._parser.decode(
            schema, schema_id, data, reader=self._reader, named_records=self._named_records
        )
        return value if self._from_dict is None else self._from_dict(value)


class AvroSchemas:
    """Parsed schemas, each with those that it refers to."""

    def __init__(self, registry: SchemaRegistry) -> None:
        try:
            import fastavro
        except ImportError:
            raise missing_extra("Avro", "fastavro", "avro") from None
        self.fastavro: ModuleType = fastavro
        self._registry = registry
        self.parsed: Callable[[Schema], Any] = lru_cache(PARSED_MAX)(self._parse)

    def decode(
        self,
        schema: Schema,
        schema_id: int,
        data: bytes,
        *,
        reader: Any = None,
        named_records: bool = False,
    ) -> Any:
        """The value behind the header."""
        writer = self.parsed(schema)
        if is_plain_bytes(writer):
            return bytes(data[HEADER.size :])
        buffer = io.BytesIO(data)
        buffer.seek(HEADER.size)
        try:
            return self.fastavro.schemaless_reader(buffer, writer, reader, named_records)
        # fastavro raises whatever wrong bytes lead to.
        except Exception as error:
            raise SerializationError(
                f"the bytes are no value of the Avro schema {schema_id}: {type(error).__name__}: {error}"
            ) from error

    def _parse(self, schema: Schema) -> Any:
        named: dict[str, Any] = {}
        parsed: Any = None
        for each in (*self._registry.referenced(schema).values(), schema):
            try:
                parsed = self.fastavro.parse_schema(json.loads(each.text), named_schemas=named)
            # So does it with wrong schemas.
            except Exception as error:
                raise InvalidConfig(f"not an Avro schema: {type(error).__name__}: {error}") from None
        return parsed


def avro_schema(given: JsonSchemaLike | None) -> Schema | None:
    """A plain type such as "string" is written as an object, as Confluent's clients do."""
    if given is None or isinstance(given, Schema):
        return given
    stripped = schema_text(given, "{'type': 'string'}").strip()
    if not stripped:
        raise InvalidConfig("the Avro schema is empty: give it as JSON text")
    return Schema(stripped if stripped[0] in "{[" else f'{{"type":{stripped}}}')


def is_plain_bytes(parsed: Any) -> bool:
    """Bytes on their own have no length before them."""
    return parsed == "bytes" or (isinstance(parsed, dict) and parsed.get("type") == "bytes")


def _name_of(schema: Schema, parsed: Any) -> str | None:
    if not isinstance(parsed, dict):
        return parsed if isinstance(parsed, str) else None
    name = parsed.get("name", json.loads(schema.text).get("type"))
    return name if isinstance(name, str) else None
