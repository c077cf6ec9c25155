"""The plan of a search: pieces of log files, or ranges of offsets to fetch, for worker processes.

Files are read only if they certainly are the ones of the cluster: `meta.properties` names the cluster and the broker,
`partition.metadata` the topic, and the log reaches as far as the leader says. The end of the search is the end that the
leader names for the isolation level, so records that are not committed yet are never shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.errors import AdminErrors
from barnabas.client.admin.results import IsolationLevel, OffsetSpec, TopicDescription
from barnabas.client.reader.partition_reader import PartitionReader
from barnabas.console.search.chunks import Bounds
from barnabas.console.search.pieces import Piece
from barnabas.console.search.render import PREVIEW_BYTES
from barnabas.errors import NONE, InvalidRequest, KafkaError, error_for_code
from barnabas.log.reader.identity import belongs_to, partition_directory
from barnabas.log.reader.partition_files import (
    OffsetIndexReader,
    PartitionFiles,
    find_partitions,
    last_offset_before,
    log_end_offset,
    open_segment,
)
from barnabas.log.reader.transactions import TransactionReader
from barnabas.model import TopicPartition
from barnabas.views.offsets import LogRange

PIECE_BYTES: Final = 32 << 20
# A process keeps the hits of a piece that it fetches, to send the newest first.
FETCHED_PIECE_BYTES: Final = 8 << 20
# The size of a record where no broker tells the size of a partition.
ASSUMED_RECORD_BYTES: Final = 200
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
HITS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """What to look for, and where. No partitions are all partitions; ends are exclusive."""

    topic: str
    query: str = ""
    partitions: tuple[int, ...] = ()
    start_offset: int = 0
    end_offset: int = INT64_MAX
    start_ms: int = INT64_MIN
    end_ms: int = INT64_MAX
    is_committed: bool = False
    is_oldest_first: bool = False
    hits_max: int = 100
    preview_bytes: int = PREVIEW_BYTES

    @property
    def isolation(self) -> IsolationLevel:
        return IsolationLevel.READ_COMMITTED if self.is_committed else IsolationLevel.READ_UNCOMMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`local_partitions` of all partitions are read from files; `warnings` say what is not searched at all.

    The pieces of a partition are in the order of the search.
    """

    pieces: tuple[Piece, ...]
    partition_count: int
    local_partitions: int
    warnings: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)


def chosen_partitions(described: TopicDescription, wanted: Sequence[int]) -> list[int]:
    """The wanted partitions, or all of them; raises InvalidRequest if one does not exist."""
    existing = [each.partition for each in described.partitions]
    missing = sorted(set(wanted) - set(existing))
    if missing:
        raise InvalidRequest(
            f"topic {described.name} has no partition {missing[0]}; it has {len(existing)}, from 0 on"
        )
    return [each for each in existing if not wanted or each in wanted]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """The offsets to read by partition, without empty partitions; `warnings` name partitions that cannot be read."""

    by_partition: dict[TopicPartition, LogRange]
    warnings: tuple[str, ...]


def ranges_of(
    admin: Admin, described: TopicDescription, request: SearchRequest, partitions: Sequence[int]
) -> Ranges:
    """What the leaders say. Raises if no leader answers."""
    led = {each.partition for each in described.partitions if each.leader is not None}
    wanted = [TopicPartition(request.topic, each) for each in partitions if each in led]
    problems = {
        TopicPartition(request.topic, each): "it has no leader" for each in partitions if each not in led
    }
    first = _offsets(admin, wanted, int(OffsetSpec.EARLIEST), problems)
    end = _offsets(admin, wanted, int(OffsetSpec.LATEST), problems, isolation=request.isolation)
    if request.start_ms > INT64_MIN:
        # All records before this offset are older.
        timed = _offsets(admin, wanted, max(request.start_ms, 0), problems)
        first = {each: max(first[each], timed[each]) for each in wanted if each in first and each in timed}
    found = {}
    for each in wanted:
        if each in first and each in end:
            start_offset = max(first[each], request.start_offset)
            end_offset = min(end[each], request.end_offset)
            if start_offset < end_offset:
                found[each] = LogRange(first_offset=start_offset, end_offset=end_offset)
    return Ranges(
        by_partition=found,
        warnings=tuple(f"{each} cannot be read: {why}" for each, why in sorted(problems.items())),
    )


