"""StopReplicaRequest: versions 0-4, flexible 2+.

Written by `make messages` from schemas/StopReplicaRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class StopReplicaPartitionV0:
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


class StopReplicaTopicV1:
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


class StopReplicaPartitionState:
    __slots__ = (
        "partition_index",
        "leader_epoch",
        "delete_partition",
        "unknown_tagged_fields",
    )
    partition_index: int
    leader_epoch: int
    delete_partition: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition_index: int = 0,
        leader_epoch: int = -1,
        delete_partition: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition_index = partition_index
        self.leader_epoch = leader_epoch
        self.delete_partition = delete_partition
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class StopReplicaTopicState:
    __slots__ = (
        "topic_name",
        "partition_states",
        "unknown_tagged_fields",
    )
    topic_name: str
    partition_states: list[StopReplicaPartitionState]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_states: list[StopReplicaPartitionState] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_name = topic_name
        self.partition_states = [] if partition_states is EMPTY else partition_states
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class StopReplicaRequest:
    __slots__ = (
        "controller_id",
        "is_kraft_controller",
        "controller_epoch",
        "broker_epoch",
        "delete_partitions",
        "ungrouped_partitions",
        "topics",
        "topic_states",
        "unknown_tagged_fields",
    )
    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int
    delete_partitions: bool
    ungrouped_partitions: list[StopReplicaPartitionV0]
    topics: list[StopReplicaTopicV1]
    topic_states: list[StopReplicaTopicState]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        controller_id: int = 0,
        is_kraft_controller: bool = False,
        controller_epoch: int = 0,
        broker_epoch: int = -1,
        delete_partitions: bool = False,
        ungrouped_partitions: list[StopReplicaPartitionV0] = EMPTY,
        topics: list[StopReplicaTopicV1] = EMPTY,
        topic_states: list[StopReplicaTopicState] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.controller_id = controller_id
        self.is_kraft_controller = is_kraft_controller
        self.controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch
        self.delete_partitions = delete_partitions
        self.ungrouped_partitions = [] if ungrouped_partitions is EMPTY else ungrouped_partitions
        self.topics = [] if topics is EMPTY else topics
        self.topic_states = [] if topic_states is EMPTY else topic_states
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
