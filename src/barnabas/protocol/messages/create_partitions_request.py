"""CreatePartitionsRequest: versions 0-3, flexible 2+.

Written by `make messages` from schemas/CreatePartitionsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class CreatePartitionsAssignment:
    __slots__ = (
        "broker_ids",
        "unknown_tagged_fields",
    )
    broker_ids: list[int]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        broker_ids: list[int] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.broker_ids = [] if broker_ids is EMPTY else broker_ids
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class CreatePartitionsTopic:
    __slots__ = (
        "name",
        "count",
        "assignments",
        "unknown_tagged_fields",
    )
    name: str
    count: int
    assignments: list[CreatePartitionsAssignment] | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        count: int = 0,
        assignments: list[CreatePartitionsAssignment] | None = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.count = count
        self.assignments = [] if assignments is EMPTY else assignments
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class CreatePartitionsRequest:
    __slots__ = (
        "topics",
        "timeout_ms",
        "validate_only",
        "unknown_tagged_fields",
    )
    topics: list[CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topics: list[CreatePartitionsTopic] = EMPTY,
        timeout_ms: int = 0,
        validate_only: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
