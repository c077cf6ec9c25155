"""The same bytes given to Kafka's own classes: what they read, convert, accept, refuse and write is what we do.

Compressed bytes differ between libraries; there the records, and all else in the batch's header, are compared.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.errors import KafkaError, UnknownServerError
from barnabas.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from barnabas.records.builder import BatchBuilder, encode_message
from barnabas.records.compression import compress
from barnabas.records.convert import down_convert
from barnabas.records.layout import MAGIC_V2, CompressionType, TimestampType
from barnabas.records.policy import AppendPolicy
from barnabas.records.reader import iterate_batches
from barnabas.records.validate import validate_records
from barnabas.records.varint import INT64_MAX
from tests.peers.kafka_peer import V3, PeerUnavailable, run_tool
from tests.records.golden import golden_segments
from tests.records.test_malformed import with_crc

pytestmark = [pytest.mark.slow, pytest.mark.peer]

ORACLE = Path(__file__).parent / "RecordsOracle.java"
NOW_MS = 1_700_000_000_000
BATCHES = 800
CREATE_TIME, LOG_APPEND_TIME = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME


def ask(lines: list[str]) -> list[list[str]]:
    if shutil.which("javac") is None:
        pytest.skip(
            "javac is not on the PATH; a Java 17 development kit is needed to ask Kafka's own classes"
        )
    try:
        answers = run_tool(V3, str(ORACLE), stdin="\n".join(lines) + "\n").splitlines()
    except PeerUnavailable as unavailable:
        pytest.skip(str(unavailable))
    assert len(answers) == len(lines)
    return [answer.split("\t") for answer in answers]


def shown(data: bytes) -> str:
    """The batches and their records, as the oracle shows them."""
    parts = []
    for header, records in iterate_batches(data):
        parts.append(
            f"{header.magic}/{header.compression.label}/{header.timestamp_type.label}/{header.max_timestamp}["
        )
        for record in records:
            fields = [str(record.offset), str(record.timestamp), str(record.sequence)]
            fields += [_hex(record.key), _hex(record.value)]
            fields += [f"{name.encode().hex()}={_hex(value)}" for name, value in record.headers]
            parts.append(",".join(fields) + ";")
        parts.append("]")
    return "".join(parts)


def _hex(value: bytes | None) -> str:
    return "null" if value is None else value.hex()


def random_batch(rng: random.Random, *, faults: float) -> bytes:
    """What a client might send, of any format; a share of them with a fault, which the CRC may not show."""
    magic = rng.choice([0, 1, 2, 2])
    newest = magic == MAGIC_V2
    compression = rng.choice(list(CompressionType) if newest else list(CompressionType)[:4])
    producer_id = rng.choice([-1, 7]) if newest else -1
    builder = BatchBuilder(
        magic=magic,
        compression=compression,
        timestamp_type=LOG_APPEND_TIME if rng.random() < 0.1 else CREATE_TIME,
        log_append_time=TimestampMs(NOW_MS - 10),
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(0 if producer_id >= 0 else -1),
        base_sequence=-1 if producer_id < 0 else rng.choice([0, 2**31 - 2]),
        is_transactional=producer_id >= 0 and rng.random() < 0.5,
    )
    keyless = rng.random() < 0.2
    offset = 0
    for _ in range(rng.randint(1, 12)):
        builder.append_with_offset(
            Offset(offset),
            TimestampMs(rng.choice([NOW_MS, NOW_MS, NOW_MS + rng.randint(-9_000, 9_000), -1, 0])),
            None if keyless and rng.random() < 0.5 else rng.randbytes(rng.choice([0, 5, 70])),
            None if rng.random() < 0.1 else bytes(rng.choices(b"abc", k=rng.choice([0, 100, 3_000]))),
            (("h", None), ("größe", rng.randbytes(3))) if newest and rng.random() < 0.2 else (),
        )
        offset += 1 if rng.random() < 0.98 else 2
    data = builder.build()
    if rng.random() < faults:
        mutated = bytearray(data)
        # Not within compressed bytes: which fault shows first would depend on how far a library reads ahead.
        reach = 26 if magic < MAGIC_V2 else 61
        if compression is CompressionType.NONE and rng.random() < 0.5:
            reach = len(data)
        mutated[rng.randrange(8, reach)] ^= 1 << rng.randrange(8)
        data = with_crc(bytes(mutated)) if rng.random() < 0.8 else bytes(mutated)
    return data


@dataclass(frozen=True, slots=True)
class Comparison:
    line: str
    ours: Callable[[], tuple[list[str], bytes]]


def compare(comparisons: list[Comparison]) -> dict[str, int]:
    """Asks both, and counts the outcomes: each of Kafka's answers must be ours."""
    counts: dict[str, int] = {}
    for comparison, theirs in zip(comparisons, ask([c.line for c in comparisons]), strict=True):
        outcome = theirs[1] if theirs[0] == "error" else "ok"
        # Where Kafka stumbles over what it did not expect, we may name the fault, or take it in our stride.
        if outcome != UnknownServerError.name:
            ours, numbers, data = _outcome(comparison.ours)
            context = f"{ours}\n{comparison.line}\n{theirs}"
            assert ours == outcome, context
            if ours == "ok":
                *their_numbers, their_hex, their_records = theirs[1:]
                assert numbers == their_numbers, context
                assert shown(data) == their_records, context
                outcome = "the same bytes"
                if data.hex() != their_hex:
                    assert any(header.is_compressed for header, _ in iterate_batches(data)), context
                    outcome = "the same records"
        counts[outcome] = counts.get(outcome, 0) + 1
    return counts


