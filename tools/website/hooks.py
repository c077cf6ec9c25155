"""Hooks of mkdocs: they add the generated pages, fill in the navigation, and adapt links.

Pages of `docs/` are read in the repository as well, so their links lead to files. In the site, a link to a page is a
link to that page; a link to another file of the repository (a pipeline of the demo, for example) leads to a copy of it;
a link to a folder becomes its name.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.website import api_pages, command_pages, generated

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
# The part of the navigation that gets the pages which are not in the list.
GUIDES: Final = "Guides"
# Pages of the repository that are not in docs/.
OUTSIDE: Final = ("CHANGELOG.md",)
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
_FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
# The first cell of a row that has a name in code, as tables of settings have it.
_NAMED_ROW: Final = re.compile(r"<tr>\s*<td>(<code>([\w.\[\]-]+)</code>)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation: without pages that are not there, and with all that are."""
    entries = [_expanded(entry) for entry in config.nav or ()]
    listed = set(_paths(entries))
    found = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    for entry in entries:
        if GUIDES in entry:
            entry[GUIDES] += sorted(found - listed)
    config.nav = entries
    return config


def _expanded(entry: Any) -> Any:
    """The folders of generated pages as lists of these."""
    ((title, below),) = entry.items() if isinstance(entry, dict) else [("", entry)]
    if isinstance(below, list):
        return {title: [_expanded(each) for each in below if _is_there(each)]}
    folders = {
        command_pages.FOLDER: command_pages.names(),
        api_pages.FOLDER: [*map(api_pages.page_of, api_pages.MODULES), api_pages.ERRORS],
    }
    return {title: folders.get(below, below)} if title else below


def _is_there(entry: Any) -> bool:
    path = next(iter(entry.values())) if isinstance(entry, dict) else entry
    return (
        isinstance(path, list) or path.startswith("reference/") or path in OUTSIDE or (DOCS / path).exists()
    )


def _paths(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from _paths(each)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, text in generated.pages().items():
        files.append(File.generated(config, path, content=text))
    for name in OUTSIDE:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    source = page.file.src_uri
    if source.startswith("reference/"):
        return markdown
    folder = "" if source in OUTSIDE else posixpath.dirname(f"docs/{source}")

    def adapted(found: re.Match[str]) -> str:
        mark, text, target, anchor = found[1], found[2], found[3], found[4] or ""
        if not target or ":" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        own = path.removeprefix("docs/") if path.startswith("docs/") else path
        if (path.startswith("docs/") or own in OUTSIDE) and files.get_file_from_path(own) is not None:
            start = posixpath.dirname(source)
            return f"{mark}[{text}]({posixpath.relpath(own, start or '.')}{anchor})"
        if (ROOT / path).is_file():
            copy = f"source/{path}"
            if files.get_file_from_path(copy) is None:
                files.append(File.generated(config, copy, abs_src_path=str(ROOT / path)))
            up = posixpath.relpath(copy, posixpath.dirname(source) or ".")
            return f"{mark}[{text}]({up})"
        return text

    # Not within code.
    return "".join(
        part if part.startswith("```") else _LINK.sub(adapted, part) for part in _FENCE.split(markdown)
    )


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Gives rows of tables that begin with a name an anchor: `#sink-with-type-topic.key` in the guide to pipelines."""
    seen: set[str] = set()
    parts = re.split(r'(<h[1-6] id="[^"]*")', html)
    section = ""
    for number, part in enumerate(parts):
        if part.startswith("<h"):
            section = part.partition('id="')[2].rstrip('"')
            continue

        def anchored(found: re.Match[str], section: str = section) -> str:
            anchor = f"{section}.{found[2]}"
            if anchor in seen:
                return found[0]
            seen.add(anchor)
            return f'<tr id="{anchor}">\n<td>{found[1]}'

        parts[number] = _NAMED_ROW.sub(anchored, part)
    return "".join(parts)


def on_post_build(config: MkDocsConfig) -> None:
    """The map for crawlers would name a host, and there is none."""
    site = Path(config.site_dir)
    for name in ("sitemap.xml", "sitemap.xml.gz"):
        (site / name).unlink(missing_ok=True)
    shutil.copy(ROOT / "LICENSE", site / "LICENSE")
