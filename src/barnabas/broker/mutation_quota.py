"""The quota on changes of the cluster: partitions that are made or deleted in a second, by user and client id.

Clients that know the error are refused while the quota is exceeded, and told when to come back. Older ones have their
way once more and are then not read from for so long.
"""

from __future__ import annotations

from barnabas.broker.broker import Broker
from barnabas.broker.exchange import Exchange
from barnabas.broker.quotas import CONTROLLER_MUTATION_RATE
from barnabas.errors import ThrottlingQuotaExceeded


class MutationQuota:
    """For one request; from version `strict_since` on its API knows THROTTLING_QUOTA_EXCEEDED."""

    __slots__ = ("_broker", "_exchange", "_is_strict")

    def __init__(self, broker: Broker, exchange: Exchange, *, strict_since: int) -> None:
        self._broker = broker
        self._exchange = exchange
        self._is_strict = exchange.version >= strict_since

    def check(self) -> None:
        wait_ms = self._record(0)
        if wait_ms and self._is_strict:
            self._exchange.throttle(wait_ms)
            raise ThrottlingQuotaExceeded("The throttling quota has been exceeded.")

    def count(self, partitions: int) -> None:
        wait_ms = self._record(partitions)
        if not self._is_strict:
            self._exchange.throttle(wait_ms)

    def _record(self, partitions: int) -> int:
        exchange, broker = self._exchange, self._broker
        return broker.quotas.record(
            CONTROLLER_MUTATION_RATE, exchange.session.user, exchange.client_id, partitions, broker.now_ms
        )
