"""QuorumStateData: versions 0-1, flexible 0+.

Written by `make messages` from schemas/QuorumStateData.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class Voter:
    __slots__ = (
        "voter_id",
        "unknown_tagged_fields",
    )
    voter_id: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        voter_id: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.voter_id = voter_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class QuorumStateData:
    __slots__ = (
        "cluster_id",
        "leader_id",
        "leader_epoch",
        "voted_id",
        "voted_directory_id",
        "applied_offset",
        "current_voters",
        "unknown_tagged_fields",
    )
    cluster_id: str
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: Uuid
    applied_offset: int
    current_voters: list[Voter] | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        cluster_id: str = "",
        leader_id: int = -1,
        leader_epoch: int = -1,
        voted_id: int = -1,
        voted_directory_id: Uuid = ZERO_UUID,
        applied_offset: int = 0,
        current_voters: list[Voter] | None = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.cluster_id = cluster_id
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.voted_id = voted_id
        self.voted_directory_id = voted_directory_id
        self.applied_offset = applied_offset
        self.current_voters = [] if current_voters is EMPTY else current_voters
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
