"""BrokerRegistrationChangeRecord: versions 0-3, flexible 0+.

Written by `make messages` from schemas/BrokerRegistrationChangeRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, Uuid, equal, show


class BrokerRegistrationChangeRecord:
    __slots__ = (
        "broker_id",
        "broker_epoch",
        "fenced",
        "in_controlled_shutdown",
        "log_dirs",
        "cordoned_log_dirs",
        "unknown_tagged_fields",
    )
    broker_id: int
    broker_epoch: int
    fenced: int
    in_controlled_shutdown: int
    log_dirs: list[Uuid]
    cordoned_log_dirs: list[Uuid] | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = 0,
        fenced: int = 0,
        in_controlled_shutdown: int = 0,
        log_dirs: list[Uuid] = EMPTY,
        cordoned_log_dirs: list[Uuid] | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.fenced = fenced
        self.in_controlled_shutdown = in_controlled_shutdown
        self.log_dirs = [] if log_dirs is EMPTY else log_dirs
        self.cordoned_log_dirs = cordoned_log_dirs
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
