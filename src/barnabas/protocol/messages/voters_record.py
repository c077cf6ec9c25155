"""VotersRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/VotersRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class Endpoint:
    __slots__ = (
        "name",
        "host",
        "port",
        "unknown_tagged_fields",
    )
    name: str
    host: str
    port: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        host: str = "",
        port: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class KRaftVersionFeature:
    __slots__ = (
        "min_supported_version",
        "max_supported_version",
        "unknown_tagged_fields",
    )
    min_supported_version: int
    max_supported_version: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        min_supported_version: int = 0,
        max_supported_version: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.min_supported_version = min_supported_version
        self.max_supported_version = max_supported_version
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class Voter:
    __slots__ = (
        "voter_id",
        "voter_directory_id",
        "endpoints",
        "kraft_version_feature",
        "unknown_tagged_fields",
    )
    voter_id: int
    voter_directory_id: Uuid
    endpoints: list[Endpoint]
    kraft_version_feature: KRaftVersionFeature
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        voter_id: int = 0,
        voter_directory_id: Uuid = ZERO_UUID,
        endpoints: list[Endpoint] = EMPTY,
        kraft_version_feature: KRaftVersionFeature | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
        self.endpoints = [] if endpoints is EMPTY else endpoints
        self.kraft_version_feature = (
            KRaftVersionFeature() if kraft_version_feature is None else kraft_version_feature
        )
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class VotersRecord:
    __slots__ = (
        "version",
        "voters",
        "unknown_tagged_fields",
    )
    version: int
    voters: list[Voter]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        version: int = 0,
        voters: list[Voter] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.version = version
        self.voters = [] if voters is EMPTY else voters
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
