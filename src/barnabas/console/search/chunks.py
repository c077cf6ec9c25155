"""Walks the batches in a chunk of a log, and finds those that may have a match, without decoding records.

Batches that are not compressed and follow one another are looked through at once: a search then costs little more than
the reading of the bytes. Compressed batches are decompressed one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from barnabas.console.search.matcher import Matcher
from barnabas.errors import KafkaError
from barnabas.log.reader.transactions import AbortedBatches
from barnabas.records.compression import decompress
from barnabas.records.header import parse_header
from barnabas.records.layout import (
    BATCH_HEADER_BYTES,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_UP_TO_MAGIC_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    CompressionType,
)

# What a batch may expand to while it is searched.
DECOMPRESSED_BYTES_MAX: Final = 64 << 20
_SIZE: Final = Struct(
    ">q"  # base offset
    "i"  # length of the rest
)
_FIELDS: Final = Struct(
    ">q"  # base offset
    "i"  # length of the rest
    "i"  # partition leader epoch
    "b"  # magic
    "I"  # CRC
    "h"  # attributes
    "i"  # last offset delta
    "q"  # base timestamp
    "q"  # max timestamp
)
assert _FIELDS.size == 43


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Offsets and times of the records that are looked for; the ends are exclusive."""

    start_offset: int
    end_offset: int
    start_ms: int
    end_ms: int


class CutBatch(Exception):
    """A chunk does not hold its first batch; `size_bytes` is how much it needs."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.size_bytes = size_bytes


class Damaged(Exception):
    """No batch can begin at `position`; those before it were walked."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


@dataclass(slots=True)
class Walked:
    """What a walk has found: the positions of batches that may have a match, and how far it came.

    `first_ms` and `last_ms` are the largest timestamps of the first and of the last batch; None if there was none.
    """

    candidates: list[int]
    position: int
    record_count: int
    first_ms: int | None = None
    last_ms: int | None = None


def walk(data: bytes, matcher: Matcher, bounds: Bounds, aborted: AbortedBatches | None) -> Walked:
    """The batches of a chunk that may have a match, in order. Raises CutBatch if the first one is not complete."""
    candidates: list[int] = []
    run: list[tuple[int, int]] = []
    position = 0
    record_count = 0
    first_ms: int | None = None
    last_ms: int | None = None
    end = len(data)
    damaged = False
    while end - position >= HEADER_UP_TO_MAGIC_BYTES:
        base_offset, length = _SIZE.unpack_from(data, position)
        next_position = position + LOG_OVERHEAD_BYTES + length
        if length < HEADER_UP_TO_MAGIC_BYTES - LOG_OVERHEAD_BYTES or base_offset < 0:
            damaged = True
            break
        if next_position > end:
            break
        if base_offset >= bounds.end_offset:
            position = end
            break
        if data[position + MAGIC_POSITION] != MAGIC_V2:
            # Old formats are rare: their records are compared one by one.
            run = _end_run(data, matcher, run, candidates)
            candidates.append(position)
            position = next_position
            continue
        if length < BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES:
            damaged = True
            break
        _, _, _, _, _, attributes, last_delta, _, max_ms = _FIELDS.unpack_from(data, position)
        first_ms = max_ms if first_ms is None else first_ms
        last_ms = max_ms
        is_control = attributes & CONTROL_BIT != 0
        if not is_control:
            # A fetch or an index may begin with a batch that reaches into the range from before.
            first_offset = max(base_offset, bounds.start_offset)
            record_count += max(0, min(base_offset + last_delta + 1, bounds.end_offset) - first_offset)
        is_wanted = (
            not is_control
            and base_offset + last_delta >= bounds.start_offset
            and max_ms >= bounds.start_ms
            # With the time of the append, all records of a batch have the same time.
            and not (attributes & TIMESTAMP_TYPE_BIT and max_ms >= bounds.end_ms)
        )
        if is_wanted and aborted is not None and attributes & TRANSACTIONAL_BIT:
            is_wanted = not aborted.has(parse_header(data, position))
        if not is_wanted:
            run = _end_run(data, matcher, run, candidates)
        elif attributes & COMPRESSION_MASK:
            run = _end_run(data, matcher, run, candidates)
            if _may_match_compressed(data, position, next_position, attributes & COMPRESSION_MASK, matcher):
                candidates.append(position)
        else:
            run.append((position, next_position))
        position = next_position
    _end_run(data, matcher, run, candidates)
    if position == 0 and end:
        if damaged or end < HEADER_UP_TO_MAGIC_BYTES:
            raise Damaged(0)
        raise CutBatch(batch_bytes(data, 0))
    return Walked(candidates, position, record_count, first_ms, last_ms)


def batch_bytes(data: bytes, position: int) -> int:
    """The size of the batch at a position."""
    length: int = _SIZE.unpack_from(data, position)[1]
    return LOG_OVERHEAD_BYTES + length


def _end_run(
    data: bytes, matcher: Matcher, run: list[tuple[int, int]], candidates: list[int]
) -> list[tuple[int, int]]:
    """Looks through batches that follow one another; returns the next run, which is empty."""
    if run and matcher.may_match(data, run[0][0], run[-1][1]):
        candidates.extend(start for start, end in run if matcher.may_match(data, start, end))
    return run if not run else []


def _may_match_compressed(data: bytes, start: int, end: int, compression: int, matcher: Matcher) -> bool:
    if not matcher.has_filter:
        return True
    try:
        payload = decompress(
            data[start + BATCH_HEADER_BYTES : end],
            CompressionType(compression),
            max_decompressed_bytes=DECOMPRESSED_BYTES_MAX,
        )
    except (KafkaError, ValueError):
        # Decoding it reports the damage.
        return True
    return matcher.may_match(payload, 0, len(payload))
