"""A broker's settings for transactions."""

from __future__ import annotations

from barnabas.value import Value


class TransactionSettings(Value, kw_only=True):
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000
