"""LeaderChangeMessage: versions 0-1, flexible 0+.

Written by `make messages` from schemas/LeaderChangeMessage.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class Voter:
    __slots__ = (
        "voter_id",
        "voter_directory_id",
        "unknown_tagged_fields",
    )
    voter_id: int
    voter_directory_id: Uuid
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        voter_id: int = 0,
        voter_directory_id: Uuid = ZERO_UUID,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class LeaderChangeMessage:
    __slots__ = (
        "version",
        "leader_id",
        "voters",
        "granting_voters",
        "unknown_tagged_fields",
    )
    version: int
    leader_id: int
    voters: list[Voter]
    granting_voters: list[Voter]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        version: int = 0,
        leader_id: int = 0,
        voters: list[Voter] = EMPTY,
        granting_voters: list[Voter] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.version = version
        self.leader_id = leader_id
        self.voters = [] if voters is EMPTY else voters
        self.granting_voters = [] if granting_voters is EMPTY else granting_voters
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
