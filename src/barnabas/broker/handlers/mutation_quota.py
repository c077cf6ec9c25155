"""The quota on changes of the cluster: partitions that are made or deleted in a second, by user and client id.

Clients that know the error are refused what they ask for while they are in debt, topic by topic, and told when to come
back; a change that begins without debt is made, however large it is. Older clients have their way and are then not read
from until the debt is paid. A topic that is created because a client uses it counts for that client, and is not created
while the client is in debt; the client is not delayed.
"""

from __future__ import annotations

from barnabas.broker.broker import Broker
from barnabas.broker.quotas.quotas import CONTROLLER_MUTATION_RATE
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import ThrottlingQuotaExceeded


class MutationQuota:
    """For one request. From version `strict_since` on its API knows THROTTLING_QUOTA_EXCEEDED.

    None is for changes in the background: they are refused too, and nobody is delayed.
    """

    __slots__ = ("_broker", "_delays", "_exchange", "_is_strict")

    def __init__(self, broker: Broker, exchange: AnyExchange, *, strict_since: int | None) -> None:
        self._broker = broker
        self._exchange = exchange
        self._is_strict = strict_since is None or exchange.version >= strict_since
        self._delays = strict_since is not None

    def charge(self, partitions: int) -> None:
        """Counts the partitions of a change that is about to be made, or refuses it."""
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
