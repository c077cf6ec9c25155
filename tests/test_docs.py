"""The documents are correct: their examples run, their tables match the code, and the files that they name exist."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import click
import pytest

from barnabas.broker.requests.routes import ROUTES
from barnabas.cli.main import barnabas
from barnabas.config.broker_settings import OUR_SETTINGS
from barnabas.config.log_config import DELETION_HOLD
from barnabas.protocol.apis import APIS
from barnabas.testing import Broker, Cluster, ZooKeeperUnavailable
from barnabas.testing.zookeeper import JARS_VARIABLE, find_jars
from tests.examples import blocks, run_page
from tools.website.generated import names as generated_pages

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
HOW_TOS = (ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "howto").glob("*.md")))
GUIDES = tuple(ROOT / "docs" / f"{name}.md" for name in ("ACLS", "CLI", "CLIENTS", "SECURITY"))
PAGES_WITH_EXAMPLES = (ROOT / "README.md", *HOW_TOS, *GUIDES, ROOT / "docs" / "UPGRADING.md")
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
# Tests that run the blocks of a page with what they need: Spark, a ZooKeeper, a console.
RUN_ELSEWHERE = {
    "CLUSTER.md": "tests/test_docs.py",
    "CONSOLE.md": "tests/console/test_guide.py",
    # The programs in it are the very texts of tests there (tests/spark/pipeline/test_reference.py).
    "PIPELINES.md": "tests/spark/pipeline/test_testing.py",
    "SPARK.md": "tests/spark/test_guide.py",
}
# Commands in indented blocks of docs/, by the first of each block: the tests that run them, with the paths and ports
# that they need.
COMMANDS_RUN_ELSEWHERE = {
    "make cluster": "tests/cluster/test_demo.py",
    "make demo-migration": "tests/cluster/test_demo.py",
    "barnabas start server.properties": "tests/cluster/mixed.py",
    "barnabas cluster migrate server.properties": "tests/cluster/test_from_one_node.py",
    "barnabas reassign plan --all --internal": "tests/cluster/test_from_one_node.py",
    "$ barnabas console": "tests/console/test_start.py",
    "pip install 'barnabas[spark]'": "tests/release/test_dist.py",
    "$ barnabas pipeline validate": "tests/spark/pipeline/test_reference.py",
    "export SPARK_HOME": "tests/spark/cluster/standalone.py",
    "$SPARK_HOME/bin/spark-class": "tests/spark/cluster/standalone.py",
    "barnabas pipeline pack": "tests/spark/cluster/test_cluster.py",
    "barnabas pipeline run orders.toml --master": "tests/spark/cluster/test_cluster.py",
    "pip install --upgrade": "tests/release/test_dist.py",
    "cd barnabas-data && mv": "tests/upgrading/test_downgrade.py",
}
# Paths of a user's files, in examples.
NOT_FILES = {"build/site/index.html", "checkpoints/NAME"}


def walks() -> list[tuple[str, list[str]]]:
    """The walks of docs/ARCHITECTURE.md, each with its files in order."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("\n## Walks\n")[2].partition("\n## ")[0]
    return [
        (heading, re.findall(r"^\d+\. `([\w/]+\.py)`", body, re.MULTILINE))
        for heading, body in re.findall(r"^### (.*)\n((?:(?!### ).*\n?)*)", section, re.MULTILINE)
    ]


WALKS = walks()


