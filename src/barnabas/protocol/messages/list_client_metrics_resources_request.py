"""ListClientMetricsResourcesRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/ListClientMetricsResourcesRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class ListClientMetricsResourcesRequest:
    __slots__ = ("unknown_tagged_fields",)
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
