"""Values in JSON, checked by a JSON Schema (`pip install 'barnabas[json-schema]'`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from barnabas.client.failures import SerializationError
from barnabas.client.schemas.registry import JSON, Schema, SchemaRegistry
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

VALIDATORS_MAX: Final = 1_000


class JsonSchemaSerializer(SchemaSerializer):
    """Makes JSON of dicts and plain values. The title of the schema is the name of the record."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: JsonSchemaLike | None = None,
        *,
        to_dict: Callable[[Any], Any] | None = None,
        validate: bool = True,
        field: str = VALUE,
        auto_register: bool = True,
        use_latest_version: bool = False,
        schema_id: int | None = None,
        normalize: bool = False,
        subject_strategy: SubjectStrategy = "topic",
    ) -> None:
        check_registry(registry, self)
        own = json_schema(schema)
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
        self._checks = JsonChecks(registry)
        self._to_dict = to_dict
        self._validate = validate
        tree = None if own is None else parse_json_schema(own)
        title = tree.get("title") if isinstance(tree, dict) else None
        self._name = title if isinstance(title, str) else None
        if own is not None:
            # A wrong schema raises here and not with the first record.
            self._checks.validator(own)

    def _own_name(self) -> str | None:
        return self._name

    def _encode(self, schema_id: int, schema: Schema, given: Any) -> bytes:
        value = given if self._to_dict is None else self._to_dict(given)
        if self._validate:
            self._checks.check(schema, schema_id, value)
        try:
            text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            return header(schema_id) + text.encode()
        except (ValueError, TypeError) as error:
            raise SerializationError(f"the value cannot be written as JSON: {error}") from None


class JsonSchemaDeserializer:
    """Makes dicts and plain values of JSON, checked by the writer's schema, or by `schema` if one is given."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: JsonSchemaLike | None = None,
        *,
        from_dict: Callable[[Any], Any] | None = None,
        validate: bool = True,
    ) -> None:
        check_registry(registry, self)
        self._registry = registry
        self._checks = JsonChecks(registry)
        self._schema = json_schema(schema)
        self._from_dict = from_dict
        self._validate = validate

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        """The value of bytes with a schema id; None stays None."""
        if data is None:
            return None
        schema_id = schema_id_of(data)
        value = read_json(data)
        if self._validate:
            schema = self._schema or self._registry.schema(schema_id)
            if schema.type != JSON:
                raise SerializationError(
                    f"schema {schema_id} of topic {topic!r} is of type {schema.type}, not JSON"
                )
            self._checks.check(schema, schema_id, value)
        return value if self._from_dict is None else self._from_dict(value)


class JsonChecks:
    """Validators, each with the schemas that its schema refers to."""

    def __init__(self, registry: SchemaRegistry) -> None:
        try:
            import jsonschema
            import referencing.jsonschema
        except ImportError:
            raise missing_extra("JSON Schema", "jsonschema", "json-schema") from None
        self._jsonschema: Any = jsonschema
        self._referencing: Any = referencing
        self._registry = registry
        self.validator: Callable[[Schema], Any] = lru_cache(VALIDATORS_MAX)(self._make)

    def check(self, schema: Schema, schema_id: int, value: Any) -> None:
        """Raises SerializationError that names the place in the value."""
        error = self._jsonschema.exceptions.best_match(self.validator(schema).iter_errors(value))
        if error is not None:
            raise SerializationError(
                f"the value does not fit the JSON Schema {schema_id} at {error.json_path}: {error.message}"
            )

    def _make(self, schema: Schema) -> Any:
        tree = parse_json_schema(schema)
        kind = self._jsonschema.validators.validator_for(tree, default=self._jsonschema.Draft7Validator)
        try:
            kind.check_schema(tree)
        except self._jsonschema.exceptions.SchemaError as error:
            raise InvalidConfig(f"not a JSON Schema, at {error.json_path}: {error.message}") from None
        resources = [
            (
                name,
                self._referencing.Resource.from_contents(
                    parse_json_schema(each), default_specification=self._referencing.jsonschema.DRAFT7
                ),
            )
            for name, each in self._registry.referenced(schema).items()
        ]
        # Schemas are not fetched from the addresses that they name: only the registry is asked.
        return kind(tree, registry=self._referencing.Registry().with_resources(resources))


def json_schema(given: JsonSchemaLike | None) -> Schema | None:
    if given is None or isinstance(given, Schema):
        return given
    return Schema(schema_text(given, "{'type': 'object'}"), JSON)


def parse_json_schema(schema: Schema) -> Any:
    try:
        tree = json.loads(schema.text)
    except ValueError as error:
        raise InvalidConfig(f"the JSON Schema is not JSON: {error}") from None
    if not isinstance(tree, dict | bool):
        raise InvalidConfig(f"a JSON Schema is an object, true or false, and not {tree!r}")
    return tree


def read_json(data: bytes) -> Any:
    """The value behind the header."""
    try:
        return json.loads(data[HEADER.size :])
    except ValueError as error:
        raise SerializationError(f"the bytes behind the schema id are not JSON: {error}") from None
