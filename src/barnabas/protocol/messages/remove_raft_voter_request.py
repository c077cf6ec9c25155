"""RemoveRaftVoterRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/RemoveRaftVoterRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import ZERO_UUID, TaggedFields, Uuid, equal, show


class RemoveRaftVoterRequest:
    __slots__ = (
        "cluster_id",
        "voter_id",
        "voter_directory_id",
        "unknown_tagged_fields",
    )
    cluster_id: str | None
    voter_id: int
    voter_directory_id: Uuid
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        cluster_id: str | None = "",
        voter_id: int = 0,
        voter_directory_id: Uuid = ZERO_UUID,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.cluster_id = cluster_id
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
