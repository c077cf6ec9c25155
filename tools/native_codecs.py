"""Writes the codecs of the hot messages, `src/barnabas/protocol/native/*.py`, from the schemas: `make messages`.

For each struct there is one function that reads and one that writes it, in all versions: plain typed Python that
mypyc turns into direct reads and writes of numbers. A test of the version costs next to nothing there, so nothing is
specialised further.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Final

from barnabas.protocol.native import HOT_MESSAGES
from barnabas.protocol.schema import (
    Field,
    MessageSchema,
    StructSchema,
    VersionRange,
    load_schema,
    snake_case,
)

NATIVE_PATH: Final = Path(__file__).parent.parent / "src" / "barnabas" / "protocol" / "native"

# kind -> (size on the wire, type of a local, how it is read, how it is written)
_FIXED: Final = {
    "bool": (1, "bool", "data[{at}] != 0", "write_bool({out}, {value})"),
    "int8": (1, "i64", "read_i8(data, {at})", "write_i8({out}, {value})"),
    "int16": (2, "i16", "read_i16_be(data, {at})", "write_i16_be({out}, {value})"),
    "int32": (4, "i32", "read_i32_be(data, {at})", "write_i32_be({out}, {value})"),
    "int64": (8, "i64", "read_i64_be(data, {at})", "write_i64_be({out}, {value})"),
    "uuid": (16, "bytes", "read_uuid(data, {at})", "write_uuid({out}, {value})"),
}
_LISTS: Final = {"int32": "i32_list", "int64": "i64_list"}

_ALWAYS: Final = "True"
_NEVER: Final = "False"

# All that a codec may need; ruff takes out what it does not.
_IMPORTS: Final = """\
from librt.strings import (
    BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i16_be, write_i32_be, write_i64_be,
)
from mypy_extensions import i16, i32, i64
from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import ZERO_UUID, Buffer, Records
from barnabas.protocol.native.wire import (
    Budget, Splices, finished, read_count, read_i8, read_i32_list, read_i64_list, read_nullable_count,
    read_nullable_string, read_records, read_string, read_tag, read_tag_count, read_tags, read_uuid, read_uvarint,
    write_bool, write_count, write_i8, write_i32_list, write_i64_list, write_nullable_string, write_records,
    write_string, write_tags, write_unknown_tags, write_uuid,
)
"""


def module_text(schema: MessageSchema) -> str:
    classes = ", ".join(struct.name for struct in (*schema.structs, schema))
    return _formatted(
        f'''"""Reads and writes {schema.name}, versions {schema.versions}.

