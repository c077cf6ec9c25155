"""LeaderAndIsrRequest: versions 0-7, flexible 4+.

Written by `make messages` from schemas/LeaderAndIsrRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class LeaderAndIsrPartitionState:
    __slots__ = (
        "topic_name",
        "partition_index",
        "controller_epoch",
        "leader",
        "leader_epoch",
        "isr",
        "partition_epoch",
        "replicas",
        "adding_replicas",
        "removing_replicas",
        "is_new",
        "leader_recovery_state",
        "unknown_tagged_fields",
    )
    topic_name: str
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: list[int]
    partition_epoch: int
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    is_new: bool
    leader_recovery_state: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_index: int = 0,
        controller_epoch: int = 0,
        leader: int = 0,
        leader_epoch: int = 0,
        isr: list[int] = EMPTY,
        partition_epoch: int = 0,
        replicas: list[int] = EMPTY,
        adding_replicas: list[int] = EMPTY,
        removing_replicas: list[int] = EMPTY,
        is_new: bool = False,
        leader_recovery_state: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index
        self.controller_epoch = controller_epoch
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.isr = [] if isr is EMPTY else isr
        self.partition_epoch = partition_epoch
        self.replicas = [] if replicas is EMPTY else replicas
        self.adding_replicas = [] if adding_replicas is EMPTY else adding_replicas
        self.removing_replicas = [] if removing_replicas is EMPTY else removing_replicas
        self.is_new = is_new
        self.leader_recovery_state = leader_recovery_state
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class LeaderAndIsrTopicState:
    __slots__ = (
        "topic_name",
        "topic_id",
        "partition_states",
        "unknown_tagged_fields",
    )
    topic_name: str
    topic_id: Uuid
    partition_states: list[LeaderAndIsrPartitionState]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_name: str = "",
        topic_id: Uuid = ZERO_UUID,
        partition_states: list[LeaderAndIsrPartitionState] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.partition_states = [] if partition_states is EMPTY else partition_states
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class LeaderAndIsrLiveLeader:
    __slots__ = (
        "broker_id",
        "host_name",
        "port",
        "unknown_tagged_fields",
    )
    broker_id: int
    host_name: str
    port: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        broker_id: int = 0,
        host_name: str = "",
        port: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.broker_id = broker_id
        self.host_name = host_name
        self.port = port
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class LeaderAndIsrRequest:
    __slots__ = (
        "controller_id",
        "is_kraft_controller",
        "controller_epoch",
        "broker_epoch",
        "type",
        "ungrouped_partition_states",
        "topic_states",
        "live_leaders",
        "unknown_tagged_fields",
    )
    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int
    type: int
    ungrouped_partition_states: list[LeaderAndIsrPartitionState]
    topic_states: list[LeaderAndIsrTopicState]
    live_leaders: list[LeaderAndIsrLiveLeader]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        controller_id: int = 0,
        is_kraft_controller: bool = False,
        controller_epoch: int = 0,
        broker_epoch: int = -1,
        type: int = 0,
        ungrouped_partition_states: list[LeaderAndIsrPartitionState] = EMPTY,
        topic_states: list[LeaderAndIsrTopicState] = EMPTY,
        live_leaders: list[LeaderAndIsrLiveLeader] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.controller_id = controller_id
        self.is_kraft_controller = is_kraft_controller
        self.controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch
        self.type = type
        self.ungrouped_partition_states = (
            [] if ungrouped_partition_states is EMPTY else ungrouped_partition_states
        )
        self.topic_states = [] if topic_states is EMPTY else topic_states
        self.live_leaders = [] if live_leaders is EMPTY else live_leaders
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
