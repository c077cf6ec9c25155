"""DescribeDelegationTokenRequest: versions 0-3, flexible 2+.

Written by `make messages` from schemas/DescribeDelegationTokenRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class DescribeDelegationTokenOwner:
    __slots__ = (
        "principal_type",
        "principal_name",
        "unknown_tagged_fields",
    )
    principal_type: str
    principal_name: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        principal_type: str = "",
        principal_name: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class DescribeDelegationTokenRequest:
    __slots__ = (
        "owners",
        "unknown_tagged_fields",
    )
    owners: list[DescribeDelegationTokenOwner] | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        owners: list[DescribeDelegationTokenOwner] | None = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.owners = [] if owners is EMPTY else owners
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