def _outcome(ours: Callable[[], tuple[list[str], bytes]]) -> tuple[str, list[str], bytes]:
    try:
        return "ok", *ours()
    except KafkaError as error:
        return error.name, [str(error)], b""


def test_kafka_reads_what_we_write() -> None:
    rng = random.Random(1)
    batches: list[bytes] = []
    while len(batches) < BATCHES:
        magic = rng.choice([0, 1, 2])
        compression = rng.choice([c for c in CompressionType if magic == 2 or c is not CompressionType.ZSTD])
        builder = BatchBuilder(
            magic=magic,
            compression=compression,
            compression_level=rng.choice([None, 1, 9]),
            timestamp_type=rng.choice([CREATE_TIME, LOG_APPEND_TIME]),
            base_offset=Offset(rng.choice([0, 2**40])),
            log_append_time=TimestampMs(NOW_MS),
            delete_horizon_ms=TimestampMs(NOW_MS if magic == 2 and rng.random() < 0.2 else -1),
        )
        # Now and then enough for several blocks of every compression.
        size = rng.choice([10, 10, 10, 40_000])
        for index in range(rng.randint(1, 6)):
            value = rng.choice([None, b"", rng.randbytes(size), bytes(size)])
            builder.append(TimestampMs(NOW_MS + rng.randint(-99, 99)), b"%d" % index, value)
        batches.append(builder.build())
    for batch, answer in zip(batches, ask([f"read {batch.hex()}" for batch in batches]), strict=True):
        assert answer == ["ok", shown(batch)]


def test_kafka_converts_as_we_do() -> None:
    rng = random.Random(2)
    sources = [segment.data for segment in golden_segments() if segment.data]
    sources += [random_batch(rng, faults=0) for _ in range(BATCHES)]
    comparisons = []
    for data in sources:
        magic, first_offset = rng.choice([0, 1]), rng.choice([0, 3])

        def ours(
            data: bytes = data, magic: int = magic, first_offset: int = first_offset
        ) -> tuple[list[str], bytes]:
            return [], down_convert(data, to_magic=magic, first_offset=Offset(first_offset)).data

        comparisons.append(Comparison(f"convert {data.hex()} {magic} {first_offset}", ours))
    counts = compare(comparisons)
    assert (
        min(counts[name] for name in ("the same bytes", "the same records", "UNSUPPORTED_COMPRESSION_TYPE"))
        > 50
    )


def test_kafka_accepts_refuses_and_writes_as_we_do() -> None:
    rng = random.Random(3)
    comparisons = []
    for data in [random_batch(rng, faults=0.2) for _ in range(2 * BATCHES)] + wrongly_numbered_wrappers():
        bounded = rng.random() < 0.3
        policy = AppendPolicy(
            compression=rng.choice([None, None, *CompressionType]),
            timestamp_type=rng.choice([CREATE_TIME, CREATE_TIME, LOG_APPEND_TIME]),
            timestamp_before_max_ms=5_000 if bounded else INT64_MAX,
            timestamp_after_max_ms=8_000 if bounded else INT64_MAX,
            magic=rng.choice([0, 1, 2, 2, 2]),
            is_compacted=rng.random() < 0.2,
            validate_fully=True,
            max_message_bytes=1_000 if rng.random() < 0.05 else 1_000_000,
        )

        def ours(data: bytes = data, policy: AppendPolicy = policy) -> tuple[list[str], bytes]:
            result = validate_records(
                data,
                base_offset=Offset(1_000),
                now_ms=NOW_MS,
                leader_epoch=LeaderEpoch(3),
                policy=policy,
            )
            written = result.head + bytes(result.data[len(result.head) :])
            return [str(result.last_offset), str(result.max_timestamp)], written

        compression = "producer" if policy.compression is None else policy.compression.label
        comparisons.append(
            Comparison(
                f"validate {data.hex()} 1000 {NOW_MS} 3 {policy.magic} {compression} {policy.timestamp_type.label}"
                f" {policy.timestamp_before_max_ms} {policy.timestamp_after_max_ms}"
                f" {str(policy.is_compacted).lower()} {policy.max_message_bytes}",
                ours,
            )
        )
    counts = compare(comparisons)
    for outcome in (
        "the same bytes",
        "the same records",
        "CORRUPT_MESSAGE",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "MESSAGE_TOO_LARGE",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    ):
        assert counts[outcome] > 15, counts


def wrongly_numbered_wrappers() -> list[bytes]:
    wrappers = []
    for magic in (0, 1):
        for offsets, outer in (
            ((0, 1, 2), 0),
            ((0, 1, 2), 2),
            ((7, 8, 9), 9),
            ((0, 0, 0), 0),
            ((5, 3, 4), 20),
        ):
            inner = b"".join(
                encode_message(magic, Offset(offset), TimestampMs(NOW_MS), b"k", b"v") for offset in offsets
            )
            value = compress(inner, CompressionType.SNAPPY, magic=magic)
            wrappers += [
                encode_message(
                    magic,
                    Offset(outer),
                    TimestampMs(NOW_MS),
                    None,
                    value,
                    attributes=int(CompressionType.SNAPPY),
                )
            ] * 4
    return wrappers
