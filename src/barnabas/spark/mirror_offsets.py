"""From offsets of a cluster to those of its mirror.

A batch of a mirror copies, of each partition, the records between two offsets. On the other side they follow one
another, so a line for each batch and partition is all that is needed:

    key    {"topic":"orders","partition":0,"slot":"7"}
    value  {"target":"eu.orders","batch":1007,"source":[5000,6000],"offset":[4123,5120]}

These are the records of a compacted topic on the mirror's cluster, written in the transaction of the batch. Of each
partition it keeps the last FINE_SLOTS batches, and of those before one in FINE_SLOTS.

A translated offset is never behind the record that is meant: where records are missing between (compacted, aborted, or
markers of transactions) a consumer that goes on there may read some again, but skips none.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from barnabas.model import TopicPartition

FINE_SLOTS: Final = 1_000
COARSE_SLOTS: Final = 1_000
COARSE: Final = "every-1000-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Records of one batch: source offsets and those at which they stand in the mirror, the ends exclusive.

    The source's start is 0 where the mirror began with this batch.
    """

    source: TopicPartition
    target_topic: str
    batch_id: int
    source_start: int
    source_end: int
    target_start: int
    target_end: int

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values that keep it: for a while, or for long."""
        slots = [str(self.batch_id % FINE_SLOTS)]
        if self.batch_id % FINE_SLOTS == 0:
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
    """None for a record that is none of ours."""
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
    """Translates offsets by what has been copied."""

    def __init__(self, copied: Iterable[Copied] = ()) -> None:
        self._by_partition: dict[TopicPartition, list[Copied]] = {}
        for each in copied:
            self.add(each)

    def add(self, copied: Copied) -> None:
        known = self._by_partition.setdefault(copied.source, [])
        place = bisect_left(known, copied.source_end, key=_source_end)
        if place < len(known) and known[place].source_end == copied.source_end:
            # A batch in two slots, or one that was written again: the later one counts.
            if copied.batch_id >= known[place].batch_id:
                known[place] = copied
        else:
            insort(known, copied, key=_source_end)

    def translate(self, partition: TopicPartition, offset: int) -> tuple[TopicPartition, int] | None:
        """Where a consumer of the mirror goes on that has read up to the offset; None if nobody knows any more."""
        known = self._by_partition.get(partition, [])
        place = bisect_left(known, offset, key=_source_end)
        if place < len(known) and known[place].source_start <= offset:
            found = known[place]
            # At most so many records of the batch are not before the offset.
            target_offset = max(found.target_start, found.target_end - (found.source_end - offset))
        elif place > 0:
            found = known[place - 1]
            target_offset = found.target_end
        else:
            return None
        return TopicPartition(found.target_topic, partition.partition), target_offset

    def __len__(self) -> int:
        return sum(map(len, self._by_partition.values()))


def _source_end(copied: Copied) -> int:
    return copied.source_end
