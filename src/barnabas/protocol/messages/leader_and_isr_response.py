"""LeaderAndIsrResponse: versions 0-7, flexible 4+.

Written by `make messages` from schemas/LeaderAndIsrResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class LeaderAndIsrPartitionError:
    __slots__ = (
        "topic_name",
        "partition_index",
        "error_code",
        "unknown_tagged_fields",
    )
    topic_name: str
    partition_index: int
    error_code: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_index: int = 0,
        error_code: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index
        self.error_code = error_code
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class LeaderAndIsrTopicError:
    __slots__ = (
        "topic_id",
        "partition_errors",
        "unknown_tagged_fields",
    )
    topic_id: Uuid
    partition_errors: list[LeaderAndIsrPartitionError]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_id: Uuid = ZERO_UUID,
        partition_errors: list[LeaderAndIsrPartitionError] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_id = topic_id
        self.partition_errors = [] if partition_errors is EMPTY else partition_errors
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class LeaderAndIsrResponse:
    __slots__ = (
        "error_code",
        "partition_errors",
        "topics",
        "unknown_tagged_fields",
    )
    error_code: int
    partition_errors: list[LeaderAndIsrPartitionError]
    topics: list[LeaderAndIsrTopicError]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        error_code: int = 0,
        partition_errors: list[LeaderAndIsrPartitionError] = EMPTY,
        topics: list[LeaderAndIsrTopicError] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.error_code = error_code
        self.partition_errors = [] if partition_errors is EMPTY else partition_errors
        self.topics = [] if topics is EMPTY else topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
