"""ConsumerGroupTargetAssignmentMetadataValue: versions 0, flexible 0+.

Written by `make messages` from schemas/ConsumerGroupTargetAssignmentMetadataValue.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class ConsumerGroupTargetAssignmentMetadataValue:
    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp",
        "unknown_tagged_fields",
    )
    assignment_epoch: int
    assignment_timestamp: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        assignment_epoch: int = 0,
        assignment_timestamp: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.assignment_epoch = assignment_epoch
        self.assignment_timestamp = assignment_timestamp
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
