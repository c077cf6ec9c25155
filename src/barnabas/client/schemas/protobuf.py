"""Values in Protobuf (`pip install 'barnabas[protobuf]'`).

The schema of a message is the .proto file that declares it, registered as a descriptor in base64. Files that it imports
are registered before it, under their own names, and the schema refers to them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from barnabas.client.failures import SerializationError
from barnabas.client.schemas.registry import PROTOBUF, Schema, SchemaReference, SchemaRegistry
from barnabas.client.schemas.serializers import VALUE, SchemaSerializer, check_registry, missing_extra
from barnabas.client.schemas.subjects import SubjectStrategy
from barnabas.client.schemas.wire import (
    HEADER,
    header,
    message_indexes,
    read_message_indexes,
    schema_id_of,
)
from barnabas.errors import InvalidConfig

if TYPE_CHECKING:
    from google.protobuf.message import Message

# Every implementation of Protobuf, or of the registry, has these files.
KNOWN_FILES: Final = ("confluent/", "google/protobuf/", "google/type/")
SERIALIZED: Final = "serialized"
FILES_MAX: Final = 100
CLASSES_MAX: Final = 1_000


class ProtobufSerializer(SchemaSerializer):
    """Makes bytes of messages of one class, which protoc has generated."""

    SCHEMA_FORMAT = SERIALIZED

    def __init__(
        self,
        registry: SchemaRegistry,
        message_class: type[Message],
        *,
        field: str = VALUE,
        auto_register: bool = True,
        use_latest_version: bool = False,
        schema_id: int | None = None,
        normalize: bool = False,
        skip_known_types: bool = True,
        subject_strategy: SubjectStrategy = "topic",
    ) -> None:
        """With `skip_known_types`, files such as google/protobuf/timestamp.proto are not registered."""
        descriptor = descriptor_of(message_class, self)
        super().__init__(
            registry,
            Schema(_text_of(descriptor.file), PROTOBUF),
            field=field,
            auto_register=auto_register,
            use_latest_version=use_latest_version,
            schema_id=schema_id,
            normalize=normalize,
            subject_strategy=subject_strategy,
        )
        self._class = message_class
        self._descriptor = descriptor
        self._skip_known_types = skip_known_types
        self._indexes = message_indexes(indexes_of(descriptor))

    def _own_name(self) -> str:
        return str(self._descriptor.full_name)

    def _encode(self, schema_id: int, schema: Schema, given: Any) -> bytes:
        if not isinstance(given, self._class):
            raise SerializationError(
                f"the value is of type {type(given).__name__}, and a {self._class.__name__} is needed"
            )
        try:
            body: bytes = given.SerializeToString()
            return header(schema_id) + self._indexes + body
        except Exception as error:
            raise SerializationError(f"the message cannot be serialized: {error}") from error

    def _to_register(self) -> Schema:
        assert self._schema is not None
        references = self._references(self._descriptor.file, {})
        return Schema(self._schema.text, PROTOBUF, references)

    def _references(self, file: Any, known: dict[str, SchemaReference]) -> tuple[SchemaReference, ...]:
        """Registers the files that a file imports, or looks them up."""
        found = []
        for used in file.dependencies:
            if self._skip_known_types and used.name.startswith(KNOWN_FILES):
                continue
            if used.name not in known:
                if len(known) >= FILES_MAX:
                    raise InvalidConfig(f"{file.name} imports more than {FILES_MAX} files")
                schema = Schema(_text_of(used), PROTOBUF, self._references(used, known))
                if self._auto_register:
                    self._registry.register(used.name, schema, normalize=self._normalize)
                version = self._registry.lookup(used.name, schema, normalize=self._normalize).version
                known[used.name] = SchemaReference(used.name, used.name, version)
            found.append(known[used.name])
        return tuple(found)


class ProtobufDeserializer:
    """Makes messages of bytes: of `message_class`, or of a class made of the writer's schema."""

    def __init__(self, registry: SchemaRegistry, message_class: type[Message] | None = None) -> None:
        check_registry(registry, self)
        if message_class is not None:
            descriptor_of(message_class, self)
        self._classes = MessageClasses(registry)
        self._class = message_class

    def deserialize(self, topic: str, data: bytes | None) -> Message | None:
        """The message of bytes with a schema id; None stays None."""
        if data is None:
            return None
        schema_id = schema_id_of(data)
        indexes, position = read_message_indexes(data, HEADER.size)
        return parse(self._class or self._classes.get(schema_id, indexes), data[position:], schema_id)