Written by `make messages` from schemas/{schema.name}.json.
"""

from __future__ import annotations

{_IMPORTS}
from barnabas.protocol.messages.{snake_case(schema.name)} import {classes}

{_Module(schema).text()}
'''
    )


def _formatted(text: str) -> str:
    """The text as `make format` leaves it, without the imports that it does not use."""
    for command in ("check --fix --select=F401,I", "format"):
        arguments = (
            sys.executable,
            "-m",
            "ruff",
            *command.split(),
            "--quiet",
            f"--stdin-filename={NATIVE_PATH}/x.py",
        )
        text = subprocess.run(
            arguments, input=text, stdout=subprocess.PIPE, check=True, encoding="utf-8"
        ).stdout
    return text


def _intersection(one: VersionRange, other: VersionRange) -> VersionRange:
    return VersionRange(max(one.first, other.first), min(one.last, other.last))


def _condition(versions: VersionRange, scope: VersionRange) -> str:
    """A test for `versions` where the version is known to be in `scope`."""
    within = _intersection(versions, scope)
    if not within:
        return _NEVER
    if within == scope:
        return _ALWAYS
    if within.first == within.last:
        return f"version == {within.first}"
    if within.first == scope.first:
        return f"version <= {within.last}"
    if within.last == scope.last:
        return f"version >= {within.first}"
    return f"{within.first} <= version <= {within.last}"


def _absence(versions: VersionRange, scope: VersionRange) -> str:
    """A test for all of `scope` but `versions`."""
    within = _intersection(versions, scope)
    if not within or within == scope:
        return _ALWAYS if not within else _NEVER
    if within.first == scope.first:
        return f"version > {within.last}"
    if within.last == scope.last:
        return f"version < {within.first}"
    return f"not {within.first} <= version <= {within.last}"


class _Struct:
    """A struct with the versions of the message in which it can be met at all."""

    def __init__(self, schema: StructSchema, scope: VersionRange) -> None:
        self.name = schema.name
        self.function_name = snake_case(schema.name)
        self.scope = scope
        self.has_records = _has_records(schema)
        present = [field for field in schema.fields if _intersection(field.versions, scope)]
        for field in present:
            assert _is_supported(field, scope), (
                f"{schema.name}.{field.name} asks for more than is written here"
            )
        self.plain = [field for field in present if not field.tagged_versions]
        self.tagged = sorted(
            (field for field in present if field.tagged_versions), key=lambda field: field.tag or 0
        )
        assert [field.tag for field in self.tagged] == list(range(len(self.tagged))), "a tag was left out"

    def groups(self) -> Iterator[tuple[str, list[Field]]]:
        """The fields that are not tagged, in runs that are in the same versions."""
        for condition, fields in groupby(self.plain, lambda field: _condition(field.versions, self.scope)):
            yield condition, list(fields)


def _is_supported(field: Field, scope: VersionRange) -> bool:
    """Hot messages do not have all that a schema can ask for."""
    if field.tagged_versions and field.tagged_versions.first > field.versions.first:
        return False
    if _is_optional(field) and not _intersection(field.nullable_versions, scope):
        return False
    if field.struct:
        return field.is_array or not _is_optional(field)
    if field.is_array:
        return field.kind in _LISTS and not _is_optional(field)
    return field.kind in ("string", "records") or (field.kind in _FIXED and not _is_optional(field))


def _has_records(schema: StructSchema) -> bool:
    return any(
        field.kind == "records" or (field.struct is not None and _has_records(field.struct))
        for field in schema.fields
    )


class _Module:
    def __init__(self, schema: MessageSchema) -> None:
        self._schema = schema
        self._lines: list[str] = []
        self._depth = 0
        self._scopes: dict[str, VersionRange] = {}
        self._find_scopes(schema, schema.versions)

    def text(self) -> str:
        for schema in (*self._schema.structs, self._schema):
            if schema.name in self._scopes:
                struct = _Struct(schema, self._scopes[schema.name])
                self._reader(struct)
                if struct.tagged:
                    self._tags_reader(struct)
                self._writer(struct)
                if struct.tagged:
                    self._tags_writer(struct)
        self._entries()
        return "\n".join(self._lines)

    def _find_scopes(self, schema: StructSchema, scope: VersionRange) -> None:
        if schema.name in self._scopes:
            known = self._scopes[schema.name]
            scope = VersionRange(min(known.first, scope.first), max(known.last, scope.last))
        self._scopes[schema.name] = scope
        for field in schema.fields:
            within = _intersection(field.versions, scope)
            if field.struct and within:
                self._find_scopes(field.struct, within)

    def _emit(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def _block(self, opening: str) -> Iterator[None]:
        """Lines inside the block are indented; a block under a condition that always holds is no block."""
        if opening == f"if {_ALWAYS}:":
            yield
            return
        self._emit(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def _flexible(self, versions: VersionRange, scope: VersionRange) -> str:
        condition = _condition(versions, scope)
        return condition if condition in (_ALWAYS, _NEVER) else "flexible"

    def _entries(self) -> None:
        """The two functions that a caller finds under the same names in each module."""
        name = self._schema.name
        has_records = _has_records(self._schema)
        view = ", memoryview(source)" if has_records else ""
        with self._block(
            f"def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[{name}, i64]:"
        ):
            self._emit("data = source if isinstance(source, bytes) else bytes(source)")
            self._emit(f"return read_{snake_case(name)}(data, position, version, Budget(elements_max){view})")
        with self._block(
            f"def encode(version: i64, message: {name}, wanted: Splices | None = None) -> bytes:"
        ):
            self._emit("out = BytesWriter()")
            if has_records:
                self._emit("splices: Splices = []")
            self._emit(self._write_struct(self._schema, "out", "message"))
            self._emit("return finished(out, splices, wanted)" if has_records else "return out.getvalue()")

    def _reader(self, struct: _Struct) -> None:
        view = ", view: memoryview" if struct.has_records else ""
        with self._block(
            f"def read_{struct.function_name}(data: bytes, pos: i64, version: i64, budget: Budget{view})"
            f" -> tuple[{struct.name}, i64]:"
        ):
            self._flexible_local(struct)
            for condition, fields in struct.groups():
                if condition != _ALWAYS:
                    for field in fields:
                        self._emit(f"{field.python_name}: {_local_type(field)} = {_default(field)}")
                with self._block(f"if {condition}:"):
                    self._read_fields(fields, struct.scope)
            arguments = ", ".join(f"{field.python_name}={field.python_name}" for field in struct.plain)
            self._emit(f"item = {struct.name}({arguments})")
            flexible = self._flexible(self._schema.flexible_versions, struct.scope)
            if flexible != _NEVER:
                with self._block(f"if {flexible}:"):
                    with self._block("if data[pos] == 0:"):
                        self._emit("pos += 1")
                    with self._block("else:"):
                        if struct.tagged:
                            self._emit(
                                f"pos = read_{struct.function_name}_tags(item, data, pos, version, budget)"
                            )
                        else:
                            self._emit("item.unknown_tagged_fields, pos = read_tags(data, pos, budget)")
            self._emit("return item, pos")

    def _flexible_local(self, struct: _Struct) -> None:
        condition = _condition(self._schema.flexible_versions, struct.scope)
        if condition not in (_ALWAYS, _NEVER):
            self._emit(f"flexible = {condition}")

    def _read_fields(self, fields: list[Field], scope: VersionRange) -> None:
        offset = 0
        for field in fields:
            if field.kind in _FIXED and not field.is_array:
                size, _, read, _ = _FIXED[field.kind]
                at = f"pos + {offset}" if offset else "pos"
                self._emit(f"{field.python_name} = {read.format(at=at)}")
                offset += size
                continue
            if offset:
                self._emit(f"pos += {offset}")
                offset = 0
            self._read_sized(field, scope)
        if offset:
            self._emit(f"pos += {offset}")

    def _read_sized(self, field: Field, scope: VersionRange) -> None:
        name = field.python_name
        within = _intersection(field.versions, scope)
        nullable = _condition(field.nullable_versions, within)
        flexible = self._flexible(field.flexible_versions, scope)
        prefix = "" if nullable == _NEVER else "nullable_"
        if field.is_array and field.struct:
            self._emit(f"count, pos = read_{prefix}count(data, pos, {flexible}, budget)")
            self._refuse_null("count < 0", field, within)
            if prefix:
                with self._block("if count < 0:"):
                    self._emit(f"{name} = None")
            with self._block("else:" if prefix else f"if {_ALWAYS}:"):
                self._emit(f"{name} = []")
                with self._block("for _ in range(count):"):
                    self._emit(f"{name}_item, pos = {self._read_struct(field.struct)}")
                    self._emit(f"{name}.append({name}_item)")
            return
        if field.struct:
            read = self._read_struct(field.struct)
        elif field.is_array:
            read = f"read_{_LISTS[field.kind]}(data, pos, {flexible}, budget)"
        elif field.kind == "records":
            read = f"read_records(data, pos, {flexible}, view)"
        else:
            read = f"read_{prefix}string(data, pos, {flexible})"
        self._emit(f"{name}, pos = {read}")
        self._refuse_null(f"{name} is None", field, within)

    def _read_struct(self, schema: StructSchema) -> str:
        view = ", view" if _has_records(schema) else ""
        return f"read_{snake_case(schema.name)}(data, pos, version, budget{view})"

    def _refuse_null(self, is_null: str, field: Field, scope: VersionRange) -> None:
        """A field that may be null in some versions of the scope must not be in the others."""
        absence = _absence(field.nullable_versions, scope)
        if absence not in (_ALWAYS, _NEVER):
            with self._block(f"if {is_null} and {absence}:"):
                self._emit("raise Malformed")

    def _tags_reader(self, struct: _Struct) -> None:
        scope = self._flexible_scope(struct)
        with self._block(
            f"def read_{struct.function_name}_tags(item: {struct.name}, data: bytes, pos: i64, version: i64,"
            " budget: Budget) -> i64:"
        ):
            self._emit("unknown: list[tuple[int, bytes]] = []")
            self._emit("last: i64 = -1")
            self._emit("tag_count, pos = read_tag_count(data, pos, budget)")
            with self._block("for _ in range(tag_count):"):
                self._emit("tag, pos, stop = read_tag(data, pos, last)")
                self._emit("last = tag")
                for index, field in enumerate(struct.tagged):
                    with self._block(f"{'elif' if index else 'if'} tag == {field.tag}:"):
                        absence = _absence(field.versions, scope)
                        if absence != _NEVER:
                            with self._block(f"if {absence}:"):
                                self._emit("raise Malformed")
                        self._read_fields([field], _intersection(field.versions, scope))
                        self._emit(f"item.{field.python_name} = {field.python_name}")
                with self._block("else:"):
                    self._emit("unknown.append((tag, data[pos:stop]))")
                    self._emit("pos = stop")
                with self._block("if pos != stop:"):
                    self._emit("raise Malformed")
            self._emit("item.unknown_tagged_fields = tuple(unknown)")
            self._emit("return pos")

    def _flexible_scope(self, struct: _Struct) -> VersionRange:
        return _intersection(self._schema.flexible_versions, struct.scope)

    def _writer(self, struct: _Struct) -> None:
        splices = ", splices: Splices" if struct.has_records else ""
        with self._block(
            f"def write_{struct.function_name}(out: BytesWriter, item: {struct.name}, version: i64{splices}) -> None:"
        ):
            self._flexible_local(struct)
            for condition, fields in struct.groups():
                with self._block(f"if {condition}:"):
                    for field in fields:
                        self._write_field(field, struct.scope)
                held = [
                    _is_set(field, f"item.{field.python_name}") for field in fields if not field.ignorable
                ]
                if condition != _ALWAYS and held:
                    with self._block(f"elif {' or '.join(held)}:"):
                        self._emit("raise Malformed")
            for field in struct.tagged:
                absence = _absence(field.versions, struct.scope)
                if absence != _NEVER and not field.ignorable:
                    with self._block(f"if {absence} and {_is_set(field, f'item.{field.python_name}')}:"):
                        self._emit("raise Malformed")
            self._write_tags(struct)

    def _write_tags(self, struct: _Struct) -> None:
        flexible = self._flexible(self._schema.flexible_versions, struct.scope)
        if flexible != _NEVER:
            with self._block(f"if {flexible}:"):
                if struct.tagged:
                    self._emit(f"write_{struct.function_name}_tags(out, item, version)")
                else:
                    self._emit("write_unknown_tags(out, item.unknown_tagged_fields)")
        if flexible != _ALWAYS:
            with self._block(f"{'if' if flexible == _NEVER else 'elif'} item.unknown_tagged_fields:"):
                self._emit("raise Malformed")

    def _write_field(self, field: Field, scope: VersionRange, out: str = "out") -> None:
        name = field.python_name
        value = f"item.{name}"
        within = _intersection(field.versions, scope)
        flexible = self._flexible(field.flexible_versions, scope)
        prefix = "nullable_" if _is_optional(field) else ""
        if field.is_array and field.struct:
            self._emit(f"{name} = {value}")
            self._refuse_null(f"{name} is None", field, within)
            if prefix:
                with self._block(f"if {name} is None:"):
                    self._emit(f"write_count({out}, -1, {flexible})")
            with self._block("else:" if prefix else f"if {_ALWAYS}:"):
                self._emit(f"write_count({out}, len({name}), {flexible})")
                with self._block(f"for {name}_item in {name}:"):
                    self._emit(self._write_struct(field.struct, out, f"{name}_item"))
            return
        self._refuse_null(f"{value} is None", field, within)
        if field.struct:
            self._emit(self._write_struct(field.struct, out, value))
        elif field.is_array:
            self._emit(f"write_{_LISTS[field.kind]}({out}, {value}, {flexible})")
        elif field.kind == "records":
            self._emit(f"write_records({out}, {value}, {flexible}, splices)")
        elif field.kind == "string":
            self._emit(f"write_{prefix}string({out}, {value}, {flexible})")
        else:
            self._emit(_FIXED[field.kind][3].format(out=out, value=value))

    def _write_struct(self, schema: StructSchema, out: str, value: str) -> str:
        splices = ", splices" if _has_records(schema) else ""
        return f"write_{snake_case(schema.name)}({out}, {value}, version{splices})"

    def _tags_writer(self, struct: _Struct) -> None:
        scope = self._flexible_scope(struct)
        with self._block(
            f"def write_{struct.function_name}_tags(out: BytesWriter, item: {struct.name}, version: i64) -> None:"
        ):
            self._emit("known: list[tuple[int, bytes]] = []")
            for field in struct.tagged:
                condition = _condition(field.versions, scope)
                is_set = _is_set(field, f"item.{field.python_name}")
                with self._block(
                    f"if {is_set}:" if condition == _ALWAYS else f"if {condition} and {is_set}:"
                ):
                    self._emit("part = BytesWriter()")
                    self._write_field(field, _intersection(field.versions, scope), out="part")
                    self._emit(f"known.append(({field.tag}, part.getvalue()))")
            self._emit(f"write_tags(out, known, item.unknown_tagged_fields, {len(struct.tagged)})")


def _is_optional(field: Field) -> bool:
    return bool(field.nullable_versions) or field.default_is_null


def _local_type(field: Field) -> str:
    element = field.struct.name if field.struct else {"string": "str", "records": "Records"}.get(field.kind)
    if field.is_array:
        type_name = f"list[{element or 'int'}]"
    else:
        type_name = element or _FIXED[field.kind][1]
    return f"{type_name} | None" if _is_optional(field) else type_name


def _default(field: Field) -> str:
    if field.default_is_null:
        return "None"
    if field.is_array:
        return "[]"
    assert field.struct is None, f"{field.name}: a struct that is not in all versions"
    return "ZERO_UUID" if field.kind == "uuid" else repr(field.default)


def _is_set(field: Field, value: str) -> str:
    """A test whether a field holds more than its default."""
    if field.default_is_null:
        return f"{value} is not None"
    if field.is_array:
        return f"({value} is None or {value})" if field.nullable_versions else value
    if field.struct:
        tests = [_is_set(inner, f"{value}.{inner.python_name}") for inner in field.struct.fields]
        return f"({' or '.join([*tests, f'{value}.unknown_tagged_fields'])})"
    if field.kind == "bool":
        return f"not {value}" if field.default else value
    return f"{value} != {_default(field)}"


def main() -> int:
    for name in HOT_MESSAGES:
        path = NATIVE_PATH / f"{snake_case(name)}.py"
        path.write_text(module_text(load_schema(name)), encoding="utf-8")
    print(f"{len(HOT_MESSAGES)} codecs written to {NATIVE_PATH}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
