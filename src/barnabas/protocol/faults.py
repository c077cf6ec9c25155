"""Explains what is wrong with bytes or values that a codec has rejected, and where.

Codecs only detect that something does not fit. The walks here visit the same bytes or the same message with the schema
and stop at the first fault. They build nothing, so bad bytes cost no more memory than they have.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NoReturn

from barnabas.protocol.errors import DecodeError, EncodeError, FieldNotInVersion, InvalidValue, Malformed
from barnabas.protocol.message import Buffer
from barnabas.protocol.schema import PRIMITIVE_KINDS, Field, MessageSchema, StructSchema
from barnabas.protocol.source import FORMATS, MAX_STRING_BYTES
from barnabas.protocol.varint import MAX_VARINT, read_varint

_SIZES: Final = {kind: struct.calcsize(">" + value_format) for kind, value_format in FORMATS.items()}


def raise_decode_error(schema: MessageSchema, version: int, data: Buffer, position: int) -> NoReturn:
    walk = _DecodeWalk(schema, version, data, position)
    walk.message()
    raise AssertionError(f"a decoder refused {schema.name} v{version}, in which there is no fault")


def raise_leftover_error(schema: MessageSchema, version: int, data: Buffer, position: int) -> NoReturn:
    raise DecodeError(schema.name, version, "", position, f"{len(data) - position} bytes left over")


def raise_encode_error(schema: MessageSchema, version: int, message: object) -> NoReturn:
    walk = _EncodeWalk(schema, version)
    walk.struct(schema, message)
    raise AssertionError(f"an encoder refused {schema.name} v{version}, in which there is no fault")


class Path:
    """The way to a field: names, and indexes in arrays."""

    def __init__(self) -> None:
        self._steps: list[str] = []

    def push(self, name: str) -> None:
        self._steps.append(f".{name}" if self._steps else name)

    def push_index(self, index: int) -> None:
        self._steps.append(f"[{index}]")

    def pop(self) -> None:
        self._steps.pop()

    def __str__(self) -> str:
        return "".join(self._steps)


class _DecodeWalk:
    def __init__(self, schema: MessageSchema, version: int, data: Buffer, position: int) -> None:
        self._schema = schema
        self._version = version
        self._data = data
        self._position = position
        self._path = Path()

    def message(self) -> None:
        self._struct(self._schema)

    def _fail(self, position: int, reason: str) -> NoReturn:
        raise DecodeError(self._schema.name, self._version, str(self._path), position, reason)

    def _left(self) -> int:
        return len(self._data) - self._position

    def _struct(self, schema: StructSchema) -> None:
        for field in schema.fields:
            if field.is_present(self._version) and not field.is_tagged(self._version):
                self._path.push(field.json_name)
                self._field(field)
                self._path.pop()
        if self._schema.is_flexible(self._version):
            self._tagged_fields(schema)

    def _field(self, field: Field, *, is_tagged: bool = False) -> None:
        if field.is_array:
            self._array(field)
        elif field.struct:
            if field.is_nullable(self._version) and not self._struct_is_there(is_tagged):
                return
            self._struct(field.struct)
        elif field.kind in PRIMITIVE_KINDS:
            self._skip_fixed(_SIZES[field.kind], field.kind)
        else:
            self._sized(field, is_nullable=field.is_nullable(self._version))

    def _struct_is_there(self, is_tagged: bool) -> bool:
        if is_tagged:
            return self._varint("a presence mark") > 0
        self._skip_fixed(1, "a presence mark")
        return self._data[self._position - 1] < 128

    def _skip_fixed(self, size_bytes: int, what: str) -> None:
        if size_bytes > self._left():
            self._fail(self._position, f"{what} needs {size_bytes} bytes, {self._left()} are left")
        self._position += size_bytes

    def _varint(self, what: str) -> int:
        start = self._position
        try:
            value, self._position = read_varint(self._data, start)
        except IndexError:
            self._fail(start, f"the bytes end within {what}")
        except Malformed:
            self._fail(start, f"{what} is a varint above {MAX_VARINT} or of more than 5 bytes")
        return value

    def _length(self, field: Field, what: str, classic_size_bytes: int) -> int:
        if field.is_flexible(self._version):
            return self._varint(what) - 1
        self._skip_fixed(classic_size_bytes, what)
        prefix = self._data[self._position - classic_size_bytes : self._position]
        return int.from_bytes(prefix, "big", signed=True)

    def _sized(self, field: Field, *, is_nullable: bool) -> None:
        start = self._position
        length = self._length(field, "the length", 2 if field.kind == "string" else 4)
        if length < 0:
            if not is_nullable:
                self._fail(start, "null, which this field cannot be")
            return
        if field.kind == "string" and length > MAX_STRING_BYTES:
            self._fail(start, f"a string of {length} bytes; {MAX_STRING_BYTES} are allowed")
        if length > self._left():
            self._fail(start, f"the length is {length}, {self._left()} bytes are left")
        self._position += length

    def _array(self, field: Field) -> None:
        start = self._position
        count = self._length(field, "the count", 4)
        if count < 0:
            if not field.is_nullable(self._version):
                self._fail(start, "null, which this field cannot be")
            return
        size_bytes = _SIZES.get(field.kind, 1)
        if count * size_bytes > self._left():
            self._fail(start, f"the count is {count}, {self._left()} bytes are left")
        if field.kind in PRIMITIVE_KINDS:
            self._position += count * size_bytes
            return
        for index in range(count):
            self._path.push_index(index)
            if field.struct:
                self._struct(field.struct)
            else:
                self._sized(field, is_nullable=False)
            self._path.pop()

    def _tagged_fields(self, schema: StructSchema) -> None:
        known = {field.tag: field for field in schema.fields if field.tag is not None}
        last_tag = -1
        for _ in range(self._varint("the count of tagged fields")):
            start = self._position
            tag = self._varint("a tag")
            size_bytes = self._varint(f"the size of tag {tag}")
            if tag <= last_tag:
                self._fail(start, f"tag {tag} stands behind tag {last_tag}")
            last_tag = tag
            if size_bytes > self._left():
                self._fail(start, f"tag {tag} has {size_bytes} bytes, {self._left()} are left")
            field = known.get(tag)
            if field is None:
                self._position += size_bytes
                continue
            self._path.push(field.json_name)
            if not field.is_tagged(self._version):
                self._fail(start, f"tag {tag} is not known to this version")
            end = self._position + size_bytes
            self._field(field, is_tagged=True)
            if self._position != end:
                self._fail(start, f"tag {tag} has a size of {size_bytes}, which its value does not fill")
            self._path.pop()


class _EncodeWalk:
    def __init__(self, schema: MessageSchema, version: int) -> None:
        self._schema = schema
        self._version = version
        self._path = Path()

    def _fail(self, error: type[EncodeError], reason: str) -> NoReturn:
        raise error(self._schema.name, self._version, str(self._path), reason)

    def struct(self, schema: StructSchema, message: object) -> None:
        if type(message).__name__ != schema.name:
            self._fail(InvalidValue, f"{schema.name} wanted, not {type(message).__name__}")
        for field in schema.fields:
            self._path.push(field.json_name)
            value = getattr(message, field.python_name)
            if field.is_present(self._version):
                self._value(field, value)
            elif not field.ignorable and not is_default(field, value):
                self._fail(FieldNotInVersion, "not in this version, yet not at its default")
            self._path.pop()
        self._unknown_tagged_fields(schema, getattr(message, "unknown_tagged_fields"))  # noqa: B009

    def _value(self, field: Field, value: Any) -> None:
        if value is None:
            if not field.is_nullable(self._version) or (field.kind in PRIMITIVE_KINDS and not field.is_array):
                self._fail(InvalidValue, "null, which this field cannot be")
            return
        if not field.is_array:
            self._element(field, value)
            return
        if not isinstance(value, list | tuple):
            self._fail(InvalidValue, f"a list wanted, not {type(value).__name__}")
        for index, element in enumerate(value):
            self._path.push_index(index)
            self._element(field, element)
            self._path.pop()

    def _element(self, field: Field, value: Any) -> None:
        if field.struct:
            self.struct(field.struct, value)
        elif field.kind == "string":
            if not isinstance(value, str):
                self._fail(InvalidValue, f"a str wanted, not {type(value).__name__}")
            try:
                data = value.encode()
            except UnicodeEncodeError as error:
                self._fail(InvalidValue, f"cannot be written as UTF-8: {error.reason}")
            if len(data) > MAX_STRING_BYTES:
                self._fail(InvalidValue, f"a string of {len(data)} bytes; {MAX_STRING_BYTES} are allowed")
        elif field.kind in ("bytes", "records"):
            if not isinstance(value, bytes | bytearray | memoryview):
                self._fail(InvalidValue, f"bytes wanted, not {type(value).__name__}")
            if len(value) >= MAX_VARINT:
                self._fail(InvalidValue, f"{len(value)} bytes are too many")
        elif field.kind == "uuid":
            if not isinstance(value, bytes) or len(value) != 16:
                self._fail(InvalidValue, f"16 bytes wanted, not {value!r}")
        else:
            try:
                struct.pack(">" + FORMATS[field.kind], value)
            except (struct.error, TypeError):
                self._fail(InvalidValue, f"{value!r} is not {field.kind}")

    def _unknown_tagged_fields(self, schema: StructSchema, fields: Any) -> None:
        if not fields:
            return
        self._path.push("unknownTaggedFields")
        if not self._schema.is_flexible(self._version):
            self._fail(FieldNotInVersion, "this version has no tagged fields")
        known = {field.tag for field in schema.fields}
        last_tag = -1
        for tag, data in fields:
            if not isinstance(tag, int) or not last_tag < tag <= MAX_VARINT:
                self._fail(InvalidValue, f"tag {tag!r} stands behind tag {last_tag}")
            if tag in known:
                self._fail(InvalidValue, f"tag {tag} belongs to a field of the schema")
            if not isinstance(data, bytes | bytearray | memoryview):
                self._fail(InvalidValue, f"tag {tag}: bytes wanted, not {type(data).__name__}")
            last_tag = tag
        self._path.pop()


def is_default(field: Field, value: Any) -> bool:
    if field.default_is_null:
        return value is None
    if field.is_array:
        return value is not None and not value
    if field.struct:
        return value is not None and bool(value == type(value)())
    return bool(value == field.default)
