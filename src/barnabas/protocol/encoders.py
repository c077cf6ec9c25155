"""Writes encoders: `encode(m, splices=None) -> bytes` for one version of one message.

Records go into the bytes, or into the list `splices` if the caller gives one.

If a value does not fit, an encoder raises whatever error occurs (`Malformed`, struct.error, TypeError, AttributeError,
…), and `faults.raise_encode_error` then names the field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import TaggedFields
from barnabas.protocol.schema import PRIMITIVE_KINDS, Field, MessageSchema, StructSchema
from barnabas.protocol.source import FORMATS, MAX_STRING_BYTES, Source
from barnabas.protocol.varint import append_varint

Encoder = Callable[..., bytes]

Splices = list[tuple[int, Any]]
"""Records that stay out of the message that is being written, each with the position where it belongs."""

_CLASSIC_NULLS: Final = {"h": struct.pack(">h", -1), "i": struct.pack(">i", -1)}


def write_encoder(schema: MessageSchema, version: int, message_class: type[Any]) -> Encoder:
    return _EncoderWriter(Source(schema, version, message_class)).write()


def append_tagged_fields(
    out: bytearray, known: list[tuple[int, bytearray]], unknown: TaggedFields, known_tags: frozenset[int]
) -> None:
    """Appends count, tags, sizes and bytes of tagged fields by ascending tag."""
    last_tag = -1
    for tag, _ in unknown:
        if tag <= last_tag or tag in known_tags:
            raise Malformed
        last_tag = tag
    fields: list[tuple[int, bytes | bytearray]] = sorted([*known, *unknown])
    append_varint(out, len(fields))
    for tag, data in fields:
        append_varint(out, tag)
        append_varint(out, len(data))
        out += data


class _EncoderWriter:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._version = source.version
        self._flexible = source.schema.is_flexible(source.version)
        # Fixed-size values that are not yet emitted: an expression and a format each.
        self._run: list[tuple[str, str]] = []
        self._out = "out"
        source.bindings.update(
            Malformed=Malformed,
            append_varint=append_varint,
            append_tagged_fields=append_tagged_fields,
            pack=struct.pack,
        )

    def write(self) -> Encoder:
        message = self._source.name("m")
        self._source.line(f"{message} = m")
        self._source.line("out = bytearray()")
        self._struct(self._source.schema, message)
        self._flush()
        self._source.line("return bytes(out)")
        return self._source.compile("encode(m, splices=None)")

    def _struct(self, schema: StructSchema, variable: str) -> None:
        """Writes a struct. The last run may still be open after it."""
        for field in schema.fields:
            value = f"{variable}.{field.python_name}"
            if not field.is_present(self._version):
                if not field.ignorable:
                    with self._source.block(f"if {self._is_not_default(field, value)}:"):
                        self._source.line("raise Malformed")
            elif not field.is_tagged(self._version):
                self._field(field, value)
        if self._flexible:
            self._tagged_fields(schema, variable)
        else:
            with self._source.block(f"if {variable}.unknown_tagged_fields:"):
                self._source.line("raise Malformed")

    def _is_not_default(self, field: Field, value: str) -> str:
        source = self._source
        if field.default_is_null:
            return f"{value} is not None"
        if field.is_array:
            return f"{value} is None or len({value})"
        if field.struct:
            default = source.bind(f"default_{field.struct.name}", source.new(field.struct))
            return f"{value} != {default}"
        return f"{value} != {field.default!r}"

    def _field(self, field: Field, value: str) -> None:
        if field.kind in PRIMITIVE_KINDS and not field.is_array:
            self._primitive(field.kind, value)
        elif field.is_array:
            self._nullable(field, value, self._array, "i")
        elif field.struct:
            self._nullable_struct(field, value, b"\xff", b"\x01")
        else:
            self._nullable(field, value, self._sized, "h" if field.kind == "string" else "i")

    def _primitive(self, kind: str, value: str) -> None:
        if kind == "uuid":
            # A Struct would truncate or pad a value that does not have 16 bytes.
            variable = self._source.name("v")
            self._source.line(f"{variable} = {value}")
            with self._source.block(f"if len({variable}) != 16:"):
                self._source.line("raise Malformed")
            value = variable
        self._run.append((value, FORMATS[kind]))

    def _nullable(
        self, field: Field, value: str, write: Callable[[Field, str, str], None], classic_format: str
    ) -> None:
        source = self._source
        if not field.is_nullable(self._version):
            write(field, value, classic_format)
            return
        self._flush()
        variable = source.name("v")
        source.line(f"{variable} = {value}")
        with source.block(f"if {variable} is None:"):
            null = b"\0" if field.is_flexible(self._version) else _CLASSIC_NULLS[classic_format]
            source.line(f"{self._out} += {null!r}")
        with source.block("else:"):
            write(field, variable, classic_format)
            self._flush()

    def _nullable_struct(self, field: Field, value: str, null: bytes, there: bytes) -> None:
        source = self._source
        assert field.struct is not None
        variable = source.name("m")
        source.line(f"{variable} = {value}")
        if not field.is_nullable(self._version):
            self._struct(field.struct, variable)
            return
        self._flush()
        with source.block(f"if {variable} is None:"):
            source.line(f"{self._out} += {null!r}")
        with source.block("else:"):
            source.line(f"{self._out} += {there!r}")
            self._struct(field.struct, variable)
            self._flush()

    def _sized(self, field: Field, value: str, classic_format: str) -> None:
        """A string, bytes or records: its length and its bytes."""
        source = self._source
        data = source.name("b")
        source.line(f"{data} = {value}.encode()" if field.kind == "string" else f"{data} = {value}")
        if field.is_flexible(self._version) and field.kind == "string":
            with source.block(f"if len({data}) > {MAX_STRING_BYTES}:"):
                source.line("raise Malformed")
        self._length(field, f"len({data})", classic_format)
        self._flush()
        if field.kind == "records" and self._out == "out":
            with source.block("if splices is not None:"):
                source.line(f"splices.append((len(out), {data}))")
            with source.block("else:"):
                source.line(f"out += {data}")
        else:
            source.line(f"{self._out} += {data}")

    def _array(self, field: Field, value: str, classic_format: str) -> None:
        source = self._source
        elements = source.name("a")
        source.line(f"{elements} = {value}")
        self._length(field, f"len({elements})", classic_format)
        self._flush()
        if field.kind in PRIMITIVE_KINDS and field.kind != "uuid":
            element_format = FORMATS[field.kind]
            source.line(f'{self._out} += pack(f">{{len({elements})}}{element_format}", *{elements})')
            return
        element = source.name("e")
        with source.block(f"for {element} in {elements}:"):
            if field.struct:
                self._struct(field.struct, element)
            elif field.kind == "uuid":
                self._primitive(field.kind, element)
            else:
                self._sized(field, element, "h" if field.kind == "string" else "i")
            self._flush()

    def _length(self, field: Field, length: str, classic_format: str) -> None:
        source = self._source
        if not field.is_flexible(self._version):
            self._run.append((length, classic_format))
            return
        self._flush()
        variable = source.name("n")
        source.line(f"{variable} = {length} + 1")
        with source.block(f"if {variable} < 128:"):
            source.line(f"{self._out}.append({variable})")
        with source.block("else:"):
            source.line(f"append_varint({self._out}, {variable})")

    def _tagged_fields(self, schema: StructSchema, variable: str) -> None:
        """Nearly always there are none: one byte. Otherwise each is written apart, since its size stands before it."""
        source = self._source
        self._flush()
        fields = schema.tagged_fields(self._version)
        conditions = [self._is_not_default(field, f"{variable}.{field.python_name}") for field in fields]
        anything = " or ".join([f"{variable}.unknown_tagged_fields", *conditions])
        with source.block(f"if {anything}:"):
            known = source.name("k")
            source.line(f"{known} = []")
            for field, condition in zip(fields, conditions, strict=True):
                with source.block(f"if {condition}:"):
                    part = source.name("o")
                    source.line(f"{part} = bytearray()")
                    self._tagged_field(field, f"{variable}.{field.python_name}", part)
                    source.line(f"{known}.append(({field.tag}, {part}))")
            tags = frozenset(field.tag for field in schema.fields if field.tag is not None)
            known_tags = source.bind(f"tags_{schema.name}", tags)
            unknown = f"{variable}.unknown_tagged_fields"
            source.line(f"append_tagged_fields({self._out}, {known}, {unknown}, {known_tags})")
        with source.block("else:"):
            source.line(f"{self._out}.append(0)")

    def _tagged_field(self, field: Field, value: str, part: str) -> None:
        outer, self._out = self._out, part
        if field.struct and not field.is_array:
            self._nullable_struct(field, value, b"\0", b"\x01")
        else:
            self._field(field, value)
        self._flush()
        self._out = outer

    def _flush(self) -> None:
        """Emits the run that has gathered as one packing."""
        if not self._run:
            return
        formats = "".join(value_format for _, value_format in self._run)
        layout = struct.Struct(">" + formats)
        pack = self._source.bind(f"pack_{formats}".replace("?", "z"), layout.pack)
        values = ", ".join(value for value, _ in self._run)
        self._source.line(f"{self._out} += {pack}({values})")
        self._run.clear()
