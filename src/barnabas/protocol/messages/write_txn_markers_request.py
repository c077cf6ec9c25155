"""WriteTxnMarkersRequest: versions 0-2, flexible 1+.

Written by `make messages` from schemas/WriteTxnMarkersRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class WritableTxnMarkerTopic:
    __slots__ = (
        "name",
        "partition_indexes",
        "unknown_tagged_fields",
    )
    name: str
    partition_indexes: list[int]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        partition_indexes: list[int] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class WritableTxnMarker:
    __slots__ = (
        "producer_id",
        "producer_epoch",
        "transaction_result",
        "topics",
        "coordinator_epoch",
        "transaction_version",
        "unknown_tagged_fields",
    )
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: int
    transaction_version: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        producer_id: int = 0,
        producer_epoch: int = 0,
        transaction_result: bool = False,
        topics: list[WritableTxnMarkerTopic] = EMPTY,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.transaction_result = transaction_result
        self.topics = [] if topics is EMPTY else topics
        self.coordinator_epoch = coordinator_epoch
        self.transaction_version = transaction_version
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class WriteTxnMarkersRequest:
    __slots__ = (
        "markers",
        "unknown_tagged_fields",
    )
    markers: list[WritableTxnMarker]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        markers: list[WritableTxnMarker] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.markers = [] if markers is EMPTY else markers
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
