"""ProducerSnapshot: versions 1, flexible none.

Written by `make messages` from schemas/ProducerSnapshot.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class ProducerEntry:
    __slots__ = (
        "producer_id",
        "epoch",
        "last_sequence",
        "last_offset",
        "offset_delta",
        "timestamp",
        "coordinator_epoch",
        "current_txn_first_offset",
        "unknown_tagged_fields",
    )
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        producer_id: int = 0,
        epoch: int = 0,
        last_sequence: int = 0,
        last_offset: int = 0,
        offset_delta: int = 0,
        timestamp: int = 0,
        coordinator_epoch: int = 0,
        current_txn_first_offset: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta
        self.timestamp = timestamp
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_first_offset = current_txn_first_offset
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ProducerSnapshot:
    __slots__ = (
        "crc",
        "producer_entries",
        "unknown_tagged_fields",
    )
    crc: int
    producer_entries: list[ProducerEntry]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        crc: int = 0,
        producer_entries: list[ProducerEntry] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.crc = crc
        self.producer_entries = [] if producer_entries is EMPTY else producer_entries
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
