"""The rules of the house: how large a function, a constructor, a file and a folder may be, and words to avoid.

The only exceptions are the compiled loops in `DECODE_LOOPS`.
"""

from __future__ import annotations

import ast
import gc
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "barnabas"
GENERATED = (SOURCES / "protocol" / "messages", SOURCES / "protocol" / "native")

FUNCTION_LINES_MAX = 80
FILE_LINES_MAX = 600
COLLABORATORS_MAX = 8
MODULES_MAX = 30

# Loops that mypyc compiles. They decode one record after the other, and a call for each field would cost more than the
# field, so that the loop contains the whole decoder.
DECODE_LOOPS = {
    "client/consumer/record.py:_decode": "decodes the records of a batch for `poll()`",
    "records/columns.py:ColumnsBuilder._append_records": "decodes the records of a batch to Arrow's layout",
}

# Words to avoid, and what to write instead.
WORDS = {
    r"\bwhoever\b": "the client, the caller, any process that",
    r"\banew\b": "again",
    r"\b(?:is|are|was|were|be|been) told\b": "logs, reports, returns, receives",
    r"\btells? of\b": "reports, logs, shows",
    r"\bfigures?\b": "metrics, results, values",
    r"\bcalls? (?:itself|themselves) so\b": "has this id",
    r"\bone's own\b": "your own, its own",
    r"\bwhat there is of\b": "the existing",
    r"\bwhich there is not\b": "does not exist, is not supported",
    r"\bnobody to ask\b": "without confirmation",
}
PATTERN = re.compile("|".join(WORDS), re.IGNORECASE)
PROSE = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))

# A parameter of one of these types is a plain value. So are our enumerations, NewTypes, named tuples, frozen
# dataclasses, messages and exceptions, and containers of plain values. Everything else is a collaborator.
PLAIN = {
    *("None", "bool", "bytearray", "bytes", "complex", "float", "int", "memoryview", "object", "str"),
    *("Buffer", "Path", "Pattern", "UUID", "datetime", "timedelta", "Literal", "Exception", "BaseException"),
}
CONTAINERS = {
    *("Collection", "Container", "Iterable", "Mapping", "MutableMapping", "OrderedDict", "Sequence", "Set"),
    *("deque", "dict", "frozenset", "list", "set", "tuple"),
    *("Annotated", "ClassVar", "Final", "InitVar", "Optional"),
}


def modules(folder: Path = SOURCES) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.py")):
        if not any(path.is_relative_to(generated) for generated in GENERATED):
            yield path


