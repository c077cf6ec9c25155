"""All pages that are generated from the code."""

from __future__ import annotations

from tools.website import api_pages, command_pages, metrics_page, settings_pages


def names() -> list[str]:
    """Their paths in the site, without the work of generating them."""
    return [
        settings_pages.BROKER,
        settings_pages.TOPIC,
        settings_pages.CLIENT,
        settings_pages.IDLE,
        *command_pages.names(),
        *map(api_pages.page_of, api_pages.MODULES),
        api_pages.ERRORS,
        metrics_page.METRICS,
    ]


def pages() -> dict[str, str]:
    """Markdown by the path of the page in the site."""
    found = {
        **settings_pages.pages(),
        **command_pages.pages(),
        **api_pages.pages(),
        **metrics_page.pages(),
    }
    assert sorted(found) == sorted(names())
    return found
