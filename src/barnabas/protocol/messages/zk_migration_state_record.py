"""ZkMigrationStateRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/ZkMigrationStateRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class ZkMigrationStateRecord:
    __slots__ = (
        "zk_migration_state",
        "unknown_tagged_fields",
    )
    zk_migration_state: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        zk_migration_state: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.zk_migration_state = zk_migration_state
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
