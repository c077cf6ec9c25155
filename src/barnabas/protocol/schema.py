"""The schema facts of every message, as typed values.

One file describes a message, `schemas/<Name>.json`, in Kafka's own notation: one line per field, without prose, with
the versions of Kafka 3.9 and 4.3 merged. `load_schema` reads a file at its first use, so unused messages cost nothing.
Everything that depends on a message's layout (types, codecs, the JSON form) is derived from these facts.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from barnabas.protocol.message import ZERO_UUID
from barnabas.value import Value

_SCHEMAS_PATH: Final = os.path.join(os.path.dirname(__file__), "schemas")

_LAST_OPEN_VERSION: Final = 32767

PRIMITIVE_KINDS: Final = frozenset(
    ("bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid")
)
SIZED_KINDS: Final = frozenset(("string", "bytes", "records"))

# Kafka's own spelling of a few names does not fall apart into words.
_SPELLINGS: Final = {"Enable2Pc": "enable_2pc"}
_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

DefaultValue: TypeAlias = bool | int | float | str | bytes | None


class VersionRange(Value):
    """Versions from `first` to `last`, both inclusive; empty when `last` is the smaller."""

    first: int
    last: int

    @staticmethod
    def parse(text: str) -> VersionRange:
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return VersionRange(int(text[:-1]), _LAST_OPEN_VERSION)
        first, _, last = text.partition("-")
        return VersionRange(int(first), int(last or first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        assert self.last < _LAST_OPEN_VERSION, "an open range does not end"
        return iter(range(self.first, self.last + 1))

    def __bool__(self) -> bool:
        return self.first <= self.last

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.last == _LAST_OPEN_VERSION:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NO_VERSIONS: Final = VersionRange(0, -1)


class Field(Value, kw_only=True):
    """A field of a message or struct.

    `kind` is the type of the value, or of an element if `is_array`: a primitive, "string", "bytes", "records", or
    "struct" with the struct in `struct`. `default` is the Python value of a scalar's default and None for null;
    for an array or a struct it is None if the default is null, else unused: see `default_is_null`.
    """

    name: str
    python_name: str
    json_name: str
    kind: str
    is_array: bool
    struct: StructSchema | None
    versions: VersionRange
    nullable_versions: VersionRange
    tagged_versions: VersionRange
    tag: int | None
    flexible_versions: VersionRange
    ignorable: bool
    default: DefaultValue
    default_is_null: bool

    def is_present(self, version: int) -> bool:
        return version in self.versions

    def is_tagged(self, version: int) -> bool:
        return version in self.versions and version in self.tagged_versions

    def is_nullable(self, version: int) -> bool:
        return version in self.nullable_versions

    def is_flexible(self, version: int) -> bool:
        """Whether lengths of this field are unsigned varints, one above the length."""
        return version in self.flexible_versions


class StructSchema(Value, kw_only=True):
    name: str
    versions: VersionRange
    fields: tuple[Field, ...]

    def tagged_fields(self, version: int) -> list[Field]:
        """The tagged fields of a version, in the order of their tags, which is their order on the wire."""
        return sorted(
            (field for field in self.fields if field.is_tagged(version)), key=lambda field: field.tag or 0
        )


class MessageSchema(StructSchema, kw_only=True):
    """A message is a struct with a name; `versions` are the existing versions.

    `type` is one of request, response, header, data, metadata, coordinator-key, coordinator-value. `structs` are all
    structs below it, inner ones first.
    """

    type: str
    api_key: int | None
    flexible_versions: VersionRange
    structs: tuple[StructSchema, ...]

    def is_flexible(self, version: int) -> bool:
        return version in self.flexible_versions


def snake_case(name: str) -> str:
    return _SPELLINGS.get(name) or _WORD_START.sub("_", name.replace("KRaft", "Kraft")).lower()


def message_names() -> list[str]:
    """The names of all messages there are, sorted."""
    return sorted(name.removesuffix(".json") for name in os.listdir(_SCHEMAS_PATH) if name.endswith(".json"))


@functools.cache
def load_schema(name: str) -> MessageSchema:
    """The schema of a message by Kafka's name for it, such as "FetchRequest"; KeyError if there is none."""
    if not name.isalnum():
        raise KeyError(name)
    try:
        with open(os.path.join(_SCHEMAS_PATH, name + ".json"), encoding="utf-8") as file:
            facts = json.load(file)
    except FileNotFoundError:
        raise KeyError(name) from None
    return _Loader(facts).message()


class _Loader:
    """Builds the structs of one message; structs that several fields share are built once."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._flexible_versions = VersionRange.parse(facts["flexibleVersions"])
        self._common = {struct["name"]: struct for struct in facts.get("commonStructs", ())}
        self._structs: dict[str, StructSchema] = {}

    def message(self) -> MessageSchema:
        fields = self._fields(self._facts["fields"])
        return MessageSchema(
            name=self._facts["name"],
            versions=VersionRange.parse(self._facts["validVersions"]),
            fields=fields,
            type=self._facts["type"],
            api_key=self._facts.get("apiKey"),
            flexible_versions=self._flexible_versions,
            structs=tuple(self._structs.values()),
        )

    def _fields(self, facts: list[dict[str, Any]]) -> tuple[Field, ...]:
        return tuple(self._field(field) for field in facts)

    def _field(self, facts: dict[str, Any]) -> Field:
        name: str = facts["name"]
        type_name: str = facts["type"]
        is_array = type_name.startswith("[]")
        element = type_name.removeprefix("[]")
        is_struct = element not in PRIMITIVE_KINDS and element not in SIZED_KINDS
        struct = self._struct(element, facts) if is_struct else None
        text: str = facts.get("default", "")
        default_is_null = text == "null" or (element == "records" and not is_array)
        flexible = facts.get("flexibleVersions")
        return Field(
            name=name,
            python_name=snake_case(name),
            json_name=name[0].lower() + name[1:],
            kind="struct" if is_struct else element,
            is_array=is_array,
            struct=struct,
            versions=VersionRange.parse(facts["versions"]),
            nullable_versions=VersionRange.parse(facts.get("nullableVersions", "none")),
            tagged_versions=VersionRange.parse(facts.get("taggedVersions", "none")),
            tag=facts.get("tag"),
            flexible_versions=self._flexible_versions if flexible is None else VersionRange.parse(flexible),
            ignorable=facts.get("ignorable", False),
            default=None if default_is_null or is_array or is_struct else _default(element, text),
            default_is_null=default_is_null,
        )

    def _struct(self, name: str, facts: dict[str, Any]) -> StructSchema:
        if name not in self._structs:
            facts = self._common.get(name, facts)
            struct = StructSchema(
                name=name,
                versions=VersionRange.parse(facts["versions"]),
                fields=self._fields(facts["fields"]),
            )
            self._structs[name] = struct
        return self._structs[name]


def _default(kind: str, text: str) -> DefaultValue:
    if kind == "string":
        return text
    if kind == "bool":
        return text == "true"
    if kind == "float64":
        return float(text or 0)
    if kind in ("uuid", "bytes"):
        assert not text, "no schema has such a default"
        return ZERO_UUID if kind == "uuid" else b""
    return int(text or "0", 0)
