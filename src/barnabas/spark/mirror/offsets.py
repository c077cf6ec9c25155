"""Translates offsets of a cluster to offsets of its mirror.

A batch of a mirror copies, of each partition, the records between two offsets. In the copy these records are
consecutive, so one line for each batch and partition is enough:

    key    {"topic":"orders","partition":0,"slot":"7"}
    value  {"target":"eu.orders","batch":1007,"source":[5000,6000],"offset":[4123,5120]}

These lines are records of a compacted topic in the target cluster, written in the transaction of the batch. For each
partition the topic keeps the last FINE_SLOTS batches, and one in FINE_SLOTS of those before.

A translated offset is never behind the intended record: if records are missing in between (compacted, aborted, or
transaction markers), a consumer that continues there may read some again, but skips none.

Lines count in the order in which they were written. A line that goes back, in the source or in the mirror, shows that
the topic was recreated there, or that the mirror was started again; the lines that it contradicts are dropped.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from barnabas.model import TopicPartition

FINE_SLOTS: Final = 1_000
COARSE_SLOTS: Final = 1_000
COARSE: Final = "every-1000-"
# At most this many lines of a partition are kept; then those are dropped that the topic does not keep either.
LINES_MAX: Final = 2 * (FINE_SLOTS + COARSE_SLOTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Records of one batch: source offsets and offsets in the mirror, the ends exclusive.

    The source's start is 0 if the mirror started with this batch, wherever in the partition that was.
    """

    source: TopicPartition
    target_topic: str
    batch_id: int
    source_start: int
    source_end: int
    target_start: int
    target_end: int

    @property
    def record_count(self) -> int:
        return self.target_end - self.target_start

    @property
    def is_kept_for_long(self) -> bool:
        return self.batch_id % FINE_SLOTS == 0

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values that keep it: for a while, or for long."""
        slots = [str(self.batch_id % FINE_SLOTS)]
        if self.is_kept_for_long:
            slots.append(f"{COARSE}{self.batch_id // FINE_SLOTS % COARSE_SLOTS}")
        value = {
            "target": self.target_topic,
            "batch": self.batch_id,
            "source": [self.source_start, self.source_end],
            "offset": [self.target_start, self.target_end],
        }
        for slot in slots:
            key = {"topic": self.source.topic, "partition": self.source.partition, "slot": slot}
            yield _dumps(key), _dumps(value)


def _dumps(form: dict[str, object]) -> bytes:
    return json.dumps(form, separators=(",", ":")).encode()


def parse_copied(key: bytes | None, value: bytes | None) -> Copied | None:
    """None for a record that is not a line of the map."""
    try:
        named, told = json.loads(key or b""), json.loads(value or b"")
        (source_start, source_end), (target_start, target_end) = told["source"], told["offset"]
        return Copied(
            source=TopicPartition(str(named["topic"]), int(named["partition"])),
            target_topic=str(told["target"]),
            batch_id=int(told["batch"]),
            source_start=int(source_start),
            source_end=int(source_end),
            target_start=int(target_start),
            target_end=int(target_end),
        )
    except (ValueError, KeyError, TypeError):
        return None


class OffsetMap:
    """Translates offsets by the copied batches; safe for any thread."""

    def __init__(self, copied: Iterable[Copied] = ()) -> None:
        self._lock = threading.Lock()
        # In the order of their batches, in which both source and target offsets grow.
        self._by_partition: dict[TopicPartition, list[Copied]] = {}
        for each in copied:
            self.add(each)

    def add(self, copied: Copied) -> None:
        """Takes a line that was written after all that are known."""
        # The start of a first batch is unknown. If records are missing, it was before this one: its remaining lines
        # have lower offsets of the mirror, which skip nothing.
        first_offset = copied.source_start or copied.source_end - copied.record_count
        with self._lock:
            known = self._by_partition.setdefault(copied.source, [])
            while known and (
                known[-1].source_end > first_offset
                or known[-1].source_end == copied.source_end
                or known[-1].target_end > copied.target_start
                or known[-1].target_topic != copied.target_topic
            ):
                known.pop()
            known.append(copied)
            if len(known) > LINES_MAX:
                older, newer = known[:-FINE_SLOTS], known[-FINE_SLOTS:]
                kept = [each for each in older if each.is_kept_for_long]
                self._by_partition[copied.source] = kept[-COARSE_SLOTS:] + newer

    def translate(self, partition: TopicPartition, offset: int) -> tuple[TopicPartition, int] | None:
        """Where a consumer that has read up to the offset continues in the mirror; None if the map does not know."""
        with self._lock:
            return self._translate(partition, offset)

    def _translate(self, partition: TopicPartition, offset: int) -> tuple[TopicPartition, int] | None:
        known = self._by_partition.get(partition, [])
        place = bisect_left(known, offset, key=_source_end)
        if place < len(known) and known[place].source_start <= offset:
            found = known[place]
            # At most this many records of the batch are not before the offset.
            target_offset = max(found.target_start, found.target_end - (found.source_end - offset))
        elif place > 0:
            found = known[place - 1]
            target_offset = found.target_end
        else:
            return None
        return TopicPartition(found.target_topic, partition.partition), target_offset

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._by_partition.values()))


def _source_end(copied: Copied) -> int:
    return copied.source_end
