"""The reference has all that the code has, and the site that `make docs` builds is whole and needs no network."""

from __future__ import annotations

import enum
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from barnabas.broker.settings.group_configs import GROUP_SETTINGS
from barnabas.client.settings import ADMIN, CONSUMER, PRODUCER
from barnabas.config.broker_config import AUTHORIZER_SETTINGS, is_honoured
from barnabas.config.broker_settings import broker_settings
from barnabas.config.log_config import TOPIC_SETTINGS
from barnabas.config.meanings import broker_meaning, meanings
from barnabas.config.security_check import SASL_SETTINGS, TLS_SETTINGS, is_unsupported

ROOT = Path(__file__).parents[1]
BUILD_TIMEOUT_S = 300
CLIENT_SETTINGS = {setting.name for setting in (*PRODUCER, *CONSUMER, *ADMIN)}
# Attributes that make a browser load something.
LOADING = {
    ("audio", "src"),
    ("embed", "src"),
    ("iframe", "src"),
    ("img", "src"),
    ("img", "srcset"),
    ("link", "href"),
    ("object", "data"),
    ("script", "src"),
    ("source", "src"),
    ("video", "src"),
}


def test_every_setting_has_a_meaning() -> None:
    """And each meaning has a setting. A new setting needs a line in `src/barnabas/config/meanings.json`."""
    assert not [name for name in broker_settings() if broker_meaning(name) is None]
    known = meanings()
    assert set(known["broker"]) <= {*broker_settings(), *AUTHORIZER_SETTINGS}
    assert set(known["topic"]) == set(TOPIC_SETTINGS)
    assert set(known["group"]) == set(GROUP_SETTINGS)
    assert set(known["client"]) == CLIENT_SETTINGS
    texts = [text for kind in ("broker", "topic", "group", "client") for text in known[kind].values()]
    assert not [text for text in texts if not re.fullmatch(r"[`A-Z0-9].*\.", text)]


def test_settings_with_an_effect_say_which() -> None:
    """A setting that the broker uses is not described as one without an effect."""
    for name in broker_settings():
        text = broker_meaning(name) or ""
        is_idle = text.startswith(("No effect. In Apache Kafka", "Not supported: the broker"))
        if name in TLS_SETTINGS | SASL_SETTINGS:
            assert not is_idle, name
        elif is_unsupported(name):
            assert text.startswith("Not supported"), name
        elif not name.startswith(("ssl.", "sasl.", "delegation.token.")):
            assert is_idle != is_honoured(name), name


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is missing: `make docs` installs it")
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return target


