"""ExpireDelegationTokenRequest: versions 0-2, flexible 2+.

Written by `make messages` from schemas/ExpireDelegationTokenRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class ExpireDelegationTokenRequest:
    __slots__ = (
        "hmac",
        "expiry_time_period_ms",
        "unknown_tagged_fields",
    )
    hmac: bytes
    expiry_time_period_ms: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        hmac: bytes = b"",
        expiry_time_period_ms: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.hmac = hmac
        self.expiry_time_period_ms = expiry_time_period_ms
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
