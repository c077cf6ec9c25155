"""A token bucket, for quotas on work that comes in bursts.

It refills continuously at the rate of the quota, and holds as much as all windows of a rate allow. A client that takes
more than the bucket has waits until the debt is paid, and no longer: a rate would count the burst in all its windows.
"""

from __future__ import annotations

import math
from typing import Final

from barnabas.broker.quotas.rates import WINDOW_MS, WINDOWS

BURST_S: Final = WINDOWS * WINDOW_MS / 1_000


class TokenBucket:
    __slots__ = ("_refilled_ms", "_tokens")

    def __init__(self, now_ms: int) -> None:
        # Infinite, so that the bucket starts full.
        self._tokens = math.inf
        self._refilled_ms = now_ms

    def take(self, amount: float, rate: float, now_ms: int) -> None:
        """Takes the amount, even if that leaves a debt."""
        self._refill(rate, now_ms)
        self._tokens -= amount

    def wait_ms(self, rate: float, now_ms: int) -> int:
        """The time until the debt is paid."""
        self._refill(rate, now_ms)
        return round(-self._tokens / rate * 1_000) if self._tokens < 0 else 0

    def _refill(self, rate: float, now_ms: int) -> None:
        elapsed_s = max(now_ms - self._refilled_ms, 0) / 1_000
        self._tokens = min(self._tokens + elapsed_s * rate, rate * BURST_S)
        self._refilled_ms = now_ms
