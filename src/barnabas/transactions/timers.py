"""The timers of a transaction coordinator."""

from __future__ import annotations

import enum
from typing import NamedTuple


class TimerKind(enum.Enum):
    ABORT_TIMED_OUT = "abort timed out"
    REMOVE_EXPIRED = "remove expired"
    # The timer that brings a single transaction to its end, if that did not happen at once.
    RETRY = "retry"


class TimerKey(NamedTuple):
    """There is at most one timer of a key: setting it again replaces it."""

    kind: TimerKind
    transactional_id: str = ""
