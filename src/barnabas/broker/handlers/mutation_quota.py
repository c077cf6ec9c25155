"""The quota on changes of the cluster: partitions created or deleted per second, by user and client id.

A client that is in debt and knows the error gets it for each topic, with the time to wait. A change that begins without
debt is made, however large it is. The changes of older clients are made, and their connections are then muted until the
debt is paid. A topic that is created automatically counts for the client that uses it. It is not created while the
client is in debt, and the client is not throttled.
"""

from __future__ import annotations

from barnabas.broker.broker import Broker
from barnabas.broker.quotas.quotas import CONTROLLER_MUTATION_RATE
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import ThrottlingQuotaExceeded


class MutationQuota:
    """For one request. From version `strict_since` on its API knows THROTTLING_QUOTA_EXCEEDED.

    None is for changes in the background: they are refused too, and no client is throttled.
    """

    __slots__ = ("_broker", "_delays", "_exchange", "_is_strict")

    def __init__(self, broker: Broker, exchange: AnyExchange, *, strict_since: int | None) -> None:
        self._broker = broker
        self._exchange = exchange
        self._is_strict = strict_since is None or exchange.version >= strict_since
        self._delays = strict_since is not None

    def charge(self, partitions: int) -> None:
        """Counts the partitions of a change before it is made, or refuses the change."""
        exchange = self._exchange
        now_ms = self._broker.now_ms
        found = self._broker.quotas.bucket(
            CONTROLLER_MUTATION_RATE, exchange.session.user, exchange.client_id, now_ms
        )
        if found is None:
            return
        bucket, rate = found
        wait_ms = bucket.wait_ms(rate, now_ms)
        if self._is_strict and wait_ms > 0:
            if self._delays:
                exchange.throttle(wait_ms)
            raise ThrottlingQuotaExceeded("The throttling quota has been exceeded.")
        bucket.take(partitions, rate, now_ms)
        if self._delays and not self._is_strict:
            exchange.throttle(bucket.wait_ms(rate, now_ms))