def prose_of(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_WITH_EXAMPLES, ids=lambda path: path.name)
def test_the_examples(page: Path, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    assert run_page(page.read_text(encoding="utf-8"), tmp_path) > 0


@pytest.mark.slow
@pytest.mark.peer
def test_the_examples_of_a_cluster(tmp_path: Path) -> None:
    """Those of docs/CLUSTER.md need a ZooKeeper."""
    try:
        jars = str(find_jars())
    except ZooKeeperUnavailable as missing:
        pytest.skip(str(missing))
    text = (ROOT / "docs" / "CLUSTER.md").read_text(encoding="utf-8")
    count = run_page(text, tmp_path, start=lambda port: Cluster(port=port), variables={JARS_VARIABLE: jars})
    assert count == 8


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_no_example_escapes(page: Path) -> None:
    """A block of commands or Python is one that a test runs, or a file that it writes."""
    is_run = page in PAGES_WITH_EXAMPLES
    if page.name in RUN_ELSEWHERE:
        is_run = page.name in (ROOT / RUN_ELSEWHERE[page.name]).read_text(encoding="utf-8")
    for block in blocks(page.read_text(encoding="utf-8")):
        assert block.title or block.language in {"console", "python", "text", "toml", "yaml"}, block.text
        assert is_run or block.language in {"text", "toml"}, block.text
        assert block.language != "console" or block.commands(), block.text
        assert block.title or block.language != "yaml", block.text


def test_no_indented_command_escapes() -> None:
    found = [
        command
        for page in PAGES[1:]
        for command in re.findall(
            r"^\n {4,}((?:\$|barnabas |cd |curl |export |kill |make |pip |python ).*)",
            prose_of(page),
            re.MULTILINE,
        )
    ]
    known = tuple(COMMANDS_RUN_ELSEWHERE)
    assert [command for command in found if not command.startswith(known)] == []
    assert [each for each in known if not any(command.startswith(each) for command in found)] == []
    assert [each for each in COMMANDS_RUN_ELSEWHERE.values() if not (ROOT / each).exists()] == []


@pytest.mark.parametrize("page", GUIDES, ids=lambda path: path.name)
def test_guides_have_no_indented_examples(page: Path) -> None:
    """No test would run them."""
    assert re.findall(r"^\n {4}\S.*", prose_of(page), re.MULTILINE) == []


@pytest.mark.parametrize("page", HOW_TOS, ids=lambda path: path.name)
def test_how_tos_are_short(page: Path) -> None:
    """A page has one heading, short lines, and no indented block, which no test would run."""
    text = page.read_text(encoding="utf-8")
    prose = prose_of(page)
    assert len(re.findall(r"^# ", prose, re.MULTILINE)) == 1
    assert not re.search(r"^\n {4}\S", prose, re.MULTILINE)
    assert len(text.splitlines()) <= 250


@pytest.mark.slow
def test_the_lines_of_a_start(tmp_path: Path) -> None:
    """The README shows all lines that a broker logs when it starts."""
    variable = re.compile(r"^\[.*?\]|cluster \S+|in /\S+|PLAINTEXT://\S+|after [\d.]+ s")
    shown = re.findall(r"^    (\[\d{4}-.*)$", README, re.MULTILINE)
    with Broker(directory=tmp_path) as first:
        logged = first.log().splitlines()
    assert [variable.sub("…", line) for line in logged] == [variable.sub("…", line) for line in shown]


def test_the_tour_is_not_empty() -> None:
    found = blocks(README)
    assert sum(len(block.commands()) for block in found if block.language == "console") >= 15
    assert sum(block.language == "python" for block in found) >= 5


def test_the_table_of_apis() -> None:
    text = (ROOT / "docs" / "COMPATIBILITY.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\w+) \| ([\d-]+) \| ([\d–-]+) \|", text, re.MULTILINE)
    advertised = {route.api.key: versions(route.first_version, route.last_version) for route in ROUTES}
    assert rows == [
        (str(api.key), api.name, versions(api.first_version, api.last_version), advertised.get(api.key, "–"))
        for api in APIS
    ]


def test_the_table_of_our_settings() -> None:
    text = (ROOT / "docs" / "COMPATIBILITY.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(barnabas\.[\w.]+)` \|", text, re.MULTILINE)
    assert rows == sorted([*(each.name for each in OUR_SETTINGS), DELETION_HOLD])


def versions(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    """Anchors are checked in the built site (`tests/test_site.py`)."""
    generated = {(ROOT / "docs" / name).resolve() for name in generated_pages()}
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
        path = (document.parent / target).resolve()
        assert path.exists() or path in generated, target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_exist(document: Path) -> None:
    """Files of the repository, and modules by their path below `src/barnabas`."""
    folders = (ROOT, ROOT / "src" / "barnabas", document.parent)
    for name in re.findall(r"`((?:\w+/)+[\w.-]*)`", document.read_text(encoding="utf-8")):
        is_found = any((folder / name).exists() for folder in folders)
        assert is_found or name in NOT_FILES, name


def test_the_picture_of_the_house_is_the_contract() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    picture = re.findall(r"^    (.+)$", text.partition("## Rooms")[2].partition("\n| ")[0], re.MULTILINE)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    assert contract["containers"] == ["barnabas"]
    assert picture == contract["layers"]


def test_architecture_names_every_part() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "barnabas"
    parts = {path.parent.relative_to(package).as_posix() for path in package.rglob("__init__.py")} - {"."}
    assert parts
    assert not [part for part in sorted(parts) if f"`{part}`" not in text]
    # A row after an empty line is outside its table.
    assert not re.findall(r"\n\n(\|(?:.*\|)\n)(?!\|-)", text)


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk[0])
def test_walks_go_forward(walk: tuple[str, list[str]]) -> None:
    """At most one step of a walk leads back to a file that it has passed already."""
    _, files = walk
    assert len(files) >= 5
    assert len(files) - len(set(files)) <= 1


def commands_in(text: str) -> list[str]:
    """What documents say about `barnabas`: in blocks, where a backslash continues a line, and within sentences."""
    joined = re.sub(r"\\\n\s*", "", text)
    in_blocks = re.findall(r"^(?: {4}|\$ )(?:\$ )?(?:\S+ \| )?barnabas ([a-z].*)$", joined, re.MULTILINE)
    in_sentences = re.findall(r"`barnabas ([a-z][^`\n]*)`", joined)
    return [
        re.split(r" (?:#|\||&|2?>|<) ?|;|<\(", command)[0].strip() for command in (*in_blocks, *in_sentences)
    ]


def misnamed(command: str) -> str | None:
    """The first word that is no command, or the first option that the command does not have."""
    context = click.Context(barnabas, info_name="barnabas")
    words = command.split()
    while words and isinstance(context.command, click.Group) and not words[0].startswith("-"):
        names = words.pop(0).split("|")
        if names[0].isupper() or names[0] == "…":
            return None
        for name in names:
            below = context.command.get_command(context, name)
            if below is None:
                return name
        assert below is not None
        context = click.Context(below, info_name=names[-1], parent=context)
    known = {name for each in context.command.get_params(context) for name in each.opts + each.secondary_opts}
    options = re.findall(r"(?:^|\s)(--?[a-z][a-z-]*)", " ".join(words))
    return next((option for option in options if option not in known and option[:2] not in known), None)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_exist_with_their_options(document: Path) -> None:
    for command in commands_in(document.read_text(encoding="utf-8")):
        assert misnamed(command) is None, f"barnabas {command}"


def test_programs_in_guides_are_python() -> None:
    count = 0
    for document in DOCUMENTS:
        for block in blocks(document.read_text(encoding="utf-8")):
            if block.language == "python":
                compile(block.text, document.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                count += 1
    assert count > 20
