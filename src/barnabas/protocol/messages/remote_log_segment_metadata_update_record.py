"""RemoteLogSegmentMetadataUpdateRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/RemoteLogSegmentMetadataUpdateRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import ZERO_UUID, TaggedFields, Uuid, equal, show


class TopicIdPartitionEntry:
    __slots__ = (
        "name",
        "id",
        "partition",
        "unknown_tagged_fields",
    )
    name: str
    id: Uuid
    partition: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        id: Uuid = ZERO_UUID,
        partition: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.id = id
        self.partition = partition
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class RemoteLogSegmentIdEntry:
    __slots__ = (
        "topic_id_partition",
        "id",
        "unknown_tagged_fields",
    )
    topic_id_partition: TopicIdPartitionEntry
    id: Uuid
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_id_partition: TopicIdPartitionEntry | None = None,
        id: Uuid = ZERO_UUID,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_id_partition = (
            TopicIdPartitionEntry() if topic_id_partition is None else topic_id_partition
        )
        self.id = id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class RemoteLogSegmentMetadataUpdateRecord:
    __slots__ = (
        "remote_log_segment_id",
        "broker_id",
        "event_timestamp_ms",
        "custom_metadata",
        "remote_log_segment_state",
        "unknown_tagged_fields",
    )
    remote_log_segment_id: RemoteLogSegmentIdEntry
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: bytes | None
    remote_log_segment_state: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        remote_log_segment_id: RemoteLogSegmentIdEntry | None = None,
        broker_id: int = 0,
        event_timestamp_ms: int = 0,
        custom_metadata: bytes | None = None,
        remote_log_segment_state: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.remote_log_segment_id = (
            RemoteLogSegmentIdEntry() if remote_log_segment_id is None else remote_log_segment_id
        )
        self.broker_id = broker_id
        self.event_timestamp_ms = event_timestamp_ms
        self.custom_metadata = custom_metadata
        self.remote_log_segment_state = remote_log_segment_state
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
