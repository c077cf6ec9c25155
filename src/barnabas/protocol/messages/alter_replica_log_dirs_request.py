"""AlterReplicaLogDirsRequest: versions 0-2, flexible 2+.

Written by `make messages` from schemas/AlterReplicaLogDirsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class AlterReplicaLogDirTopic:
    __slots__ = (
        "name",
        "partitions",
        "unknown_tagged_fields",
    )
    name: str
    partitions: list[int]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[int] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class AlterReplicaLogDir:
    __slots__ = (
        "path",
        "topics",
        "unknown_tagged_fields",
    )
    path: str
    topics: list[AlterReplicaLogDirTopic]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        path: str = "",
        topics: list[AlterReplicaLogDirTopic] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.path = path
        self.topics = [] if topics is EMPTY else topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class AlterReplicaLogDirsRequest:
    __slots__ = (
        "dirs",
        "unknown_tagged_fields",
    )
    dirs: list[AlterReplicaLogDir]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        dirs: list[AlterReplicaLogDir] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.dirs = [] if dirs is EMPTY else dirs
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
