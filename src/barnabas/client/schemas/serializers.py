"""Common parts of the serializers: which schema a value is written with.

A serializer writes with `schema_id`, or with the latest version of the subject (`use_latest_version`), or with its own
schema, which it registers (`auto_register`) or looks up. Each subject is asked for once.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from barnabas.client.schemas.registry import Schema, SchemaRegistry
from barnabas.client.schemas.subjects import SubjectStrategy, strategy_of
from barnabas.errors import InvalidConfig

KEY: Final = "key"
VALUE: Final = "value"
FIELDS: Final = (KEY, VALUE)
SUBJECTS_MAX: Final = 10_000

JsonSchemaLike: TypeAlias = str | Mapping[str, Any] | list[Any] | Schema
"""A schema as JSON text or as its tree, or a Schema with references."""


class SchemaSerializer(ABC):
    """Makes bytes of an object: `serialize(topic, object)`. The producer tells it whether it serves keys or values."""

    # What `schema()` of the registry is asked for.
    SCHEMA_FORMAT: str = ""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Schema | None,
        *,
        field: str,
        auto_register: bool,
        use_latest_version: bool,
        schema_id: int | None,
        normalize: bool,
        subject_strategy: SubjectStrategy,
    ) -> None:
        check_registry(registry, self)
        if field not in FIELDS:
            raise InvalidConfig(f"field={field!r}: use key or value")
        if schema is None and schema_id is None and not use_latest_version:
            raise InvalidConfig(
                f"{type(self).__name__} needs a schema, or use_latest_version=True, or a schema_id"
            )
        self._registry = registry
        self._schema = schema
        self._field = field
        # The latest version or a given id is there already.
        self._auto_register = auto_register and not use_latest_version and schema_id is None
        self._use_latest_version = use_latest_version
        self._schema_id = schema_id
        self._normalize = normalize
        self._subject_of = strategy_of(subject_strategy)
        self._chosen: dict[str, tuple[int, Schema]] = {}

    def serialize(self, topic: str, given: Any, field: str | None = None) -> bytes | None:
        """The bytes of an object; None stays None, which deletes a key of a compacted topic."""
        if given is None:
            return None
        subject = self._subject_of(topic, field or self._field, self._record_name(given))
        chosen = self._chosen.get(subject) or self._choose(subject)
        return self._encode(chosen[0], chosen[1], given)

    def for_field(self, field: str) -> Callable[[str, Any], bytes | None]:
        """This serializer for keys or for values: the producer asks for one of them."""
        return lambda topic, given: self.serialize(topic, given, field)

    def prepare(self, topic: str, field: str | None = None, record: str | None = None) -> int:
        """The schema id for a topic, asked for now and not with the first record: this call may block."""
        subject = self._subject_of(topic, field or self._field, record or self._own_name())
        return (self._chosen.get(subject) or self._choose(subject))[0]

    @abstractmethod
    def _encode(self, schema_id: int, schema: Schema, given: Any) -> bytes:
        """Header and body of an object."""

    @abstractmethod
    def _own_name(self) -> str | None:
        """The name of the record of the serializer's own schema."""

    def _record_name(self, given: Any) -> str | None:
        return self._own_name()

    def _to_register(self) -> Schema:
        """The serializer's own schema; a subclass registers first what it refers to."""
        assert self._schema is not None
        return self._schema

    def _choose(self, subject: str) -> tuple[int, Schema]:
        if self._schema_id is not None:
            chosen = self._schema_id, self._registry.schema(self._schema_id, format=self.SCHEMA_FORMAT)
        elif self._use_latest_version:
            latest = self._registry.version(subject, format=self.SCHEMA_FORMAT)
            chosen = latest.schema_id, latest.schema
        else:
            schema = self._to_register()
            if self._auto_register:
                chosen = self._registry.register(subject, schema, normalize=self._normalize), schema
            else:
                found = self._registry.lookup(subject, schema, normalize=self._normalize)
                chosen = found.schema_id, schema
        if len(self._chosen) >= SUBJECTS_MAX:
            self._chosen.clear()
        self._chosen[subject] = chosen
        return chosen


def check_registry(registry: object, user: object) -> None:
    """What is wrong raises here and not with the first record."""
    if not isinstance(registry, SchemaRegistry):
        is_address = isinstance(registry, str) and "://" in registry
        hint = f": make one, SchemaRegistry({registry!r})" if is_address else ""
        raise InvalidConfig(f"{type(user).__name__} needs a SchemaRegistry, and not {registry!r}{hint}")


def schema_text(given: object, example: str) -> str:
    """The JSON text of a schema, which may be given as the tree of its text."""
    if isinstance(given, str):
        return given
    try:
        if isinstance(given, Mapping | list):
            return json.dumps(given)
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"the schema has no form in JSON: {error}") from None
    raise InvalidConfig(f"a schema is JSON text, a dict or a Schema, such as {example}, and not {given!r}")


def missing_extra(what: str, package: str, extra: str) -> InvalidConfig:
    return InvalidConfig(f"{what} needs the package {package}: pip install 'barnabas[{extra}]'")