def name_of(path: Path) -> str:
    return path.relative_to(SOURCES).as_posix()


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """Trees have so many nodes that garbage collections would take longer than everything else here."""
    gc.disable()
    yield
    tree_of.cache_clear()
    gc.enable()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def definitions(node: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Classes and functions with their dotted names, the outer ones first."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{outer}.{child.name}" if outer else child.name
            yield name, child
            yield from definitions(child, name)
        elif isinstance(child, ast.stmt):
            yield from definitions(child, outer)


def test_no_function_is_long() -> None:
    found = {
        f"{name_of(path)}:{name}"
        for path in modules()
        for name, node in definitions(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert found == set(DECODE_LOOPS), f"functions of more than {FUNCTION_LINES_MAX} lines"


def test_no_file_is_large() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (*modules(), *modules(ROOT / "tests"))
        if path.read_text(encoding="utf-8").count("\n") > FILE_LINES_MAX
    }
    assert not found, f"files of more than {FILE_LINES_MAX} lines"


def test_no_folder_is_large() -> None:
    counts: dict[Path, int] = {}
    for path in (*modules(), *modules(ROOT / "tests")):
        if path.name not in ("__init__.py", "conftest.py"):
            counts[path.parent] = counts.get(path.parent, 0) + 1
    found = {folder.relative_to(ROOT).as_posix() for folder, count in counts.items() if count > MODULES_MAX}
    assert not found, f"folders of more than {MODULES_MAX} modules"


def decorators(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for decorator in node.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        yield ast.unparse(call).rpartition(".")[2], ast.unparse(decorator)


def is_dataclass(node: ast.ClassDef) -> bool:
    """`barnabas.value.Value` is one to this extent, too."""
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    return "Value" in bases or any(name == "dataclass" for name, _ in decorators(node))


def is_value_class(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base).rpartition(".")[2].partition("[")[0] for base in node.bases}
    if any(
        base in PLAIN or base.endswith(("Enum", "Flag", "NamedTuple", "Error", "TypedDict", "Value"))
        for base in bases
    ):
        return True
    return any(name == "dataclass" and "frozen=True" in text for name, text in decorators(node))


@cache
def plain_names() -> frozenset[str]:
    """Names of types that are plain values wherever a module of ours defines them."""
    plain: dict[str, bool] = {}
    aliases: list[tuple[str, ast.expr]] = []
    for path in GENERATED[0].glob("*.py"):
        classes = re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        plain.update(dict.fromkeys(classes, True))
    for path in modules():
        for _, node in definitions(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                plain[node.name] = plain.get(node.name, True) and is_value_class(node)
        for statement in tree_of(path).body:
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and statement.value
            ):
                if ast.unparse(statement.annotation).endswith("TypeAlias"):
                    aliases.append((statement.target.id, statement.value))
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                value = statement.value
                if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("NewType"):
                    plain[statement.targets[0].id] = True
                elif isinstance(value, ast.Subscript | ast.BinOp):
                    aliases.append((statement.targets[0].id, value))
    names = PLAIN | {name for name, is_plain in plain.items() if is_plain}
    # An alias may name another one.
    for _ in range(3):
        names |= {name for name, value in aliases if name not in plain and is_plain_type(value, names)}
    return frozenset(names)


def is_plain_type(annotation: ast.expr, names: frozenset[str] | set[str]) -> bool:
    match annotation:
        case ast.Constant(value=str(text)):
            return is_plain_type(ast.parse(text, mode="eval").body, names)
        case ast.Constant():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in names or name in CONTAINERS
        case ast.BinOp(left=left, right=right):
            return is_plain_type(left, names) and is_plain_type(right, names)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return all(is_plain_type(element, names) for element in elements)
        case ast.Subscript(value=container, slice=arguments):
            kind = ast.unparse(container).rpartition(".")[2]
            return kind == "Literal" or (
                (kind in CONTAINERS or kind in names) and is_plain_type(arguments, names)
            )
    return False


def constructor_parameters(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            arguments = statement.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if argument.arg != "self":
                    yield argument.arg, argument.annotation
            return
    if is_dataclass(node):
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                yield statement.target.id, statement.annotation


def test_no_constructor_has_many_collaborators() -> None:
    names = plain_names()
    found = set()
    for path in modules():
        for name, node in definitions(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                collaborators = [
                    parameter
                    for parameter, annotation in constructor_parameters(node)
                    if annotation is None or not is_plain_type(annotation, names)
                ]
                if len(collaborators) > COLLABORATORS_MAX:
                    found.add(f"{name_of(path)}:{name}")
    assert not found, f"constructors with more than {COLLABORATORS_MAX} collaborators"


def words_to_avoid(path: Path) -> set[str]:
    """Those in a document, or in comments and strings of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py" and PATTERN.search(text):
        tokens = tokenize.generate_tokens(StringIO(text).readline)
        text = "\n".join(token.string for token in tokens if token.type in PROSE)
    return {match.lower() for match in PATTERN.findall(text)}


def test_plain_english() -> None:
    documents = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
    others = (path for folder in ("tools", "bench", "demo") for path in sorted((ROOT / folder).rglob("*.py")))
    found = {
        path.relative_to(ROOT).as_posix(): words_to_avoid(path) for path in (*documents, *modules(), *others)
    }
    found = {path: words for path, words in found.items() if words}
    assert not found, f"words to avoid: {found}"


def compiled_modules() -> list[Path]:
    names = re.findall(r'"([\w/]+\.py)",', (ROOT / "setup.py").read_text(encoding="utf-8"))
    return [SOURCES / name for name in sorted(set(names))]


def names_for_type_checkers(tree: ast.Module) -> set[str]:
    """The names that exist for type checkers only."""
    return {
        alias.asname or alias.name
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
    }


def test_compiled_classes_need_no_absent_types() -> None:
    """mypyc evaluates the types of fields when it makes a class, unlike Python. It cannot compile a `Value` at all."""
    found = set()
    for path in compiled_modules():
        absent = names_for_type_checkers(tree_of(path))
        for name, node in definitions(tree_of(path)):
            if isinstance(node, ast.ClassDef) and (is_dataclass(node) or is_value_class(node)):
                fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
                needed = {
                    word for each in fields for word in re.findall(r"\w+", ast.unparse(each.annotation))
                }
                if needed & absent or "Value" in map(ast.unparse, node.bases):
                    found.add(f"{name_of(path)}:{name}")
    assert not found, "classes in compiled modules that fail when the module is loaded"
