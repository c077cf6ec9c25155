"""ProduceResponse: versions 0-13, flexible 9+.

Written by `make messages` from schemas/ProduceResponse.json.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


@mypyc_attr(acyclic=True)
class BatchIndexAndErrorMessage:
    __slots__ = (
        "batch_index",
        "batch_index_error_message",
        "unknown_tagged_fields",
    )
    batch_index: int
    batch_index_error_message: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        batch_index: int = 0,
        batch_index_error_message: str | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.batch_index = batch_index
        self.batch_index_error_message = batch_index_error_message
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class LeaderIdAndEpoch:
    __slots__ = (
        "leader_id",
        "leader_epoch",
        "unknown_tagged_fields",
    )
    leader_id: int
    leader_epoch: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        leader_id: int = -1,
        leader_epoch: int = -1,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class PartitionProduceResponse:
    __slots__ = (
        "index",
        "error_code",
        "base_offset",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
        "error_message",
        "current_leader",
        "unknown_tagged_fields",
    )
    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: list[BatchIndexAndErrorMessage]
    error_message: str | None
    current_leader: LeaderIdAndEpoch
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        index: int = 0,
        error_code: int = 0,
        base_offset: int = 0,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: list[BatchIndexAndErrorMessage] = EMPTY,
        error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors = [] if record_errors is EMPTY else record_errors
        self.error_message = error_message
        self.current_leader = LeaderIdAndEpoch() if current_leader is None else current_leader
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class TopicProduceResponse:
    __slots__ = (
        "name",
        "topic_id",
        "partition_responses",
        "unknown_tagged_fields",
    )
    name: str
    topic_id: Uuid
    partition_responses: list[PartitionProduceResponse]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: Uuid = ZERO_UUID,
        partition_responses: list[PartitionProduceResponse] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_responses = [] if partition_responses is EMPTY else partition_responses
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class NodeEndpoint:
    __slots__ = (
        "node_id",
        "host",
        "port",
        "rack",
        "unknown_tagged_fields",
    )
    node_id: int
    host: str
    port: int
    rack: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        rack: str | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class ProduceResponse:
    __slots__ = (
        "responses",
        "throttle_time_ms",
        "node_endpoints",
        "unknown_tagged_fields",
    )
    responses: list[TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: list[NodeEndpoint]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        responses: list[TopicProduceResponse] = EMPTY,
        throttle_time_ms: int = 0,
        node_endpoints: list[NodeEndpoint] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.responses = [] if responses is EMPTY else responses
        self.throttle_time_ms = throttle_time_ms
        self.node_endpoints = [] if node_endpoints is EMPTY else node_endpoints
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
