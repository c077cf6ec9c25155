"""ProduceRequest: versions 0-13, flexible 9+.

Written by `make messages` from schemas/ProduceRequest.json.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from barnabas.protocol.message import EMPTY, ZERO_UUID, Records, TaggedFields, Uuid, equal, show


@mypyc_attr(acyclic=True)
class PartitionProduceData:
    __slots__ = (
        "index",
        "records",
        "unknown_tagged_fields",
    )
    index: int
    records: Records | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        index: int = 0,
        records: Records | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.index = index
        self.records = records
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class TopicProduceData:
    __slots__ = (
        "name",
        "topic_id",
        "partition_data",
        "unknown_tagged_fields",
    )
    name: str
    topic_id: Uuid
    partition_data: list[PartitionProduceData]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: Uuid = ZERO_UUID,
        partition_data: list[PartitionProduceData] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_data = [] if partition_data is EMPTY else partition_data
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class ProduceRequest:
    __slots__ = (
        "transactional_id",
        "acks",
        "timeout_ms",
        "topic_data",
        "unknown_tagged_fields",
    )
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[TopicProduceData]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        acks: int = 0,
        timeout_ms: int = 0,
        topic_data: list[TopicProduceData] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic_data = [] if topic_data is EMPTY else topic_data
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
