"""Writes the message types, `src/barnabas/protocol/messages/*.py`, from the schemas: `make messages`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from barnabas.protocol.native import HOT_MESSAGES
from barnabas.protocol.schema import (
    Field,
    MessageSchema,
    StructSchema,
    load_schema,
    message_names,
    snake_case,
)

MESSAGES_PATH: Final = Path(__file__).parent.parent / "src" / "barnabas" / "protocol" / "messages"

_LINE_LENGTH: Final = 110

_PYTHON_TYPES: Final = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "uint32": "int",
    "int64": "int",
    "float64": "float",
    "uuid": "Uuid",
    "string": "str",
    "bytes": "bytes",
    "records": "Records",
}


def module_text(schema: MessageSchema) -> str:
    """The module of one message: its structs, inner ones first, then the message itself."""
    is_hot = schema.name in HOT_MESSAGES
    classes = "\n\n".join(_class_text(struct, is_hot) for struct in (*schema.structs, schema))
    shared = ("EMPTY", "Records", "TaggedFields", "Uuid", "ZERO_UUID", "equal", "show")
    # A name is imported only if the classes use it as a whole word.
    words = set(classes.replace("[", " ").replace("]", " ").replace(",", " ").replace("(", " ").split())
    imports = ", ".join(name for name in _sorted_as_ruff_does(shared) if name in words)
    imported = f"from barnabas.protocol.message import {imports}\n"
    typing = "from typing import Final\n\n" if "Final" in words else ""
    extensions = "from mypy_extensions import mypyc_attr\n\n" if is_hot else ""
    flexible = schema.flexible_versions
    return (
        f'"""{schema.name}: versions {schema.versions}, flexible {flexible}.\n\n'
        f'Written by `make messages` from schemas/{schema.name}.json.\n"""\n\n'
        f"from __future__ import annotations\n\n{typing}{extensions}{imported}\n\n{classes}"
    )


def _sorted_as_ruff_does(names: tuple[str, ...]) -> list[str]:
    """Constants, then classes, then functions."""
    return sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))


def _class_text(struct: StructSchema, is_hot: bool) -> str:
    lines = [_default_instance(field) for field in struct.fields if _has_default_instance(field)]
    names = [*(field.python_name for field in struct.fields), "unknown_tagged_fields"]
    # Messages are trees: compiled ones need not be known to the collector of cycles, which makes them cheaper.
    lines.append(("@mypyc_attr(acyclic=True)\n" if is_hot else "") + f"class {struct.name}:\n")
    if len(names) == 1:
        lines.append(f'    __slots__ = ("{names[0]}",)\n')
    else:
        lines.append("    __slots__ = (\n" + "".join(f'        "{name}",\n' for name in names) + "    )\n")
    lines += [f"    {field.python_name}: {_type(field)}\n" for field in struct.fields]
    lines.append("    unknown_tagged_fields: TaggedFields\n\n")
    lines.append("    def __init__(\n        self,\n        *,\n")
    lines += [f"        {field.python_name}: {_argument(field)},\n" for field in struct.fields]
    lines.append("        unknown_tagged_fields: TaggedFields = (),\n    ) -> None:\n")
    lines += [_assignment(field) for field in struct.fields]
    lines.append("        self.unknown_tagged_fields = unknown_tagged_fields\n\n")
    lines.append("    def __eq__(self, other: object) -> bool:\n        return equal(self, other)\n\n")
    lines.append("    def __repr__(self) -> str:\n        return show(self)\n")
    return "".join(lines)


def _element_type(field: Field) -> str:
    return field.struct.name if field.struct else _PYTHON_TYPES[field.kind]


def _is_nullable(field: Field) -> bool:
    return bool(field.nullable_versions) or field.default_is_null


def _type(field: Field) -> str:
    type_name = f"list[{_element_type(field)}]" if field.is_array else _element_type(field)
    return f"{type_name} | None" if _is_nullable(field) else type_name


def _argument(field: Field) -> str:
    """An argument with its default. A new struct per message cannot be a default: None replaces it."""
    if field.default_is_null:
        return f"{_type(field)} = None"
    if field.is_array:
        return f"{_type(field)} = EMPTY"
    if _has_default_instance(field):
        return f"{_type(field)} = {_default_instance_name(field)}"
    if field.struct:
        return f"{field.struct.name} | None = None"
    if field.kind == "uuid":
        return f"{_type(field)} = ZERO_UUID"
    text = repr(field.default).replace("'", '"')
    return f"{_type(field)} = {text}"


def _assignment(field: Field) -> str:
    """`self.x = x`, or a new list or struct if the argument has its default; formatted as ruff does."""
    name = field.python_name
    if field.default_is_null or not (field.is_array or field.struct):
        return f"        self.{name} = {name}\n"
    if field.is_array:
        choice = ["[]", f"if {name} is EMPTY", f"else {name}"]
    else:
        stands_for_default = _default_instance_name(field) if _has_default_instance(field) else "None"
        choice = [f"{_element_type(field)}()", f"if {name} is {stands_for_default}", f"else {name}"]
    line = " ".join(choice)
    if len(f"        self.{name} = {line}") <= _LINE_LENGTH:
        return f"        self.{name} = {line}\n"
    indent = " " * 12
    body = (
        indent + line if len(indent + line) <= _LINE_LENGTH else "\n".join(indent + part for part in choice)
    )
    return f"        self.{name} = (\n{body}\n        )\n"


def _has_default_instance(field: Field) -> bool:
    """Whether None means null although it is not the default, so that the default must be a struct."""
    return bool(field.struct) and not field.is_array and _is_nullable(field) and not field.default_is_null


def _default_instance_name(field: Field) -> str:
    return f"_DEFAULT_{snake_case(field.name).upper()}"


def _default_instance(field: Field) -> str:
    return f"{_default_instance_name(field)}: Final = {_element_type(field)}()\n\n\n"


def main() -> int:
    written = {f"{snake_case(name)}.py": module_text(load_schema(name)) for name in message_names()}
    for path in MESSAGES_PATH.glob("*.py"):
        if path.name not in written and path.name != "__init__.py":
            path.unlink()
    for name, text in written.items():
        (MESSAGES_PATH / name).write_text(text, encoding="utf-8")
    print(f"{len(written)} message modules written to {MESSAGES_PATH}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
