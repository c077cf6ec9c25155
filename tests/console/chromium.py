"""Debian's Chromium, driven by playwright. Tests skip, and say why, if one of them is missing."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request

WAIT_MS: Final = 60_000
ARGUMENTS: Final = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for path in map(shutil.which, names) if path is not None), None)


@contextlib.contextmanager
def running_chromium() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip("SKIPPED: tests of the console's pages need Chromium (Debian: apt-get install chromium)")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="tests of the console's pages need playwright"
    )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened_page(
    browser: Browser, *, width: int = 1280, height: int = 900
) -> Iterator[tuple[Page, list[str]]]:
    """A page, and the errors and foreign requests that it has caused."""
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    faults: list[str] = []

    def note_dialog(dialog: Dialog) -> None:
        faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def note_message(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text or "Uncaught" in message.text:
            faults.append(message.text)

    def note_request(request: Request) -> None:
        if "//127.0.0.1:" not in request.url:
            faults.append(f"request to {request.url}")

    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("dialog", note_dialog)
    page.on("console", note_message)
    page.on("request", note_request)
    try:
        yield page, faults
    finally:
        context.close()


def change_acls(page: Page) -> None:
    page.get_by_role("button", name="Create ACL").click()
    page.get_by_label("Principal, such as").fill("User:dave")
    page.get_by_label("Resource (* is all").fill("orders-of-dave")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("cell", name="TOPIC orders-of-dave").wait_for()
    page.get_by_role("button", name="Delete the ACL READ of User:dave on orders-of-dave").click()
    page.get_by_role("button", name="Delete", exact=True).last.click()
    page.get_by_role("cell", name="TOPIC orders-of-dave").wait_for(state="detached")