class Content(HTMLParser):
    """The anchors, links and loaded resources of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in ("id", "name"):
                self.anchors.add(value)
            if (tag, name) == ("a", "href"):
                self.links.add(value)
            if (tag, name) in LOADING:
                self.loaded.add(value)


@cache
def content_of(page: Path) -> Content:
    content = Content()
    content.feed(page.read_text(encoding="utf-8"))
    return content


def pages_of(site: Path) -> Iterator[tuple[str, Content]]:
    for page in sorted(site.rglob("*.html")):
        yield page.relative_to(site).as_posix(), content_of(page)


@pytest.mark.slow
def test_settings_have_anchors(site: Path) -> None:
    with_effect = content_of(site / "reference/broker-settings.html").anchors
    without = content_of(site / "reference/settings-without-effect.html").anchors
    assert {*broker_settings(), *AUTHORIZER_SETTINGS} <= with_effect | without
    assert "log.retention.ms" in with_effect
    assert "num.io.threads" in without
    topics = content_of(site / "reference/topic-settings.html").anchors
    assert {*TOPIC_SETTINGS, *GROUP_SETTINGS} <= topics
    assert content_of(site / "reference/client-settings.html").anchors >= CLIENT_SETTINGS


@pytest.mark.slow
def test_keys_of_pipelines_have_anchors(site: Path) -> None:
    from dataclasses import fields

    from barnabas.spark.pipeline.reference import TABLES
    from barnabas.spark.pipeline.tables import key_of

    anchors = content_of(site / "PIPELINES.html").anchors
    for heading, table in TABLES:
        for field in fields(table):
            assert any(anchor.endswith(f".{key_of(field)}") for anchor in anchors), (heading, field.name)
    assert {"sink-with-type-topic.key", "the-file.guarantee"} <= anchors


@pytest.mark.slow
def test_commands_have_anchors_and_their_help(site: Path) -> None:
    from tools.website.command_pages import every_command

    commands = every_command()
    assert len(commands) > 60
    for command in commands:
        page = site / "reference/commands" / f"{command.split()[0]}.html"
        if " " in command:
            assert command.replace(" ", "-") in content_of(page).anchors, command
    text = (site / "reference/commands/topics.html").read_text(encoding="utf-8")
    assert "Ignore topics that already exist." in text


@pytest.mark.slow
def test_the_api_has_anchors(site: Path) -> None:
    """Every public name of every public module, and every method of the clients and the brokers for tests."""
    for name in ("barnabas", "barnabas.aio", "barnabas.errors", "barnabas.spark", "barnabas.testing"):
        module = importlib.import_module(name)
        anchors = content_of(site / f"reference/api/{name.rpartition('.')[2]}.html").anchors
        public = set(module.__all__) - {"__version__"}
        assert public - anchors == set(), name
        if name in ("barnabas.errors", "barnabas.spark"):
            continue
        for each in public:
            kind = getattr(module, each)
            if isinstance(kind, type) and not issubclass(kind, enum.Enum | BaseException | tuple):
                methods = {method for method in dir(kind) if inspect.isroutine(getattr(kind, method))}
                named = {f"{each}.{method}" for method in methods if not method.startswith("_")}
                assert named - anchors == set(), name
    assert {"register", "DatabaseSink", "MirrorSink", "decode"} <= content_of(
        site / "reference/api/spark.html"
    ).anchors
    assert "barnabas_broker" in content_of(site / "reference/api/testing.html").anchors
    for page in (site / "reference/api").glob("*.html"):
        # What compiled modules call integers of fixed size is no type for users.
        assert not re.search(r"\bi(?:32|64)\b", page.read_text(encoding="utf-8")), page.name
    signature = (site / "reference/api/barnabas.html").read_text(encoding="utf-8")
    assert "compression_type" not in signature
    assert "on_delivery" in signature


@pytest.mark.slow
def test_links_lead_to_pages_and_anchors(site: Path) -> None:
    count = 0
    for name, content in pages_of(site):
        folder = (site / name).parent
        for link in content.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or name == "404.html":
                continue
            target = (folder / unquote(parts.path)).resolve() if parts.path else site / name
            assert target.is_file(), f"{name}: {link}"
            count += 1
            if parts.fragment and target.suffix == ".html":
                assert unquote(parts.fragment) in content_of(target).anchors | {"__skip"}, f"{name}: {link}"
    assert count > 1000


@pytest.mark.slow
def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    for name, content in pages_of(site):
        outside = {each for each in content.loaded if re.match(r"(?:https?:)?//", each.strip())}
        assert not outside, f"{name} loads {outside}"
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']*", text), sheet.name


@pytest.mark.slow
def test_the_search_index_has_settings_commands_and_methods(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"] for entry in index["docs"]}
    assert "reference/broker-settings.html#log.retention.ms" in places
    assert "reference/commands/topics.html#topics-create" in places
    assert "reference/api/barnabas.html#Producer.send_many" in places
    retention = next(entry for entry in index["docs"] if entry["location"].endswith("#log.retention.ms"))
    assert "log.retention.ms" in retention["title"]
    assert "How long records are kept." in retention["text"]
    metrics = next(entry for entry in index["docs"] if entry["location"] == "reference/metrics.html")
    assert "kafka_server_replicamanager_underreplicatedpartitions" in metrics["text"]


@pytest.mark.slow
def test_metrics_that_pages_name_exist(site: Path) -> None:
    from barnabas.pytest_plugin import TIMEOUT_OPTION

    known = content_of(site / "reference/metrics.html").anchors
    for name in ("README.md", "docs/CONSOLE.md", "docs/howto/monitor.md", "docs/howto/tune.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        named = set(re.findall(r"`((?:kafka|barnabas|process)_[a-z_]{8,})", text))
        assert named - {TIMEOUT_OPTION} <= known, name


@pytest.mark.slow
def test_the_search_finds_a_setting_without_a_network(site: Path) -> None:
    """In a browser, from files: it asks no host for anything."""
    import shutil

    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            page = browser.new_page()
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            page.goto((site / "index.html").as_uri())
            page.locator("input.md-search__input").fill("log.retention.ms")
            found = page.locator(".md-search-result__link").first
            found.wait_for(timeout=60_000)
            link = page.locator('.md-search-result__link[href*="broker-settings.html"]').first
            link.wait_for(timeout=60_000, state="attached")
        finally:
            browser.close()
    assert asked
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
