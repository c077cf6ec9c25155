"""UpdateMetadataRequest: versions 0-8, flexible 6+.

Written by `make messages` from schemas/UpdateMetadataRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class UpdateMetadataPartitionState:
    __slots__ = (
        "topic_name",
        "partition_index",
        "controller_epoch",
        "leader",
        "leader_epoch",
        "isr",
        "zk_version",
        "replicas",
        "offline_replicas",
        "unknown_tagged_fields",
    )
    topic_name: str
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: list[int]
    zk_version: int
    replicas: list[int]
    offline_replicas: list[int]
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
        zk_version: int = 0,
        replicas: list[int] = EMPTY,
        offline_replicas: list[int] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index
        self.controller_epoch = controller_epoch
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.isr = [] if isr is EMPTY else isr
        self.zk_version = zk_version
        self.replicas = [] if replicas is EMPTY else replicas
        self.offline_replicas = [] if offline_replicas is EMPTY else offline_replicas
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class UpdateMetadataTopicState:
    __slots__ = (
        "topic_name",
        "topic_id",
        "partition_states",
        "unknown_tagged_fields",
    )
    topic_name: str
    topic_id: Uuid
    partition_states: list[UpdateMetadataPartitionState]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_name: str = "",
        topic_id: Uuid = ZERO_UUID,
        partition_states: list[UpdateMetadataPartitionState] = EMPTY,
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


class UpdateMetadataEndpoint:
    __slots__ = (
        "port",
        "host",
        "listener",
        "security_protocol",
        "unknown_tagged_fields",
    )
    port: int
    host: str
    listener: str
    security_protocol: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        port: int = 0,
        host: str = "",
        listener: str = "",
        security_protocol: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.port = port
        self.host = host
        self.listener = listener
        self.security_protocol = security_protocol
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class UpdateMetadataBroker:
    __slots__ = (
        "id",
        "v0_host",
        "v0_port",
        "endpoints",
        "rack",
        "unknown_tagged_fields",
    )
    id: int
    v0_host: str
    v0_port: int
    endpoints: list[UpdateMetadataEndpoint]
    rack: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        id: int = 0,
        v0_host: str = "",
        v0_port: int = 0,
        endpoints: list[UpdateMetadataEndpoint] = EMPTY,
        rack: str | None = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.id = id
        self.v0_host = v0_host
        self.v0_port = v0_port
        self.endpoints = [] if endpoints is EMPTY else endpoints
        self.rack = rack
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class UpdateMetadataRequest:
    __slots__ = (
        "controller_id",
        "is_kraft_controller",
        "type",
        "controller_epoch",
        "broker_epoch",
        "ungrouped_partition_states",
        "topic_states",
        "live_brokers",
        "unknown_tagged_fields",
    )
    controller_id: int
    is_kraft_controller: bool
    type: int
    controller_epoch: int
    broker_epoch: int
    ungrouped_partition_states: list[UpdateMetadataPartitionState]
    topic_states: list[UpdateMetadataTopicState]
    live_brokers: list[UpdateMetadataBroker]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        controller_id: int = 0,
        is_kraft_controller: bool = False,
        type: int = 0,
        controller_epoch: int = 0,
        broker_epoch: int = -1,
        ungrouped_partition_states: list[UpdateMetadataPartitionState] = EMPTY,
        topic_states: list[UpdateMetadataTopicState] = EMPTY,
        live_brokers: list[UpdateMetadataBroker] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.controller_id = controller_id
        self.is_kraft_controller = is_kraft_controller
        self.type = type
        self.controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch
        self.ungrouped_partition_states = (
            [] if ungrouped_partition_states is EMPTY else ungrouped_partition_states
        )
        self.topic_states = [] if topic_states is EMPTY else topic_states
        self.live_brokers = [] if live_brokers is EMPTY else live_brokers
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