def _offsets(
    admin: Admin,
    partitions: Sequence[TopicPartition],
    timestamp: int,
    problems: dict[TopicPartition, str],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Offsets by timestamp or OffsetSpec, without those of partitions that have none. Adds what fails to `problems`."""
    asked = [each for each in partitions if each not in problems]
    if not asked:
        return {}
    try:
        listed = admin.list_offsets(dict.fromkeys(asked, timestamp), isolation=isolation)
    except AdminErrors as failed:
        if not failed.results:
            raise
        problems |= {each: str(error) or error.name for each, error in failed.errors.items()}
        listed = dict(failed.results)
    return {partition: each.offset for partition, each in listed.items() if each.offset is not None}


def make_plan(
    admin: Admin,
    request: SearchRequest,
    consumer_settings: Mapping[str, str],
    *,
    may_read_files: bool,
    first_offsets: Mapping[int, int] | None = None,
) -> Plan:
    """With `first_offsets`, only their partitions are searched, from these offsets on."""
    described = admin.describe_topics([request.topic])[request.topic]
    found = ranges_of(admin, described, request, chosen_partitions(described, request.partitions))
    ranges = found.by_partition
    if first_offsets is not None:
        ranges = {
            each: LogRange(first_offset=first_offsets[each.partition], end_offset=wanted.end_offset)
            for each, wanted in ranges.items()
            if each.partition in first_offsets
        }
    directories = _directories(admin, described, ranges)
    local: dict[TopicPartition, PartitionFiles] = {}
    if may_read_files and described.topic_id is not None and ranges:
        local = _local_files(admin, described, ranges, directories)
    for partition in list(local)[:1]:
        check_may_read(consumer_settings, partition, ranges[partition].first_offset)
    pieces: list[Piece] = []
    for partition, wanted in ranges.items():
        bounds = Bounds(
            start_offset=wanted.first_offset,
            end_offset=wanted.end_offset,
            start_ms=request.start_ms,
            end_ms=request.end_ms,
        )
        if partition in local:
            cut = list(_cut_files(local[partition], bounds, is_committed=request.is_committed))
        else:
            size_bytes = max((each.size_bytes for each in directories.get(partition, ())), default=0)
            cut = list(_cut_range(partition, bounds, size_bytes))
        pieces += cut if request.is_oldest_first else reversed(cut)
    return Plan(
        pieces=tuple(pieces),
        partition_count=len(ranges),
        local_partitions=len(local),
        warnings=found.warnings,
    )


def check_may_read(consumer_settings: Mapping[str, str], partition: TopicPartition, offset: int) -> None:
    """Fetches once: a client that may not read the topic must not read its files either. Raises the broker's error."""
    reader = PartitionReader(
        {
            **consumer_settings,
            "fetch.max.bytes": "1",
            "max.partition.fetch.bytes": "1",
            "fetch.max.wait.ms": "0",
        }
    )
    try:
        answer = reader.wait(reader.begin(partition, offset))
    finally:
        reader.close()
    codes = [answer.error_code, *(each.error_code for topic in answer.responses for each in topic.partitions)]
    for code in codes:
        if code != NONE:
            raise error_for_code(code, f"reading {partition}")


@dataclass(frozen=True, slots=True)
class _Replica:
    broker_id: int
    path: str
    size_bytes: int


def _directories(
    admin: Admin, described: TopicDescription, ranges: Mapping[TopicPartition, LogRange]
) -> dict[TopicPartition, list[_Replica]]:
    """The replicas of the leaders; none where the brokers do not say, for example because an ACL forbids it."""
    leaders = {
        TopicPartition(described.name, each.partition): each.leader
        for each in described.partitions
        if each.leader is not None
    }
    found: dict[TopicPartition, list[_Replica]] = {}
    wanted = [each for each in ranges if each in leaders]
    if not wanted:
        return found
    try:
        by_broker = admin.describe_log_dirs(sorted({leaders[each] for each in wanted}), partitions=wanted)
    except (KafkaError, ExceptionGroup):
        return found
    for broker_id, directories in by_broker.items():
        for path, directory in directories.items():
            for partition, replica in directory.replicas.items():
                if leaders.get(partition) == broker_id and not replica.is_future:
                    found.setdefault(partition, []).append(_Replica(broker_id, path, replica.size_bytes))
    return found


def _local_files(
    admin: Admin,
    described: TopicDescription,
    ranges: Mapping[TopicPartition, LogRange],
    directories: Mapping[TopicPartition, Sequence[_Replica]],
) -> dict[TopicPartition, PartitionFiles]:
    cluster_id = admin.describe_cluster().cluster_id
    if cluster_id is None or described.topic_id is None:
        return {}
    known: dict[tuple[str, int], bool] = {}
    found: dict[TopicPartition, PartitionFiles] = {}
    for partition, wanted in ranges.items():
        for replica in directories.get(partition, ()):
            place = (replica.path, replica.broker_id)
            if place not in known:
                known[place] = belongs_to(replica.path, cluster_id, replica.broker_id)
            if not known[place]:
                continue
            directory = partition_directory(replica.path, partition, described.topic_id)
            files = None if directory is None else _files(directory, wanted)
            if files is not None:
                found[partition] = files
    return found


def _files(directory: str, wanted: LogRange) -> PartitionFiles | None:
    """The files of a partition if they reach to the end of the range and can be read."""
    try:
        listed = find_partitions([directory], lambda _: True)
        if listed and log_end_offset(listed[0]) >= wanted.end_offset:
            return listed[0]
    except (KafkaError, OSError):
        pass
    return None


def _cut_files(files: PartitionFiles, bounds: Bounds, *, is_committed: bool) -> Iterator[Piece]:
    """Parts of segments that hold the range, each from the start of a batch to the start of another."""
    transactions = TransactionReader(fails_on_corruption=False).read(files) if is_committed else None
    for segment in files.segments:
        end_base = INT64_MAX if segment.end_base_offset is None else segment.end_base_offset
        if (
            segment.size_bytes == 0
            or segment.base_offset >= bounds.end_offset
            or end_base <= bounds.start_offset
            or last_offset_before(files, segment, bounds.start_ms) >= end_base - 1
        ):
            continue
        try:
            index = OffsetIndexReader(segment, open_segment(segment.path, segment.inode))
        except KafkaError:
            # Retention or compaction was faster. Its records are gone, or are in another segment.
            continue
        position = index.start_position(bounds.start_offset)
        end_position = segment.size_bytes
        if bounds.end_offset < end_base:
            end_position = index.end_position(bounds.end_offset)
        aborted = None
        if transactions is not None:
            aborted = transactions.aborted_between(segment.base_offset, min(end_base, bounds.end_offset))
        while position < end_position:
            next_position = min(index.position_after(position + PIECE_BYTES - 1), end_position)
            yield Piece(
                partition=files.partition.partition,
                bounds=bounds,
                size_bytes=next_position - position,
                segment=segment,
                start_position=position,
                end_position=next_position,
                aborted=aborted,
            )
            position = next_position


def _cut_range(partition: TopicPartition, bounds: Bounds, size_bytes: int) -> Iterator[Piece]:
    """Ranges of offsets that are fetched, of about the same size."""
    count = bounds.end_offset - bounds.start_offset
    size_bytes = size_bytes or count * ASSUMED_RECORD_BYTES
    pieces = max(1, min(size_bytes // FETCHED_PIECE_BYTES, count))
    for number in range(pieces):
        start_offset = bounds.start_offset + count * number // pieces
        end_offset = bounds.start_offset + count * (number + 1) // pieces
        yield Piece(
            partition=partition.partition,
            bounds=Bounds(
                start_offset=start_offset,
                end_offset=end_offset,
                start_ms=bounds.start_ms,
                end_ms=bounds.end_ms,
            ),
            size_bytes=size_bytes // pieces,
        )
