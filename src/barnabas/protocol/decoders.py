"""Writes decoders: `decode(data, p, left) -> (message, position behind it)` for one version of one message.

A decoder checks everything that a peer can get wrong, but does not keep track of where it is: it raises
`Malformed`, IndexError or struct.error, and `faults.raise_decode_error` then walks the same bytes to say what it was.

It is as lenient as Kafka: any negative length is null, any byte but 0 is true, bytes that are not UTF-8 become
U+FFFD. It is stricter on tagged fields: their tags must rise, and their sizes must be true. And it makes no more than
`left` elements, those of all arrays counted: beyond them it raises `TooManyElements`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from barnabas.protocol.errors import Malformed, TooManyElements
from barnabas.protocol.message import Buffer
from barnabas.protocol.schema import PRIMITIVE_KINDS, Field, MessageSchema, StructSchema
from barnabas.protocol.source import FORMATS, MAX_STRING_BYTES, Source
from barnabas.protocol.varint import read_varint, read_varint_rest

Decoder = Callable[[Buffer, int, int], tuple[Any, int]]


def write_decoder(schema: MessageSchema, version: int, message_class: type[Any]) -> Decoder:
    return _DecoderWriter(Source(schema, version, message_class)).write()


class _DecoderWriter:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._version = source.version
        self._flexible = source.schema.is_flexible(source.version)
        # Fixed-size values read but not yet emitted: where each goes, and its format.
        self._run: list[tuple[str, str]] = []
        source.bindings.update(
            Malformed=Malformed,
            TooManyElements=TooManyElements,
            read_varint=read_varint,
            read_varint_rest=read_varint_rest,
            unpack_from=struct.unpack_from,
        )

    def write(self) -> Decoder:
        source = self._source
        source.line("end = len(data)")
        message = self._struct(source.schema)
        self._flush()
        source.line(f"return {message}, p")
        return source.compile("decode(data, p, left)")

    def _struct(self, schema: StructSchema) -> str:
        """Reads a struct into a new variable. The last run may still be open after it."""
        source = self._source
        variable = source.name("m")
        type_name = source.type_of(schema)
        source.line(f"{variable} = {type_name}.__new__({type_name})")
        for field in schema.fields:
            target = f"{variable}.{field.python_name}"
            if field.is_present(self._version) and not field.is_tagged(self._version):
                self._field(field, target)
            else:
                source.line(f"{target} = {source.default(field)}")
        if self._flexible:
            self._tagged_fields(schema, variable)
        else:
            source.line(f"{variable}.unknown_tagged_fields = ()")
        return variable

    def _field(self, field: Field, target: str) -> None:
        if field.is_array:
            self._array(field, target)
        elif field.struct:
            self._nullable_struct(field, target, "b")
        elif field.kind in PRIMITIVE_KINDS:
            self._run.append((target, FORMATS[field.kind]))
        else:
            self._sized(field, target, is_nullable=field.is_nullable(self._version))

    def _nullable_struct(self, field: Field, target: str, prefix: str) -> None:
        """A struct; a nullable one has a prefix that says whether it is present."""
        source = self._source
        assert field.struct is not None
        if not field.is_nullable(self._version):
            source.line(f"{target} = {self._struct(field.struct)}")
            return
        is_there = source.name("n")
        if prefix:
            self._run.append((is_there, prefix))
            self._flush()
            condition = f"if {is_there} < 0:"
        else:
            self._varint(is_there)
            condition = f"if {is_there} == 0:"
        with source.block(condition):
            source.line(f"{target} = None")
        with source.block("else:"):
            variable = self._struct(field.struct)
            self._flush()
            source.line(f"{target} = {variable}")

    def _sized(self, field: Field, target: str, *, is_nullable: bool) -> None:
        """A string, bytes or records: a length and as many bytes."""
        source = self._source
        length = self._length(field, "h" if field.kind == "string" else "i")
        with source.block(f"if {length} < 0:"):
            source.line(f"{target} = None" if is_nullable else "raise Malformed")
        with source.block("else:"):
            stop = source.name("q")
            source.line(f"{stop} = p + {length}")
            too_long = f" or {length} > {MAX_STRING_BYTES}" if field.kind == "string" else ""
            with source.block(f"if {stop} > end{too_long}:"):
                source.line("raise Malformed")
            if field.kind == "string":
                source.line(f'{target} = str(data[p:{stop}], "utf-8", "replace")')
            elif field.kind == "bytes":
                source.line(f"{target} = bytes(data[p:{stop}])")
            else:
                source.line(f"{target} = memoryview(data)[p:{stop}]")
            source.line(f"p = {stop}")

    def _array(self, field: Field, target: str) -> None:
        source = self._source
        count = self._length(field, "i")
        is_nullable = field.is_nullable(self._version)
        with source.block(f"if {count} < 0:"):
            source.line(f"{target} = None" if is_nullable else "raise Malformed")
        # An element takes a byte at least, so this bounds what a count can make us allocate.
        with source.block(f"elif {count} > end - p:"):
            source.line("raise Malformed")
        with source.block("else:"):
            self._take(count)
            if field.kind == "uuid":
                stop = source.name("q")
                source.line(f"{stop} = p + 16 * {count}")
                with source.block(f"if {stop} > end:"):
                    source.line("raise Malformed")
                source.line(f"{target} = [bytes(data[i : i + 16]) for i in range(p, {stop}, 16)]")
                source.line(f"p = {stop}")
            elif field.kind in PRIMITIVE_KINDS:
                element = FORMATS[field.kind]
                size_bytes = struct.calcsize(">" + element)
                source.line(f'{target} = list(unpack_from(f">{{{count}}}{element}", data, p))')
                source.line(f"p += {size_bytes} * {count}")
            else:
                elements = source.name("a")
                source.line(f"{elements} = []")
                with source.block(f"for _ in range({count}):"):
                    if field.struct:
                        element = self._struct(field.struct)
                    else:
                        element = source.name("e")
                        self._sized(field, element, is_nullable=False)
                    self._flush()
                    source.line(f"{elements}.append({element})")
                source.line(f"{target} = {elements}")

    def _take(self, count: str) -> None:
        source = self._source
        source.line(f"left -= {count}")
        with source.block("if left < 0:"):
            source.line("raise TooManyElements")

    def _length(self, field: Field, classic_format: str) -> str:
        """Reads a length or count into a new variable, negative for null."""
        length = self._source.name("n")
        if field.is_flexible(self._version):
            self._varint(length)
            self._source.line(f"{length} -= 1")
        else:
            self._run.append((length, classic_format))
            self._flush()
        return length

    def _varint(self, variable: str) -> None:
        source = self._source
        self._flush()
        source.line(f"{variable} = data[p]")
        source.line("p += 1")
        with source.block(f"if {variable} > 127:"):
            source.line(f"{variable}, p = read_varint_rest(data, p, {variable})")

    def _tagged_fields(self, schema: StructSchema, variable: str) -> None:
        source = self._source
        known = [field for field in schema.fields if field.tag is not None]
        count, last, stop, unknown = (source.name(stem) for stem in ("n", "t", "q", "u"))
        self._varint(count)
        source.line(f"{variable}.unknown_tagged_fields = ()")
        with source.block(f"if {count}:"):
            self._take(count)
            source.line(f"{last} = -1")
            source.line(f"{unknown} = []")
            with source.block(f"for _ in range({count}):"):
                source.line("tag, p = read_varint(data, p)")
                source.line("size, p = read_varint(data, p)")
                source.line(f"{stop} = p + size")
                with source.block(f"if tag <= {last} or {stop} > end:"):
                    source.line("raise Malformed")
                source.line(f"{last} = tag")
                for index, field in enumerate(known):
                    with source.block(f"{'elif' if index else 'if'} tag == {field.tag}:"):
                        self._tagged_field(field, f"{variable}.{field.python_name}")
                with source.block("else:") if known else nullcontext():
                    source.line(f"{unknown}.append((tag, bytes(data[p:{stop}])))")
                    source.line(f"p = {stop}")
                if known:
                    with source.block(f"if p != {stop}:"):
                        source.line("raise Malformed")
            source.line(f"{variable}.unknown_tagged_fields = tuple({unknown})")

    def _tagged_field(self, field: Field, target: str) -> None:
        if not field.is_tagged(self._version):
            self._source.line("raise Malformed")
        elif field.struct and not field.is_array:
            self._nullable_struct(field, target, "")
        else:
            self._field(field, target)
        self._flush()

    def _flush(self) -> None:
        """Emits the run that has gathered as one unpacking."""
        if not self._run:
            return
        source = self._source
        formats = "".join(value_format for _, value_format in self._run)
        layout = struct.Struct(">" + formats)
        unpack = source.bind(f"unpack_{formats}".replace("?", "z"), layout.unpack_from)
        targets = ", ".join(target for target, _ in self._run)
        source.line(f"{targets}{',' if len(self._run) == 1 else ''} = {unpack}(data, p)")
        source.line(f"p += {layout.size}")
        self._run.clear()
