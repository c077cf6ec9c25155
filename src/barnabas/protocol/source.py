"""Shared parts of the two writers of codec source: lines, names, and runs of fixed-size values.

A codec is a Python function for one version of one message. It is written and compiled when that version is first used.
Adjacent values of a fixed size, lengths included, are read or written as one run by one `Struct`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from barnabas.protocol.schema import Field, MessageSchema, StructSchema

FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}

MAX_STRING_BYTES: Final = 0x7FFF


class Source:
    """The source of one function, as it grows. `bindings` are the names that it needs from outside."""

    def __init__(self, schema: MessageSchema, version: int, message_class: type[Any]) -> None:
        self.schema = schema
        self.version = version
        self.bindings: dict[str, object] = {}
        self._module = sys.modules[message_class.__module__]
        self._lines: list[str] = []
        self._indent = 1
        self._names = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def block(self, head: str) -> Source:
        """`with source.block("if x:"):` indents what follows."""
        self.line(head)
        return self

    def __enter__(self) -> None:
        self._indent += 1

    def __exit__(self, *error: object) -> None:
        self._indent -= 1

    def name(self, stem: str) -> str:
        """A variable that no other part of the function uses."""
        self._names += 1
        return f"{stem}{self._names}"

    def bind(self, name: str, value: object) -> str:
        self.bindings[name] = value
        return name

    def type_of(self, struct_schema: StructSchema) -> str:
        """The name of a struct's class, bound."""
        return self.bind(struct_schema.name, getattr(self._module, struct_schema.name))

    def new(self, struct_schema: StructSchema) -> object:
        """An instance of a struct's class with all defaults."""
        instance: object = getattr(self._module, struct_schema.name)()
        return instance

    def default(self, field: Field) -> str:
        """An expression for a fresh default of a field."""
        if field.default_is_null:
            return "None"
        if field.is_array:
            return "[]"
        if field.struct:
            return f"{self.type_of(field.struct)}()"
        return repr(field.default)

    def compile(self, signature: str) -> Callable[..., Any]:
        """The function, compiled; `signature` is its name with its arguments."""
        text = f"def {signature}:\n" + "\n".join(self._lines) + "\n"
        name = signature.partition("(")[0]
        code = compile(text, f"<{name} {self.schema.name} v{self.version}>", "exec")
        namespace = dict(self.bindings)
        exec(code, namespace)
        function: Callable[..., Any] = namespace[name]  # type: ignore[assignment]
        return function
