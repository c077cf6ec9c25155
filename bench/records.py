"""Records of 100 bytes decoded, encoded and turned into columns, compared with kafka-python; a leader's work on a
batch.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, Final

from barnabas.model import LeaderEpoch, Offset, TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.records.columns import ColumnsBuilder, RecordColumns
from barnabas.records.header import parse_header
from barnabas.records.layout import CompressionType
from barnabas.records.policy import AppendPolicy
from barnabas.records.reader import decode_batch
from barnabas.records.validate import validate_records
from bench.table import Table, duration, measure, ratio, verdict

OURS: Final = "barnabas"
KAFKA_PYTHON: Final = "kafka-python"

NOW_MS: Final = 1_700_000_000_000
VALUE: Final = bytes(range(100))
RECORDS: Final = 590
TIMESTAMPS: Final = [TimestampMs(NOW_MS + index) for index in range(RECORDS)]

DECODE_MIN: Final = 5e6
ENCODE_MIN: Final = 2e6
COLUMNS_MIN: Final = 8e6
COLUMNS: Final = "columns of Arrow"
COLUMNS_ALONE: Final = "columns, NOT gathered: no pyarrow"
VALIDATE_1_KB_S_MAX: Final = 2e-6

ROUNDS: Final = 15
ROUND_S: Final = 0.02

Call = Callable[[], object]


def run() -> bool:
    batch = encode()
    table = Table(
        f"Records: 100-byte values, {RECORDS} in a batch of {len(batch) // 1024} KiB, million records a second",
        ("", OURS, KAFKA_PYTHON, "ratio", "target", ""),
    )
    all_met = True
    for title, minimum, ours, theirs in (
        ("decode", DECODE_MIN, lambda: decode_batch(batch), peer_decode(batch)),
        ("encode", ENCODE_MIN, encode, peer_encode()),
        (COLUMNS if has_arrow() else COLUMNS_ALONE, COLUMNS_MIN, columns_of(batch), None),
    ):
        contenders: dict[str, Call] = {OURS: ours} if theirs is None else {OURS: ours, KAFKA_PYTHON: theirs}
        measured = measure(contenders, rounds=ROUNDS, round_s=ROUND_S)
        rates = {name: RECORDS * measurement.per_second for name, measurement in measured.items()}
        met = rates[OURS] >= minimum
        all_met &= met
        peer = rates.get(KAFKA_PYTHON)
        table.add(
            title,
            f"{rates[OURS] / 1e6:.1f}",
            "-" if peer is None else f"{peer / 1e6:.2f}",
            "-" if peer is None else ratio(rates[OURS] / peer),
            f"≥ {minimum / 1e6:.0f}",
            verdict(met),
        )
    table.print()
    return leader() and all_met


def leader() -> bool:
    """The cost for a leader to check a batch and to assign offsets and epoch, by the settings of the topic."""
    small = BatchBuilder()
    small.append(TimestampMs(NOW_MS), None, bytes(900))
    contenders: dict[str, Call] = {}
    for size, batch in (("1 KB", small.build()), ("64 KiB", encode())):
        for title, policy in (
            ("by its header", AppendPolicy()),
            ("every record read", AppendPolicy(validate_fully=True)),
            ("compressed with lz4", AppendPolicy(compression=CompressionType.LZ4)),
        ):
            contenders[f"{size}, {title}"] = validation(batch, policy)
    measured = measure(contenders, rounds=ROUNDS, round_s=ROUND_S)
    table = Table("A batch checked and numbered by a leader", ("", "time", "target", ""))
    first = next(iter(contenders))
    met = measured[first].best_s <= VALIDATE_1_KB_S_MAX
    for title, measurement in measured.items():
        if title == first:
            table.add(title, duration(measurement.best_s), f"≤ {duration(VALIDATE_1_KB_S_MAX)}", verdict(met))
        else:
            table.add(title, duration(measurement.best_s), "-", "")
    table.print()
    return met


def encode() -> bytes:
    builder = BatchBuilder()
    append = builder.append
    for timestamp in TIMESTAMPS:
        append(timestamp, None, VALUE)
    return builder.build()


def has_arrow() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def columns_of(batch: bytes) -> Call:
    """All columns, with keys and values gathered by Arrow if it is installed."""

    def decode() -> RecordColumns:
        builder = ColumnsBuilder()
        builder.append_batch(batch, 0, header=parse_header(batch))
        return builder.finish()

    if not has_arrow():
        return decode
    from barnabas.records.arrow import key_array, value_array

    def gather() -> object:
        columns = decode()
        return key_array(columns), value_array(columns)

    return gather


def validation(batch: bytes, policy: AppendPolicy) -> Call:
    def validate() -> object:
        # A client's batch begins at 0, so it is numbered from there, again and again, in the same place.
        return validate_records(
            data, base_offset=Offset(0), now_ms=NOW_MS, leader_epoch=LeaderEpoch(1), policy=policy
        )

    data = bytearray(batch)
    return validate


def peer_decode(batch: bytes) -> Call | None:
    peer = peer_module()
    return None if peer is None else lambda: list(peer.DefaultRecordBatch(batch))


def peer_encode() -> Call | None:
    peer = peer_module()
    if peer is None:
        return None

    def peer_encodes() -> object:
        builder = peer.DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
        append = builder.append
        for index, timestamp in enumerate(TIMESTAMPS):
            append(index, timestamp, None, VALUE, [])
        return builder.build()

    return peer_encodes


def peer_module() -> Any:
    try:
        return importlib.import_module("kafka.record.default_records")
    except ImportError:
        return None
