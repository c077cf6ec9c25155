"""Producer snapshots: the state of a partition's producers at an offset, as Kafka keeps it in `<offset>.snapshot`.

    0       2         6           10
    +-------+---------+-----------+----------------------------------------------+
    | int16 | uint32  | int32     | entries, 46 bytes each                       |
    | 1     | CRC-32C | count     |                                              |
    +-------+---------+-----------+----------------------------------------------+

The checksum covers everything behind it. An entry:

    0            8       10          14           22            26         34                38            46
    +------------+-------+-----------+------------+-------------+----------+-----------------+-------------+
    | int64      | int16 | int32     | int64      | int32       | int64    | int32           | int64       |
    | producer   | epoch | last      | last       | offset      | time-    | coordinator     | current txn |
    | id         |       | sequence  | offset     | delta       | stamp    | epoch           | first offset|
    +------------+-------+-----------+------------+-------------+----------+-----------------+-------------+

Only the last batch of a producer is kept; the last offset is -1 when it has none, the first offset of the transaction
-1 when none is open.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from barnabas.errors import KafkaStorageError
from barnabas.log.producers.entry import BatchMetadata, ProducerEntry
from barnabas.primitives.crc32c import crc32c

VERSION: Final = 1
HEADER: Final = Struct(
    ">"
    "h"  # version
    "I"  # checksum of the rest
    "i"  # number of entries
)
ENTRY: Final = Struct(
    ">"
    "q"  # producer id
    "h"  # producer epoch
    "i"  # last sequence
    "q"  # last offset
    "i"  # offset delta of the last batch
    "q"  # timestamp
    "i"  # coordinator epoch
    "q"  # first offset of the open transaction
)
CHECKED_FROM: Final = 6
assert HEADER.size == 10
assert ENTRY.size == 46


class CorruptSnapshot(KafkaStorageError):
    """A snapshot file whose bytes are not the written ones."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    packed = [
        ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for entry in sorted(entries, key=lambda entry: entry.producer_id)
    ]
    body = b"".join((len(packed).to_bytes(4, "big"), *packed))
    return b"".join((VERSION.to_bytes(2, "big"), crc32c(body).to_bytes(4, "big"), body))


def decode_snapshot(data: bytes, name: str) -> list[ProducerEntry]:
    """The entries of a snapshot; an error about a damaged one contains `name`."""
    if len(data) < HEADER.size:
        raise CorruptSnapshot(f"{name} has {len(data)} bytes, less than its header")
    version, checksum, count = HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"{name} has version {version}, not {VERSION}")
    computed = crc32c(data[CHECKED_FROM:])
    if checksum != computed:
        raise CorruptSnapshot(f"{name} has checksum {checksum:#010x}, but its content has {computed:#010x}")
    if len(data) != HEADER.size + count * ENTRY.size:
        raise CorruptSnapshot(f"{name} has {len(data)} bytes, which {count} entries do not fill")
    return [_entry(*fields) for fields in ENTRY.iter_unpack(data[HEADER.size :])]


def _entry(
    producer_id: int,
    producer_epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    current_txn_first_offset: int,
) -> ProducerEntry:
    entry = ProducerEntry(
        producer_id, producer_epoch, coordinator_epoch, timestamp, max(current_txn_first_offset, -1)
    )
    if last_offset >= 0:
        entry.add_batch(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp))
        entry.is_partial = True
    return entry
