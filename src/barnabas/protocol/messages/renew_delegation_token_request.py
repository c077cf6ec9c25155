"""RenewDelegationTokenRequest: versions 0-2, flexible 2+.

Written by `make messages` from schemas/RenewDelegationTokenRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class RenewDelegationTokenRequest:
    __slots__ = (
        "hmac",
        "renew_period_ms",
        "unknown_tagged_fields",
    )
    hmac: bytes
    renew_period_ms: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        hmac: bytes = b"",
        renew_period_ms: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.hmac = hmac
        self.renew_period_ms = renew_period_ms
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
