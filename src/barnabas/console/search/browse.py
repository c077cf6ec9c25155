"""Pages of records, from the newest back or from an offset on, over all partitions of a topic.

Within a partition records stay in the order of their offsets, and partitions are merged by time. A page ends with the
offsets at which the next one begins. Records are read when it is their turn and rendered at once, so a page holds a few
answers of brokers and the previews of its records, however large these are.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.reader.partition_reader import PartitionReader
from barnabas.client.reader.ranges import read_range
from barnabas.errors import KafkaError
from barnabas.model import TopicPartition
from barnabas.records.reader import decode_batch
from barnabas.records.record import Record
from barnabas.views.offsets import LogRange

PAGE_RECORDS_MAX: Final = 500
READ_TIMEOUT_MS: Final = 15_000
# All partitions of a page together, and one of them.
PAGE_FETCH_BYTES: Final = 4 << 20
FETCH_BYTES_MIN: Final = 64 << 10
FETCH_BYTES_MAX: Final = 1 << 20
READERS_MAX: Final = 8
# Compaction and transactions leave offsets without records: a page goes back in larger and larger steps.
STEP_MIN: Final = 8
WIDENINGS_MAX: Final = 8
WIDENING: Final = 4

Render = Callable[[int, Record], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Shown:
    """A record that is ready to be shown."""

    partition: int
    offset: int
    timestamp: int
    form: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`next` has the range that is left of each partition, without those that are read completely."""

    records: tuple[Shown, ...]
    next: dict[int, LogRange]
    warnings: tuple[str, ...]


def read_page(
    settings: Mapping[str, str],
    ranges: Mapping[TopicPartition, LogRange],
    render: Render,
    *,
    records_max: int,
    is_backwards: bool,
) -> Page:
    fetch_bytes = str(min(FETCH_BYTES_MAX, max(FETCH_BYTES_MIN, PAGE_FETCH_BYTES // max(1, len(ranges)))))
    sizes = {"fetch.max.bytes": fetch_bytes, "max.partition.fetch.bytes": fetch_bytes}
    warnings: list[str] = []
    step = max(STEP_MIN, -(-records_max // max(1, len(ranges))))
    columns: dict[int, _Column] = {}
    with ExitStack() as open_readers:
        readers = [
            open_readers.enter_context(
                closing(PartitionReader({**settings, **sizes, "fetch.max.wait.ms": "100"}))
            )
            for _ in range(min(READERS_MAX, len(ranges)))
        ]
        for number, (partition, wanted) in enumerate(ranges.items()):
            reader = readers[number % len(readers)]
            shown = (
                _newest(reader, partition, wanted, step, render, warnings)
                if is_backwards
                else _oldest(reader, partition, wanted, render, warnings)
            )
            columns[partition.partition] = _Column(shown, partition, warnings)
        _read_heads(list(columns.values()), len(readers))
        records = _merge(columns, records_max, is_backwards=is_backwards)
    left = {}
    for partition, wanted in ranges.items():
        rest = _rest(
            wanted,
            [each for each in records if each.partition == partition.partition],
            is_read=columns[partition.partition].is_read,
            is_backwards=is_backwards,
        )
        if rest is not None:
            left[partition.partition] = rest
    return Page(records=tuple(records), next=left, warnings=tuple(warnings))


class _Column:
    """The records of one partition, one after the other; `head` is the next one."""

    def __init__(self, shown: Iterator[Shown], partition: TopicPartition, warnings: list[str]) -> None:
        self._shown = shown
        self._partition = partition
        self._warnings = warnings
        self.head: Shown | None = None
        self.is_read = False

    def advance(self) -> None:
        self.head = None
        try:
            self.head = next(self._shown, None)
            self.is_read = self.head is None
        except KafkaError as error:
            if not error.retriable:
                raise
            self._warnings.append(f"{self._partition}: {error}")


def _read_heads(columns: list[_Column], count: int) -> None:
    """Reads the first records of all partitions, with all readers at once. A reader belongs to one thread at a time."""

    def read(number: int) -> None:
        for column in columns[number::count]:
            column.advance()

    if count:
        with ThreadPoolExecutor(count, "page") as threads:
            list(threads.map(read, range(count)))


def records_in(
    reader: PartitionReader, partition: TopicPartition, wanted: LogRange, warnings: list[str]
) -> Iterator[Record]:
    """The records of a range, without control records and, if asked for, aborted ones."""
    for fetched in read_range(
        reader,
        partition,
        wanted.first_offset,
        wanted.end_offset,
        timeout_ms=READ_TIMEOUT_MS,
        on_data_loss=warnings.append,
    ):
        data = fetched.as_bytes()
        while (header := fetched.next_batch(wanted.first_offset)) is not None:
            for record in decode_batch(data, fetched.batch_position, header=header):
                if wanted.first_offset <= record.offset < wanted.end_offset:
                    yield record


def _oldest(
    reader: PartitionReader,
    partition: TopicPartition,
    wanted: LogRange,
    render: Render,
    warnings: list[str],
) -> Iterator[Shown]:
    for record in records_in(reader, partition, wanted, warnings):
        yield _shown(partition, record, render)


def _newest(
    reader: PartitionReader,
    partition: TopicPartition,
    wanted: LogRange,
    step: int,
    render: Render,
    warnings: list[str],
) -> Iterator[Shown]:
    """The records from the newest back, read in parts of `step` offsets, or more where parts are empty."""
    end_offset = wanted.end_offset
    widenings = 0
    while end_offset > wanted.first_offset and widenings < WIDENINGS_MAX:
        start_offset = max(wanted.first_offset, end_offset - step)
        part = LogRange(first_offset=start_offset, end_offset=end_offset)
        found = [_shown(partition, each, render) for each in records_in(reader, partition, part, warnings)]
        yield from reversed(found)
        end_offset = start_offset
        if not found:
            step *= WIDENING
            widenings += 1


def _shown(partition: TopicPartition, record: Record, render: Render) -> Shown:
    return Shown(partition.partition, record.offset, record.timestamp, render(partition.partition, record))


def _merge(columns: Mapping[int, _Column], count: int, *, is_backwards: bool) -> list[Shown]:
    """Always takes the newest (or oldest) of the next records of all partitions, in turns if they are of one time."""
    sign = -1 if is_backwards else 1
    heads = [(sign * each.head.timestamp, 0, number) for number, each in columns.items() if each.head]
    heapq.heapify(heads)
    merged: list[Shown] = []
    while heads and len(merged) < count:
        _, turn, number = heapq.heappop(heads)
        column = columns[number]
        assert column.head is not None
        merged.append(column.head)
        column.advance()
        if column.head is not None:
            heapq.heappush(heads, (sign * column.head.timestamp, turn + 1, number))
    return merged


def _rest(wanted: LogRange, shown: list[Shown], *, is_read: bool, is_backwards: bool) -> LogRange | None:
    """What is left of a range after a page; None if nothing is."""
    if is_read:
        return None
    first_offset, end_offset = wanted.first_offset, wanted.end_offset
    if shown and is_backwards:
        end_offset = shown[-1].offset
    elif shown:
        first_offset = shown[-1].offset + 1
    if first_offset >= end_offset:
        return None
    return LogRange(first_offset=first_offset, end_offset=end_offset)
