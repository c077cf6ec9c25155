"""InitializeShareGroupStateResponse: versions 0, flexible 0+.

Written by `make messages` from schemas/InitializeShareGroupStateResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class PartitionResult:
    __slots__ = (
        "partition",
        "error_code",
        "error_message",
        "unknown_tagged_fields",
    )
    partition: int
    error_code: int
    error_message: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class InitializeStateResult:
    __slots__ = (
        "topic_id",
        "partitions",
        "unknown_tagged_fields",
    )
    topic_id: Uuid
    partitions: list[PartitionResult]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_id: Uuid = ZERO_UUID,
        partitions: list[PartitionResult] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class InitializeShareGroupStateResponse:
    __slots__ = (
        "results",
        "unknown_tagged_fields",
    )
    results: list[InitializeStateResult]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        results: list[InitializeStateResult] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.results = [] if results is EMPTY else results
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
