"""Reference pages of the commands, from click: one page for each command of `barnabas --help`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

import click

from barnabas.cli.main import COMMANDS, barnabas
from barnabas.cli.shared.group import connects, first_sentence

FOLDER: Final = "reference/commands"
INDEX: Final = f"{FOLDER}/index.md"
CLUSTER_OPTIONS: Final = (
    "It also takes the options that [choose the cluster](../../CLI.md#choosing-the-cluster): `-b`, `--profile`,"
    " `--client-config`, `--timeout`."
)
_TYPES: Final = {"integer": "NUMBER", "float": "NUMBER", "text": "TEXT"}


def pages() -> dict[str, str]:
    """Markdown by the path of the page in the site."""
    found = {INDEX: _index()}
    for name, context in _tops():
        sections = [_section(*each) for each in walk(name, context)]
        found[f"{FOLDER}/{name}.md"] = f"# barnabas {name}\n\n" + "\n".join(sections)
    return found


def names() -> list[str]:
    """The paths of the pages, without the commands' modules, which take a while to load."""
    return [INDEX, *(f"{FOLDER}/{name}.md" for name in COMMANDS)]


def every_command() -> list[str]:
    """The full names of all commands that are not groups."""
    return [
        path
        for name, context in _tops()
        for path, each in walk(name, context)
        if not isinstance(each.command, click.Group)
    ]


def walk(path: str, context: click.Context) -> Iterator[tuple[str, click.Context]]:
    """A command and those below it, with their names without `barnabas`."""
    yield path, context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                yield from walk(f"{path} {name}", click.Context(command, info_name=name, parent=context))


def _tops() -> Iterator[tuple[str, click.Context]]:
    parent = click.Context(barnabas, info_name="barnabas")
    for name in COMMANDS:
        command = barnabas.get_command(parent, name)
        assert command is not None
        yield name, click.Context(command, info_name=name, parent=parent)


def _index() -> str:
    rows = "\n".join(f"| [`barnabas {name}`]({name}.md) | {line} |" for name, (_, line) in COMMANDS.items())
    return (
        "# Commands\n\nThe text of these pages is that of `barnabas COMMAND --help`."
        " [The command line](../../CLI.md) describes what commands share: how they find the cluster, profiles, exit"
        f" codes and JSON.\n\n| command | |\n|---|---|\n{rows}\n"
    )


def _section(path: str, context: click.Context) -> str:
    command = context.command
    lines = []
    if " " in path:
        lines += [f"## barnabas {path} {{#{path.replace(' ', '-')}}}", ""]
    lines += [_prose(command.help or ""), "", "```text", _usage(context), "```", ""]
    if isinstance(command, click.Group):
        lines += ["| command | |", "|---|---|"]
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                anchor = f"{path} {name}".replace(" ", "-")
                lines.append(f"| [`{name}`](#{anchor}) | {_cell(first_sentence(below))} |")
        return "\n".join((*lines, ""))
    rows = list(_options(context))
    if rows:
        lines += ["| option | meaning |", "|---|---|", *rows, ""]
    if connects(command):
        lines += [CLUSTER_OPTIONS, ""]
    return "\n".join(lines)


def _usage(context: click.Context) -> str:
    pieces = " ".join(context.command.collect_usage_pieces(context))
    return f"{context.command_path} {pieces}"


def _options(context: click.Context) -> Iterator[str]:
    for parameter in context.command.get_params(context):
        if not isinstance(parameter, click.Option) or parameter.hidden:
            continue
        if "--help" in parameter.opts or (connects(context.command) and not parameter.expose_value):
            continue
        record = parameter.get_help_record(context)
        if record is not None:
            names, text = record
            yield f"| `{_cell(names)}` | {_cell(_code(text))} |"


def _prose(text: str) -> str:
    """click's help as Markdown: a paragraph that begins with \\b has lines of its own, as examples have."""
    paragraphs = []
    for paragraph in inspect.cleandoc(text.replace("\f", "")).split("\n\n"):
        if paragraph.startswith("\b"):
            body = inspect.cleandoc(paragraph.lstrip("\b\n"))
            paragraphs.append(f"```text\n{body}\n```")
        elif paragraph.startswith("  "):
            paragraphs.append(f"```text\n{inspect.cleandoc(paragraph)}\n```")
        else:
            paragraphs.append(_code(" ".join(paragraph.split())))
    return "\n\n".join(paragraphs)


def _code(text: str) -> str:
    """Words that Markdown would take for HTML or emphasis, as they are."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([<>*_\[\]{}])", r"\\\1", part) for part in parts
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
