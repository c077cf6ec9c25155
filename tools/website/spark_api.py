"""The classes and functions for Spark programs, from their sources: the site is built without PySpark."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

LINE_LENGTH_MAX: Final = 100


def sections() -> str:
    """Markdown: one section for each public name."""
    return "\n".join(_section(node) for node in public_definitions())


def public_definitions() -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """The definitions of what `barnabas.spark` exports, which it imports for type checkers only."""
    for statement in ast.walk(_tree("barnabas.spark")):
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("barnabas."):
            names = {alias.name for alias in statement.names}
            for node in _tree(statement.module or "").body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in names:
                    yield node


def _tree(module: str) -> ast.Module:
    # By its path: `find_spec` would import the packages above it.
    root = find_spec("barnabas")
    assert root is not None
    assert root.origin is not None
    path = Path(root.origin).parent.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _section(node: ast.ClassDef | ast.FunctionDef) -> str:
    name = node.name
    lines = [f"## {name} {{#{name}}}", ""]
    if isinstance(node, ast.FunctionDef):
        return "\n".join((*lines, _signature(name, node), ast.get_docstring(node) or "", ""))
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    start = next((each for each in methods if each.name == "__init__"), None)
    fields = [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)]
    if start is not None:
        lines.append(_signature(name, start))
    elif fields:
        lines.append(_call(name, fields, ""))
    lines += [ast.get_docstring(node) or "", ""]
    for each in methods:
        if not each.name.startswith("_"):
            lines += [f"### {name}.{each.name} {{#{name}.{each.name}}}", "", _signature(each.name, each)]
            lines += [ast.get_docstring(each) or "", ""]
    return "\n".join(lines)


def _signature(name: str, node: ast.FunctionDef) -> str:
    arguments = node.args
    arguments.args = [each for each in arguments.args if each.arg != "self"]
    returns = "" if node.returns is None or node.name == "__init__" else f" -> {ast.unparse(node.returns)}"
    text = ast.unparse(arguments)
    # Commas within brackets separate no arguments.
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += letter in "([{"
        depth -= letter in ")]}"
        if letter == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return _call(name, [*parts, text[start:].strip()] if text else [], returns)


def _call(name: str, parts: list[str], returns: str) -> str:
    text = f"{name}({', '.join(parts)}){returns}"
    if len(text) > LINE_LENGTH_MAX:
        body = ",\n    ".join(parts)
        text = f"{name}(\n    {body},\n){returns}"
    return f"```python\n{text}\n```\n"
