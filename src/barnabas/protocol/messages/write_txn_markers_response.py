"""WriteTxnMarkersResponse: versions 0-2, flexible 1+.

Written by `make messages` from schemas/WriteTxnMarkersResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class WritableTxnMarkerPartitionResult:
    __slots__ = (
        "partition_index",
        "error_code",
        "unknown_tagged_fields",
    )
    partition_index: int
    error_code: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class WritableTxnMarkerTopicResult:
    __slots__ = (
        "name",
        "partitions",
        "unknown_tagged_fields",
    )
    name: str
    partitions: list[WritableTxnMarkerPartitionResult]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[WritableTxnMarkerPartitionResult] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class WritableTxnMarkerResult:
    __slots__ = (
        "producer_id",
        "topics",
        "unknown_tagged_fields",
    )
    producer_id: int
    topics: list[WritableTxnMarkerTopicResult]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        producer_id: int = 0,
        topics: list[WritableTxnMarkerTopicResult] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.producer_id = producer_id
        self.topics = [] if topics is EMPTY else topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class WriteTxnMarkersResponse:
    __slots__ = (
        "markers",
        "unknown_tagged_fields",
    )
    markers: list[WritableTxnMarkerResult]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        markers: list[WritableTxnMarkerResult] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.markers = [] if markers is EMPTY else markers
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
