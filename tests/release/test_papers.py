"""The repository's own papers: NOTICE, CONTRIBUTING.md, llms.txt."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from barnabas.broker.requests.routes import BROKER_ROUTES, ROUTES
from barnabas.cli.main import COMMANDS
from barnabas.protocol.apis import api_for_name
from tools import notice

ROOT: Final = Path(__file__).parents[2]


def test_notice_has_the_licence_of_every_package() -> None:
    assert set(notice.noted()) == set().union(*notice.pins().values()), "run: python -m tools.notice"
    assert notice.NOTICE.read_text(encoding="utf-8") == notice.text(), "run: python -m tools.notice"
    assert not [name for name, licence in notice.noted().items() if licence.lower() == notice.UNKNOWN]
    assert notice.noted()["crc32c"] == "LGPL-2.1-or-later"


PAPERS: Final = (ROOT / "CONTRIBUTING.md", ROOT / "llms.txt", ROOT / "SECURITY.md")
# A handler that CONTRIBUTING.md writes as an example.
EXAMPLES: Final = {"src/barnabas/broker/handlers/cluster/unregister_broker.py"}


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_papers_name_what_exists(paper: Path) -> None:
    text = paper.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
    folders = (ROOT, ROOT / "src" / "barnabas")
    for name in re.findall(r"`((?:\w+/)+[\w.-]*)`", text):
        assert name in EXAMPLES or name == "build/dist" or any((f / name).exists() for f in folders), name
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([a-z]+)\b", text.replace("and make;", "")):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for words in re.findall(r"`barnabas ([a-z-]+)", text):
        assert words in COMMANDS, words


def test_the_example_of_a_new_api_is_not_served_yet() -> None:
    """An example that exists would be wrong: choose another one."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (name, module) = re.findall(r'Route\("(\w+)", 0, 0, "([\w.]+)", cluster\(ALTER\)\)', text)[0]
    assert api_for_name(name).last_version == 0
    assert name not in {route.name for route in (*ROUTES, *BROKER_ROUTES)}
    assert all(module.replace(".", "/") in example for example in EXAMPLES)
