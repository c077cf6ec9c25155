from __future__ import annotations

import pytest

from barnabas.log.producers.entry import ProducerEntry
from barnabas.log.producers.snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot

# Written by Apache Kafka 3.9.1; what DumpLogSegments says of it stands in the test.
FROM_KAFKA = bytes.fromhex(
    "00010bfff64100000004"
    "00000000000000000000000000110000000000000036000000070000018bcff12a99ffffffffffffffffffffffff"
    "00000000000000010000000000170000000000000039000000020000018bcff135bfffffffffffffffffffffffff"
    "0000000000000002000000000009000000000000002e000000060000018bcff114caffffffffffffffffffffffff"
    "00000000000000040000000000050000000000000027000000050000018bcff104deffffffffffffffffffffffff"
)


def fields(entry: ProducerEntry) -> tuple[int, ...]:
    return (
        entry.producer_id,
        entry.producer_epoch,
        entry.coordinator_epoch,
        entry.current_txn_first_offset,
        entry.last_timestamp,
        entry.batches[-1].first_sequence,
        entry.last_sequence,
        entry.last_data_offset,
        entry.last_offset_delta,
    )


def test_a_snapshot_of_kafka() -> None:
    entries = decode_snapshot(FROM_KAFKA, "58.snapshot")
    assert [fields(entry) for entry in entries] == [
        (0, 0, -1, -1, 1700000770713, 10, 17, 54, 7),
        (1, 0, -1, -1, 1700000773567, 21, 23, 57, 2),
        (2, 0, -1, -1, 1700000765130, 3, 9, 46, 6),
        (4, 0, -1, -1, 1700000761054, 0, 5, 39, 5),
    ]
    assert encode_snapshot(entries) == FROM_KAFKA


def test_a_producer_without_batches_and_with_an_open_transaction() -> None:
    data = encode_snapshot([ProducerEntry(9, 3, 5, 1000, 77)])
    (entry,) = decode_snapshot(data, "x")
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.current_txn_first_offset) == (3, 5, 77)
    assert not entry.batches
    assert entry.last_sequence == -1


def test_no_producers() -> None:
    data = encode_snapshot([])
    assert len(data) == 10
    assert decode_snapshot(data, "x") == []


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    for bit in range(len(FROM_KAFKA) * 8):
        damaged = bytearray(FROM_KAFKA)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptSnapshot, match=r"58\.snapshot"):
            decode_snapshot(bytes(damaged), "58.snapshot")
    for size_bytes in range(len(FROM_KAFKA)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(FROM_KAFKA[:size_bytes], "58.snapshot")
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(FROM_KAFKA + b"\0", "58.snapshot")
