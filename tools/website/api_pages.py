"""Reference pages of the Python API, from signatures and docstrings of the sources, which are not compiled."""

from __future__ import annotations

import ast
import enum
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, ForwardRef

from tools.website import spark_api

FOLDER: Final = "reference/api"
LINE_LENGTH_MAX: Final = 100
ERRORS: Final = f"{FOLDER}/errors.md"
# module -> title of its page, what it is
MODULES: Final[dict[str, tuple[str, str]]] = {
    "barnabas": (
        "The clients",
        "[barnabas.aio](aio.md) has the same for asyncio. Their settings are in [Settings](../client-settings.md).",
    ),
    "barnabas.aio": (
        "The clients for asyncio",
        "The same clients as in [barnabas](barnabas.md), on the caller's event loop. Use them with `async with`.",
    ),
    "barnabas.testing": (
        "Brokers for tests",
        "[In CI](../../howto/ci.md) shows how to use them, and the fixtures for pytest.",
    ),
    "barnabas.spark": (
        "Spark",
        "[Spark](../../SPARK.md) describes the formats and their options, [Pipelines](../../PIPELINES.md) the files.",
    ),
    "barnabas.client.admin.results": (
        "Results of the admin client",
        "The objects that methods of [Admin](barnabas.md#Admin) take and return.",
    ),
}


def page_of(module: str) -> str:
    name = "results" if module.endswith(".results") else module.rpartition(".")[2]
    return f"{FOLDER}/{name}.md"


def pages() -> dict[str, str]:
    """Markdown by the path of the page in the site."""
    found = {page_of(name): _module_page(name) for name in MODULES}
    found[ERRORS] = _errors_page()
    return found


def public_names(module: ModuleType) -> list[str]:
    names = getattr(module, "__all__", None) or getattr(module, "_LAZY", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == module.__name__
        ]
    return sorted(name for name in names if not name.startswith("_"))


def _module_page(name: str) -> str:
    title, introduction = MODULES[name]
    module = import_module(name)
    known = set(public_names(import_module("barnabas"))) if name.endswith(".results") else set()
    names = [each for each in public_names(module) if each not in known]
    # Most names of barnabas.spark need PySpark, without which the site is built.
    is_spark = name == "barnabas.spark"
    sections = (
        [spark_api.sections()] if is_spark else [_describe(each, getattr(module, each)) for each in names]
    )
    listed = " · ".join(f"[{each}](#{each})" for each in names)
    if name == "barnabas.testing":
        sections.append(_fixtures())
    heading = title if name.startswith("barnabas.client.") else f"{title}: {name}"
    return f"# {heading}\n\n{introduction}\n\n{listed}\n\n" + "\n".join(filter(None, sections))


def _describe(name: str, value: Any) -> str:
    heading = f"## {name} {{#{name}}}\n"
    if isinstance(value, ModuleType):
        return f"{heading}\n{_prose(value)}\n"
    if inspect.isclass(value):
        return "\n".join((heading, _class(name, value)))
    if inspect.isfunction(value):
        return "\n".join((heading, _signature(name, value), _prose(value), ""))
    text = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", str(value))
    return f"{heading}\n```python\n{name} = {text}\n```\n"


