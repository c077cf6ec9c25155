"""Times and durations as people write them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import click

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
# A number of milliseconds since 1970, and not a year: 13 digits reach from 2001 to 2286.
_MILLISECONDS: Final = re.compile(r"\d{9,15}")


def parse_time_ms(text: str, option: str) -> int:
    """2026-01-31, 2026-01-31T12:00, optionally with Z or +01:00, else in local time; or ms since 1970."""
    text = text.strip()
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        parsed = datetime.fromisoformat(text)
        return int(parsed.astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{text!r} is not a time: write 2026-01-31T12:00:00, with Z or +01:00 if it is not local, or ms since 1970",
            param_hint=option,
        ) from None


def parse_duration_ms(text: str, option: str) -> int:
    """30s, 15m, 2h, 7d; 1h30m too."""
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        raise click.BadParameter(
            f"{text!r} is not a duration: write 30s, 15m, 2h, 7d or 1h30m", param_hint=option
        )
    return int(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))
