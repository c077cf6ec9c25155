"""Kafka's JSON form of messages, in both directions, as its own tools print and read it.

Field names begin with a small letter. Bytes and records are base64, a uuid is unpadded base64url, null is null. The
form omits tagged fields at their default, and fields that the version does not have. Unknown tagged fields have no JSON
form; they are in `unknown_tagged_fields`.
"""

from __future__ import annotations

import base64
import binascii
import math
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from barnabas.protocol.errors import EncodeError, FieldNotInVersion, InvalidValue, UnsupportedMessageVersion
from barnabas.protocol.faults import Path, is_default
from barnabas.protocol.message import Message
from barnabas.protocol.schema import Field, MessageSchema, StructSchema, load_schema

M = TypeVar("M", bound=Message)

_INTEGER_RANGES: Final = {
    "int8": (-(2**7), 2**7),
    "int16": (-(2**15), 2**15),
    "uint16": (0, 2**16),
    "int32": (-(2**31), 2**31),
    "uint32": (0, 2**32),
    "int64": (-(2**63), 2**63),
}


def to_json(message: Message, version: int) -> dict[str, Any]:
    """The JSON form of a message as dicts, lists and scalars; EncodeError if the version cannot hold it."""
    schema = _schema(type(message).__name__, version)
    return _Writer(schema, version).struct(schema, message)


def from_json(message_class: type[M], value: Any, version: int) -> M:
    """The message of a JSON form; InvalidValue, with the field's path, if it is not one.

    Every field must be there but tagged ones; a field that the version does not have may be there, as in Kafka, and
    then is in the way when the message is encoded.
    """
    schema = _schema(message_class.__name__, version)
    reader = _Reader(schema, version, sys.modules[message_class.__module__])
    message: M = reader.struct(schema, value)
    return message


def uuid_to_text(uuid: bytes) -> str:
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    """Kafka's text of a uuid, padded or not; ValueError if it is none."""
    stripped = text.rstrip("=")
    data = base64.b64decode(stripped + "=" * (-len(stripped) % 4), altchars=b"-_", validate=True)
    if len(data) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(data)}")
    return data


def _schema(name: str, version: int) -> MessageSchema:
    schema = load_schema(name)
    if version not in schema.versions:
        raise UnsupportedMessageVersion(name, version, str(schema.versions))
    return schema


class _Walk:
    def __init__(self, schema: MessageSchema, version: int) -> None:
        self._schema = schema
        self._version = version
        self._path = Path()

    def _fail(self, reason: str, error: type[EncodeError] = InvalidValue) -> NoReturn:
        raise error(self._schema.name, self._version, str(self._path), reason)

    def _nullable(self, field: Field, value: Any, convert: Callable[[Field, Any], Any]) -> Any:
        """Null, a list or a single value, each element converted."""
        if value is None:
            if not field.is_nullable(self._version) and field.is_present(self._version):
                self._fail("null, which this field cannot be")
            return None
        if not field.is_array:
            return convert(field, value)
        if not isinstance(value, list):
            self._fail(f"a list wanted, not {type(value).__name__}")
        elements = []
        for index, element in enumerate(value):
            self._path.push_index(index)
            elements.append(convert(field, element))
            self._path.pop()
        return elements


class _Writer(_Walk):
    def struct(self, schema: StructSchema, message: object) -> dict[str, Any]:
        json: dict[str, Any] = {}
        for field in schema.fields:
            self._path.push(field.json_name)
            value = getattr(message, field.python_name)
            if not field.is_present(self._version):
                if not field.ignorable and not is_default(field, value):
                    self._fail("not in this version, yet not at its default", FieldNotInVersion)
            elif not field.is_tagged(self._version) or not is_default(field, value):
                json[field.json_name] = self._nullable(field, value, self._value)
            self._path.pop()
        return json

    def _value(self, field: Field, value: Any) -> Any:
        if field.struct:
            return self.struct(field.struct, value)
        if field.kind == "uuid":
            return uuid_to_text(value)
        if field.kind in ("bytes", "records"):
            return base64.b64encode(value).decode()
        if field.kind == "float64" and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return value


class _Reader(_Walk):
    def __init__(self, schema: MessageSchema, version: int, module: object) -> None:
        super().__init__(schema, version)
        self._module = module

    def struct(self, schema: StructSchema, json: Any) -> Any:
        if not isinstance(json, dict):
            self._fail(f"an object wanted, not {type(json).__name__}")
        values: dict[str, Any] = {}
        for field in schema.fields:
            self._path.push(field.json_name)
            if field.json_name in json:
                values[field.python_name] = self._nullable(field, json[field.json_name], self._value)
            elif field.is_present(self._version) and not field.is_tagged(self._version):
                self._fail("missing")
            self._path.pop()
        for name in json.keys() - {field.json_name for field in schema.fields}:
            self._fail(f"there is no field {name!r}")
        return getattr(self._module, schema.name)(**values)

    def _value(self, field: Field, value: Any) -> Any:
        if field.struct:
            return self.struct(field.struct, value)
        if field.kind in _INTEGER_RANGES:
            return self._integer(field.kind, value)
        if field.kind == "bool":
            return self._typed(value, bool, "a boolean")
        if field.kind == "float64":
            return self._float(value)
        text: str = self._typed(value, str, "a string")
        if field.kind == "string":
            return text
        try:
            return uuid_from_text(text) if field.kind == "uuid" else base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error) as error:
            self._fail(f"{text!r} is not {field.kind} in base64: {error}")

    def _typed(self, value: Any, wanted: type[Any], what: str) -> Any:
        if not isinstance(value, wanted):
            self._fail(f"{what} wanted, not {type(value).__name__}")
        return value

    def _integer(self, kind: str, value: Any) -> int:
        first, end = _INTEGER_RANGES[kind]
        if not isinstance(value, int) or isinstance(value, bool) or not first <= value < end:
            self._fail(f"{value!r} is not {kind}")
        return value

    def _float(self, value: Any) -> float:
        if value in ("NaN", "Infinity", "-Infinity"):
            return float(value)
        if not isinstance(value, int | float) or isinstance(value, bool):
            self._fail(f"{value!r} is not float64")
        try:
            return float(value)
        except OverflowError:
            self._fail("an integer too large for float64")
