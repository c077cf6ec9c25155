"""How many clients of a listener have authenticated, with the names of Kafka's metrics.

As in Kafka, a listener with TLS alone counts its handshakes, and a listener of PLAINTEXT counts nothing. A client that
leaves, or is too slow, has not failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from barnabas.metrics.registry import Registry

_PREFIX: Final = "kafka_server_socketservermetrics_"
_HELP: Final = {
    "successful_authentication_total": "Clients that have authenticated, by TLS or SASL.",
    "successful_authentication_no_reauth_total": "Those of them that cannot authenticate again.",
    "failed_authentication_total": "Clients that have failed to authenticate.",
    "successful_reauthentication_total": "Clients that have authenticated again.",
    "failed_reauthentication_total": "Clients that have failed to authenticate again.",
    "expired_connections_killed_count": "Connections ended at a request after the end of the session.",
}


class AuthenticationCounts:
    __slots__ = (*_HELP, "listener")

    def __init__(self, listener: str) -> None:
        self.listener = listener
        self.successful_authentication_total = 0
        self.successful_authentication_no_reauth_total = 0
        self.failed_authentication_total = 0
        self.successful_reauthentication_total = 0
        self.failed_reauthentication_total = 0
        self.expired_connections_killed_count = 0

    def succeed(self, *, is_again: bool, can_again: bool) -> None:
        if is_again:
            self.successful_reauthentication_total += 1
            return
        self.successful_authentication_total += 1
        if not can_again:
            self.successful_authentication_no_reauth_total += 1

    def fail(self, *, is_again: bool) -> None:
        if is_again:
            self.failed_reauthentication_total += 1
        else:
            self.failed_authentication_total += 1


def register_authentication(metrics: Registry, counts: Iterable[AuthenticationCounts]) -> None:
    all_counts = list(counts)
    for name, help_text in _HELP.items():
        metrics.total(_PREFIX + name, help_text, partial(_readings, all_counts, name))


def _readings(all_counts: list[AuthenticationCounts], name: str) -> Iterator[tuple[Mapping[str, str], float]]:
    for counts in all_counts:
        yield {"listener": counts.listener}, getattr(counts, name)