def descriptor_of(message_class: object, user: object) -> Any:
    descriptor = getattr(message_class, "DESCRIPTOR", None)
    if descriptor is None or not isinstance(message_class, type):
        raise InvalidConfig(
            f"{type(user).__name__} needs a class that protoc has made, and not {message_class!r}"
        )
    return descriptor


class MessageClasses:
    """Classes made of registered schemas."""

    def __init__(self, registry: SchemaRegistry) -> None:
        try:
            import_module("google.protobuf.message")
        except ImportError:
            raise missing_extra("Protobuf", "protobuf", "protobuf") from None
        self._registry = registry
        self.get: Callable[[int, tuple[int, ...]], type[Message]] = lru_cache(CLASSES_MAX)(self._make)

    def _make(self, schema_id: int, indexes: tuple[int, ...]) -> type[Message]:
        from google.protobuf import descriptor_pool, message_factory

        schema = self._registry.schema(schema_id, format=SERIALIZED)
        if schema.type != PROTOBUF:
            raise SerializationError(f"schema {schema_id} is of type {schema.type}, not PROTOBUF")
        pool = descriptor_pool.DescriptorPool()
        added: set[str] = set()
        for name, used in self._registry.referenced(schema, format=SERIALIZED).items():
            self._add(pool, _file_of(used, name), added)
        own = _file_of(schema, f"schema-{schema_id}.proto")
        self._add(pool, own, added)
        try:
            messages: Any = list(pool.FindFileByName(own.name).message_types_by_name.values())
            descriptor = None
            for index in indexes:
                descriptor = messages[index]
                messages = descriptor.nested_types
        except (KeyError, IndexError):
            raise SerializationError(f"schema {schema_id} has no message at {list(indexes)}") from None
        return cast("type[Message]", message_factory.GetMessageClass(descriptor))

    def _add(self, pool: Any, file: Any, added: set[str]) -> None:
        """A file, and before it those of Protobuf itself that it imports."""
        from google.protobuf import descriptor_pb2, descriptor_pool

        for name in file.dependency:
            if name in added or not name.startswith(KNOWN_FILES):
                continue
            known = descriptor_pb2.FileDescriptorProto()
            try:
                _known_file(descriptor_pool.Default(), name).CopyToProto(known)
            except KeyError:
                raise SerializationError(f"a schema imports {name}, which is not installed here") from None
            self._add(pool, known, added)
        if file.name not in added:
            added.add(file.name)
            try:
                pool.Add(file)
            except TypeError as error:
                raise SerializationError(f"{file.name} is no valid Protobuf schema: {error}") from None


def parse(message_class: type[Message], data: bytes, schema_id: int) -> Message:
    from google.protobuf.message import DecodeError

    message = message_class()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise SerializationError(
            f"the bytes are no message of the Protobuf schema {schema_id}: {error}"
        ) from None
    return message


def indexes_of(descriptor: Any) -> tuple[int, ...]:
    """Where a message is in its file: the index of the outermost message, and inwards."""
    indexes: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = descriptor.file.message_types_by_name.values() if outer is None else outer.nested_types
        indexes.insert(0, [each.name for each in siblings].index(descriptor.name))
        descriptor = outer
    return tuple(indexes)


def _text_of(file: Any) -> str:
    return base64.standard_b64encode(file.serialized_pb).decode("ascii")


def _file_of(schema: Schema, name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(schema.text, validate=True))
    # DecodeError is no ValueError, and what is no base64 is one.
    except Exception as error:
        raise SerializationError(
            f"the registry does not give {name} as a serialized descriptor: {error}; it needs version 5.5 or later"
        ) from None
    file.name = name
    return file


def _known_file(pool: Any, name: str) -> Any:
    """A file of Protobuf itself: its module puts it in the pool."""
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    try:
        import_module(module)
    except ImportError:
        raise KeyError(name) from None
    return pool.FindFileByName(name)
