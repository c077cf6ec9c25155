"""What users do on pages, for any cluster: tests do it on Barnabas and on Apache Kafka."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.client.producer.producer import Producer
from tests.console.running import RunningConsole

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCRIPT: Final = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
CONTROL: Final = re.compile(
    r'\b(heading|button|textbox|searchbox|spinbutton|combobox|checkbox|columnheader|navigation|search|region) "[^"\n]*"'
)
CHANGING: Final = re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])|[0-9]+")
TOPIC: Final = "from-the-page"
# More than a list of records shows of a value.
LONG_BYTES: Final = 40_000


def go(page: Page, console: RunningConsole, path: str) -> None:
    page.goto(f"{console.address}/#{path}")


def look_at_pages(
    page: Page, console: RunningConsole, pages: Mapping[str, str], content: Mapping[str, str], width: int
) -> dict[str, list[str]]:
    """Pages, by path, have their heading and a part of their content, fit into the window, and name their controls.

    Returns what a screen reader finds on each: its headings, regions, columns and controls.
    """
    heard = {}
    for path, heading in pages.items():
        go(page, console, path)
        page.get_by_role("heading", level=1, name=heading).wait_for()
        page.get_by_text(content[path]).first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (
            f"{path} is wider than the window"
        )
        assert unnamed(page) == [], path
        snapshot = page.locator("body").aria_snapshot()
        assert "navigation" in snapshot
        assert f'heading "{heading}' in snapshot
        # Ids and numbers differ from run to run.
        lines = {CHANGING.sub("N", found[0]) for found in CONTROL.finditer(snapshot)}
        heard[path] = sorted(each for each in lines if not each.startswith('region "N'))
    return heard


def unnamed(page: Page) -> list[str]:
    """Controls without a name for a screen reader."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("a, button, input, select, textarea, progress, [tabindex='0']")]
        .filter((each) => each.checkVisibility())
        .filter((each) => !(each.textContent.trim() || each.getAttribute("aria-label") || each.labels?.length))
        .map((each) => each.outerHTML.slice(0, 100))"""
    )
    return found


def use_topic(page: Page, console: RunningConsole) -> None:
    """Creates a topic, changes it, uses its records, and deletes it."""
    go(page, console, "/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill(TOPIC)
    page.get_by_label("Partitions (empty").fill("2")
    page.get_by_label("Settings, one a line").fill("retention.ms=60000")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("row", name=TOPIC).get_by_text("1 min").wait_for()
    page.get_by_role("link", name=TOPIC, exact=True).click()
    page.get_by_role("button", name="Add partitions").click()
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("row").nth(3).wait_for()
    _change_settings(page)
    _use_records(page)
    _tail(page, console)

    go(page, console, f"/topics/{TOPIC}")
    page.get_by_role("button", name="Delete topic").click()
    page.get_by_label(f"Type {TOPIC} to confirm").fill("something else")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_text(f"This is not {TOPIC}.").wait_for()
    page.get_by_label(f"Type {TOPIC} to confirm").fill(TOPIC)
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("heading", level=1, name="Topics").wait_for()
    page.get_by_label("Find a topic").fill("from-the")
    page.get_by_text("No topic has from-the in its name.").wait_for()


def _change_settings(page: Page) -> None:
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Change retention.ms", exact=True).click()
    page.get_by_label("New value").fill("nonsense")
    page.get_by_role("button", name="Change", exact=True).last.click()
    page.get_by_role("dialog").get_by_text("nonsense").first.wait_for()
    page.get_by_label("New value").fill("120000")
    page.get_by_role("button", name="Change", exact=True).last.click()
    page.get_by_text("120000", exact=True).wait_for()
    page.get_by_role("button", name="Reset retention.ms", exact=True).click()
    page.get_by_text("retention.ms changes from 120000 to its default").wait_for()
    page.get_by_role("button", name="Reset", exact=True).last.click()
    page.get_by_text("120000", exact=True).wait_for(state="detached")


def _use_records(page: Page) -> None:
    page.get_by_role("link", name="Messages").click()
    page.get_by_text("0 records.").wait_for()
    page.get_by_role("button", name="Produce").click()
    page.get_by_label("no key").uncheck()
    page.get_by_label("Partition (empty").fill("0")
    page.get_by_label("Key", exact=True).fill(SCRIPT)
    value = {"html": SCRIPT, "long": "x" * LONG_BYTES, "last": 1}
    page.get_by_label("Value", exact=True).fill(json.dumps(value))
    page.get_by_label("Headers, one a line").fill(f"x: {SCRIPT}")
    page.get_by_role("button", name="Send", exact=True).click()
    page.get_by_text("Sent to partition").wait_for()
    page.get_by_role("button", name="Show records").click()
    page.get_by_role("button", name="Details of").click()
    page.get_by_label("Key", exact=True).get_by_text("<script>window.hacked=1</script>").wait_for()
    page.get_by_role("button", name="Load the whole record").click()
    page.get_by_label("Value", exact=True).get_by_text('"last": 1').wait_for()
    page.get_by_role("button", name="Send again").click()
    page.get_by_role("button", name="Send", exact=True).click()
    page.get_by_text("offset 1.").wait_for()
    page.get_by_role("button", name="Show records").click()
    page.get_by_text("2 records.").wait_for()
    for link, suffix in (("Download JSON lines", "jsonl"), ("Download CSV", "csv")):
        with page.expect_download() as download:
            page.get_by_role("link", name=link).click()
        assert download.value.suggested_filename == f"{TOPIC}.{suffix}"
        text = Path(download.value.path()).read_text(encoding="utf-8")
        assert text.count("x" * LONG_BYTES) == 2


def _tail(page: Page, console: RunningConsole) -> None:
    go(page, console, f"/topics/{TOPIC}/messages?from=tail")
    page.get_by_text("Live: 0 records seen").wait_for()

    def produce() -> None:
        with Producer(bootstrap_servers=console.get("/api/session")["bootstrap"]) as producer:
            producer.send_many(TOPIC, [b"event-%d" % number for number in range(1_000)]).result(60)

    thread = threading.Thread(target=produce)
    thread.start()
    page.get_by_text("Live: 1,000 records seen").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped.").wait_for()
    thread.join()


def change_broker_settings(page: Page, console: RunningConsole) -> None:
    go(page, console, "/cluster")
    page.get_by_label("Broker", exact=True).select_option(index=1)
    page.get_by_label("Find a setting").fill("message.max.bytes")
    page.get_by_role("button", name="Change message.max.bytes", exact=True).click()
    page.get_by_label("New value").fill("1234567")
    page.get_by_role("button", name="Change", exact=True).last.click()
    page.get_by_role("dialog").wait_for(state="detached")
    page.get_by_role("cell", name="1234567", exact=True).wait_for()
    page.get_by_role("button", name="Reset message.max.bytes", exact=True).click()
    page.get_by_role("button", name="Reset", exact=True).last.click()
    page.get_by_role("cell", name="1234567", exact=True).wait_for(state="detached")


def delete_group(page: Page, console: RunningConsole, group: str) -> None:
    go(page, console, f"/groups/{group}")
    page.get_by_role("button", name="Delete group").click()
    page.get_by_label(f"Type {group} to confirm").fill(group)
    page.get_by_role("button", name="Delete", exact=True).last.click()
    page.get_by_role("heading", level=1, name="Consumer groups").wait_for()
    page.get_by_label("Find a group").fill(group)
    page.get_by_text(f"No group has {group} in its name.").wait_for()


def fence(page: Page, console: RunningConsole, transactional_id: str) -> None:
    go(page, console, "/transactions")
    row = page.get_by_role("row", name=transactional_id)
    row.get_by_text("Ongoing").wait_for()
    page.get_by_role("button", name=f"Fence {transactional_id}").click()
    page.get_by_label(f"Type {transactional_id} to confirm").fill(transactional_id)
    page.get_by_role("button", name="Fence", exact=True).last.click()
    page.get_by_role("dialog").wait_for(state="detached")
    row.get_by_text("Ongoing").wait_for(state="detached")
