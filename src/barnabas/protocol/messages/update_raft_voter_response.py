"""UpdateRaftVoterResponse: versions 0, flexible 0+.

Written by `make messages` from schemas/UpdateRaftVoterResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class CurrentLeader:
    __slots__ = (
        "leader_id",
        "leader_epoch",
        "host",
        "port",
        "unknown_tagged_fields",
    )
    leader_id: int
    leader_epoch: int
    host: str
    port: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        leader_id: int = -1,
        leader_epoch: int = -1,
        host: str = "",
        port: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.host = host
        self.port = port
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class UpdateRaftVoterResponse:
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "current_leader",
        "unknown_tagged_fields",
    )
    throttle_time_ms: int
    error_code: int
    current_leader: CurrentLeader
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        current_leader: CurrentLeader | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.current_leader = CurrentLeader() if current_leader is None else current_leader
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
