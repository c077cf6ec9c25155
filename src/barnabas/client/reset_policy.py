"""auto.offset.reset: where reading begins without a valid offset."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# Timestamps with a special meaning in ListOffsets.
LATEST: Final = -1
EARLIEST: Final = -2

# A duration as ISO 8601 and Java's Duration have it: P1DT2H3M4.5S.
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_DURATION_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPolicy:
    """auto.offset.reset: where to begin without a valid offset. Neither field set is `none`."""

    timestamp: int | None = None
    duration_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> ResetPolicy | None:
        """None for a text that is no policy."""
        match text.lower():
            case "earliest":
                return cls(timestamp=EARLIEST)
            case "latest":
                return cls(timestamp=LATEST)
            case "none":
                return cls()
        kind, colon, duration = text.partition(":")
        found = _DURATION.fullmatch(duration)
        if kind.lower() != "by_duration" or not colon or found is None or duration[-1] in "PT":
            return None
        duration_ms = sum(float(found[unit] or 0) * ms for unit, ms in _DURATION_UNITS_MS.items())
        return cls(duration_ms=round(duration_ms))

    def timestamp_at(self, now_ms: int) -> int | None:
        """The timestamp for ListOffsets; None if the caller has to choose."""
        return self.timestamp if self.duration_ms is None else max(0, now_ms - self.duration_ms)
