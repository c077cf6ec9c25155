"""The plan of a query on log directories: pieces of files, for tasks.

The plan omits segments by their base offsets or by their time index. It selects a part of the others by their offset
index, and cuts it where a batch is known to start. It joins small pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from barnabas.errors import InvalidConfig, KafkaStorageError
from barnabas.log.reader.partition_files import (
    OffsetIndexReader,
    PartitionFiles,
    SegmentFile,
    SegmentGone,
    find_partitions,
    first_offset_at,
    last_offset_before,
    log_end_offset,
    open_segment,
)
from barnabas.log.reader.transactions import Aborted, TransactionReader, Transactions
from barnabas.model import TopicPartition
from barnabas.spark.logs.options import Bound, Isolation, LogOptions, OnCorruption
from barnabas.spark.topics.offsets import EARLIEST, INT64_MAX, LATEST
from barnabas.spark.topics.plan import INT64_MIN, MICROSECONDS_IN_MILLISECOND, Restriction

# The cost of opening a file, in bytes that could be read in the same time.
OPEN_COST_BYTES = 1 << 20
SEGMENT_GONE_REMEDY: Final = (
    "; run the query again, or set failOnDataLoss=false to continue without the deleted records"
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a log file, from the start of a batch, and the requested offsets and times.

    With `is_tail` its end may be inside a batch that is still being written.
    """

    partition: TopicPartition
    segment: SegmentFile
    start_position: int
    end_position: int
    start_offset: int
    end_offset: int
    first_timestamp_ms: int
    aborted: tuple[Aborted, ...]

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.start_position

    @property
    def is_tail(self) -> bool:
        return self.segment.is_last and self.end_position == self.segment.size_bytes


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of a partition, the end exclusive."""

    files: PartitionFiles
    start_offset: int
    end_offset: int
    transactions: Transactions | None


def plan(options: LogOptions, restriction: Restriction) -> list[tuple[Piece, ...]]:
    """The pieces, joined for tasks."""
    return split(options, find_ranges(options, restriction), _first_timestamp_ms(restriction))


def split(
    options: LogOptions, ranges: Iterable[Range], first_timestamp_ms: int | None = None
) -> list[tuple[Piece, ...]]:
    pieces = [
        piece
        for each in ranges
        for piece in cut(
            each,
            split_bytes=options.split_bytes,
            first_timestamp_ms=first_timestamp_ms,
            fails_on_data_loss=options.fail_on_data_loss,
        )
    ]
    return pack(pieces, options.split_bytes)


def transaction_reader(options: LogOptions) -> TransactionReader:
    return TransactionReader(fails_on_corruption=options.on_corruption is OnCorruption.FAIL)


def find_chosen(options: LogOptions) -> list[PartitionFiles]:
    """The partitions of a query; InvalidConfig if a named one does not exist."""
    try:
        partitions = find_partitions(options.paths, options.chooses)
    except InvalidConfig as error:
        raise InvalidConfig(f"path={error}; every worker must be able to read the path") from None
    _check_chosen(options, partitions)
    return partitions


def find_ranges(options: LogOptions, restriction: Restriction) -> Iterator[Range]:
    for files in find_chosen(options):
        if restriction.allows(files.partition):
            start_offset = max(
                resolve(files, options.starting), files.log_start_offset, restriction.offset.low
            )
            end_offset = min(resolve(files, options.ending), max(restriction.offset.high, -1) + 1)
            transactions = None
            if options.isolation is Isolation.READ_COMMITTED:
                transactions = transaction_reader(options).read(files)
                if transactions.last_stable_offset is not None:
                    end_offset = min(end_offset, transactions.last_stable_offset)
            if start_offset < end_offset:
                yield Range(files, start_offset, end_offset, transactions)


def _first_timestamp_ms(restriction: Restriction) -> int | None:
    low = restriction.timestamp_us.low
    return None if low == INT64_MIN else -(-low // MICROSECONDS_IN_MILLISECOND)


def _check_chosen(options: LogOptions, partitions: Iterable[PartitionFiles]) -> None:
    """A topic or partition that is named must be there: a name misspelled is not an empty result."""
    found = {files.partition for files in partitions}
    topics = {partition.topic for partition in found}
    missing_topics = [topic for topic in options.topics if topic not in topics]
    if missing_topics:
        raise InvalidConfig(f"topics={','.join(missing_topics)}: not in {','.join(options.paths)}")
    for name, named in (
        ("partitions", options.partitions),
        (options.starting.option, options.starting.each),
        (options.ending.option, options.ending.each),
    ):
        missing = sorted(set(named) - found)
        if missing:
            raise InvalidConfig(
                f"{name} names {', '.join(map(str, missing))}, which is not among what is read of"
                f" {','.join(options.paths)}"
            )
    if not found:
        what = (
            "topics but Kafka's own" if options.topic_pattern is None else "topic that topicPattern matches"
        )
        raise InvalidConfig(
            f"path={','.join(options.paths)} has no {what}: choose others by topics or topicPattern"
        )


def resolve(files: PartitionFiles, bound: Bound) -> int:
    value, is_time = bound.of(files.partition)
    if is_time:
        found = first_offset_at(files, value)
        return INT64_MAX if found is None else found
    if value == EARLIEST:
        return files.log_start_offset
    if value == LATEST:
        # All that was there at this moment; the sizes of files are the end.
        return INT64_MAX if bound.option.startswith("ending") else log_end_offset(files)
    return value


def cut(
    wanted: Range, *, split_bytes: int, first_timestamp_ms: int | None, fails_on_data_loss: bool
) -> Iterator[Piece]:
    """The pieces of a partition that hold the range, none larger than asked for by more than an index entry's step."""
    files = wanted.files
    for segment in files.segments:
        if segment.size_bytes == 0 or segment.base_offset >= wanted.end_offset:
            continue
        if segment.end_base_offset is not None and segment.end_base_offset <= wanted.start_offset:
            continue
        start_offset = wanted.start_offset
        if first_timestamp_ms is not None:
            start_offset = max(start_offset, last_offset_before(files, segment, first_timestamp_ms) + 1)
            if segment.end_base_offset is not None and segment.end_base_offset <= start_offset:
                continue
        try:
            file = open_segment(segment.path, segment.inode)
        except SegmentGone as error:
            if fails_on_data_loss:
                raise SegmentGone(f"{error}{SEGMENT_GONE_REMEDY}") from None
            continue
        except KafkaStorageError:
            if fails_on_data_loss:
                raise
            continue
        index = OffsetIndexReader(segment, file)
        position = index.start_position(start_offset)
        end_position = segment.size_bytes
        if segment.end_base_offset is None or wanted.end_offset < segment.end_base_offset:
            end_position = index.end_position(wanted.end_offset)
        aborted: tuple[Aborted, ...] = ()
        if wanted.transactions is not None:
            aborted = wanted.transactions.aborted_between(
                max(start_offset, segment.base_offset),
                min(
                    wanted.end_offset,
                    INT64_MAX if segment.end_base_offset is None else segment.end_base_offset,
                ),
            )
        while position < end_position:
            next_position = end_position
            # A rest that is not worth a task stays with the piece before it.
            if end_position - position > split_bytes + split_bytes // 2:
                next_position = min(index.position_after(position + split_bytes - 1), end_position)
            yield Piece(
                partition=files.partition,
                segment=segment,
                start_position=position,
                end_position=next_position,
                start_offset=start_offset,
                end_offset=wanted.end_offset,
                first_timestamp_ms=INT64_MIN if first_timestamp_ms is None else first_timestamp_ms,
                aborted=aborted,
            )
            position = next_position


def pack(pieces: Iterable[Piece], split_bytes: int) -> list[tuple[Piece, ...]]:
    """Pieces in their order, as many to a task as make up a split."""
    tasks: list[tuple[Piece, ...]] = []
    gathered: list[Piece] = []
    gathered_bytes = 0
    for piece in pieces:
        cost_bytes = piece.size_bytes + OPEN_COST_BYTES
        if gathered and gathered_bytes + cost_bytes > split_bytes:
            tasks.append(tuple(gathered))
            gathered, gathered_bytes = [], 0
        gathered.append(piece)
        gathered_bytes += cost_bytes
    if gathered:
        tasks.append(tuple(gathered))
    return tasks