def _class(name: str, kind: type) -> str:
    if issubclass(kind, enum.Enum):
        rows = [f"| `{member.name}` | `{member.value!r}` |" for member in kind]
        return "\n".join((_prose(kind), "| member | value |", "|---|---|", *rows, ""))
    parts = [_signature(name, kind), _prose(kind), ""]
    for member, value in _members(kind):
        anchor = f"{name}.{member.strip('_')}"
        if isinstance(value, property):
            parts += [f"### {name}.{member} {{#{anchor}}}", "", _property(member, value), _prose(value), ""]
        else:
            parts += [f"### {name}.{member} {{#{anchor}}}", "", _signature(member, value), _prose(value), ""]
    return "\n".join(parts)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties, in the order of the sources, the class before its bases."""
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("barnabas"):
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            if isinstance(value, staticmethod | classmethod):
                value = value.__func__
            if isinstance(value, property) or inspect.isfunction(value):
                yield name, value


def _property(name: str, value: property) -> str:
    found = value.fget.__annotations__.get("return", "Any") if value.fget is not None else "Any"
    annotation = _annotation(found)
    return f"```python\n{name}: {annotation}\n```\n"


def _signature(name: str, value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return f"```python\n{name}\n```\n"
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    texts = list(_parameters(parameters))
    is_plain = inspect.isclass(value) or signature.return_annotation is signature.empty
    returns = "" if is_plain else f" -> {_annotation(signature.return_annotation)}"
    text = f"{name}({', '.join(texts)}){returns}"
    if len(text) > LINE_LENGTH_MAX and texts:
        body = ",\n    ".join(texts)
        text = f"{name}(\n    {body},\n){returns}"
    prefix = "async " if inspect.iscoroutinefunction(value) else ""
    return f"```python\n{prefix}{text}\n```\n"


def _parameters(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """The parameters of a signature, with the marks for positions and keywords."""
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    is_marked, was_positional_only = False, False
    for each in parameters:
        if was_positional_only and each.kind is not each.POSITIONAL_ONLY:
            yield "/"
        was_positional_only = each.kind is each.POSITIONAL_ONLY
        is_marked |= each.kind is each.VAR_POSITIONAL
        if each.kind is each.KEYWORD_ONLY and not is_marked:
            is_marked = True
            yield "*"
        text = f"{stars.get(each.kind, '')}{each.name}"
        if each.annotation is not each.empty:
            text += f": {_annotation(each.annotation)}"
        if each.default is not each.empty:
            text += f" = {_default(each.default)}"
        yield text
    if was_positional_only:
        yield "/"


def _annotation(value: Any) -> str:
    """Types as the sources have them, without the modules."""
    if isinstance(value, ForwardRef):
        value = value.__forward_arg__
    text = value.__name__ if isinstance(value, type) and not hasattr(value, "__args__") else str(value)
    text = re.sub(
        r"\b(?:barnabas|collections|concurrent|mypy_extensions|typing)(?:\.\w+)*\.(\w+)", r"\1", text
    )
    # What compiled modules call integers of fixed size.
    return re.sub(r"\b[iu](?:8|16|32|64)\b", "int", text)


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return value.__name__ if inspect.isroutine(value) else repr(value)


def _prose(value: Any) -> str:
    text = inspect.getdoc(value) or ""
    # Dataclasses without a docstring get their signature from Python.
    if inspect.isclass(value) and text.startswith(f"{value.__name__}("):
        return ""
    return re.sub(r"(?m)^((?: {4}.*\n?)+)", lambda found: f"\n{found[0]}\n", text) + "\n"


def _fixtures() -> str:
    """The fixtures of pytest, which are the functions of the plug-in that have a decorator of pytest."""
    # Its source is enough: the site is built without pytest.
    found = find_spec("barnabas.pytest_plugin")
    assert found is not None
    assert found.origin is not None
    tree = ast.parse(Path(found.origin).read_text(encoding="utf-8"))
    lines = ["## Fixtures for pytest {#fixtures}", "", ast.get_docstring(tree) or "", ""]
    for node in tree.body:
        if (
            isinstance(node, ast.FunctionDef)
            and not node.name.startswith("_")
            and any("fixture" in ast.unparse(each) for each in node.decorator_list)
        ):
            lines += [f"### {node.name} {{#{node.name}}}", "", ast.get_docstring(node) or "", ""]
    return "\n".join(lines)


def _errors_page() -> str:
    from barnabas.errors import ERRORS as BY_CODE

    module = import_module("barnabas.errors")
    with_code = {error.__name__ for error in BY_CODE.values()}
    others = [name for name in module.__all__ if name not in with_code]
    sections = "\n".join(_error(name, getattr(module, name)) for name in others)
    rows = "\n".join(
        f'| <span id="{error.__name__}">{code}</span> | `{error.name}` | `{error.__name__}` |'
        f" {'yes' if error.retriable else 'no'} |"
        for code, error in sorted(BY_CODE.items())
    )
    return (
        "# Errors: barnabas.errors\n\n"
        "Every error code of Kafka is an exception, which the clients raise. The base is `KafkaError`; an error that"
        " may be gone when the request is repeated derives from `RetriableError`. An error has `code`, `name` and"
        " `retriable`.\n\nIf an admin call names several objects and some of them fail, it raises an `ExceptionGroup`"
        " with one error for each: use `except*`.\n\n"
        f"| code | name | exception | retriable |\n|---:|---|---|---|\n{rows}\n\n{sections}"
    )


def _error(name: str, value: Any) -> str:
    """An error of the clients, which has no code of its own, or a function for codes."""
    if not inspect.isclass(value):
        return _describe(name, value)
    bases = " and ".join(f"`{base.__name__}`" for base in value.__bases__)
    return f"## {name} {{#{name}}}\n\n{_prose(value)}\nDerives from {bases}.\n"
