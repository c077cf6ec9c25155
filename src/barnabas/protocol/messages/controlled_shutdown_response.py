"""ControlledShutdownResponse: versions 0-3, flexible 3+.

Written by `make messages` from schemas/ControlledShutdownResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class RemainingPartition:
    __slots__ = (
        "topic_name",
        "partition_index",
        "unknown_tagged_fields",
    )
    topic_name: str
    partition_index: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_index: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ControlledShutdownResponse:
    __slots__ = (
        "error_code",
        "remaining_partitions",
        "unknown_tagged_fields",
    )
    error_code: int
    remaining_partitions: list[RemainingPartition]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        error_code: int = 0,
        remaining_partitions: list[RemainingPartition] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.error_code = error_code
        self.remaining_partitions = [] if remaining_partitions is EMPTY else remaining_partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
