"""An outage: none of the brokers that a client knows can be reached, so that its calls wait. The log says so."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from barnabas.errors import KafkaError

log = logging.getLogger(__name__)

REMIND_S: Final = 60.0
NAMED_MAX: Final = 5


class Outage:
    """All connections of one client share it, so that an outage is logged once."""

    def __init__(self) -> None:
        self._is_on = False
        self._remind_s = 0.0

    def begin(self, tried: Iterable[object], reason: BaseException, now_s: float) -> None:
        """Warns when the outage begins, and once a minute while it lasts."""
        if self._is_on and now_s < self._remind_s:
            return
        self._is_on = True
        self._remind_s = now_s + REMIND_S
        is_passing = isinstance(reason, KafkaError) and reason.retriable
        log.warning(
            "No broker can be reached (tried %s): %s%s",
            addresses(tried),
            reason,
            "; trying again" if is_passing else "",
        )

    def end(self, reached: object) -> None:
        if self._is_on:
            self._is_on = False
            log.info("The broker at %s can be reached again", reached)


def addresses(nodes: Iterable[object]) -> str:
    """Each address once, and the number of those that are too many to be named."""
    named = list(dict.fromkeys(map(str, nodes)))
    rest = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
    return ", ".join(named[:NAMED_MAX]) + rest
