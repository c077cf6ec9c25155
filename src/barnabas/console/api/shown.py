"""Brokers of Apache Kafka confirm a change a moment before they show it; the page after a change has to show it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from barnabas.errors import KafkaError

log = logging.getLogger(__name__)

# How long a change is waited for, and how often it is looked for.
SHOWN_S_MAX: Final = 3.0
SHOWN_POLL_S: Final = 0.05


def wait_until_shown(is_shown: Callable[[], bool]) -> None:
    """Returns when a change that has been made can be seen, or after a bound: the change itself has succeeded."""
    deadline_s = time.monotonic() + SHOWN_S_MAX
    try:
        while not is_shown() and time.monotonic() < deadline_s:
            time.sleep(SHOWN_POLL_S)
    except (KafkaError, ExceptionGroup) as failure:
        # Who may change something may not always look at it.
        log.debug("A change cannot be seen: %s", failure)
