"""ReadShareGroupStateResponse: versions 0, flexible 0+.

Written by `make messages` from schemas/ReadShareGroupStateResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class StateBatch:
    __slots__ = (
        "first_offset",
        "last_offset",
        "delivery_state",
        "delivery_count",
        "unknown_tagged_fields",
    )
    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_state: int = 0,
        delivery_count: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_state = delivery_state
        self.delivery_count = delivery_count
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class PartitionResult:
    __slots__ = (
        "partition",
        "error_code",
        "error_message",
        "state_epoch",
        "start_offset",
        "state_batches",
        "unknown_tagged_fields",
    )
    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int
    start_offset: int
    state_batches: list[StateBatch]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        state_epoch: int = 0,
        start_offset: int = 0,
        state_batches: list[StateBatch] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.state_epoch = state_epoch
        self.start_offset = start_offset
        self.state_batches = [] if state_batches is EMPTY else state_batches
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ReadStateResult:
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


class ReadShareGroupStateResponse:
    __slots__ = (
        "results",
        "unknown_tagged_fields",
    )
    results: list[ReadStateResult]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        results: list[ReadStateResult] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.results = [] if results is EMPTY else results
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
