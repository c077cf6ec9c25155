"""Log directories as a stream, without Spark: triggers, limits, replays, and logs that change meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from barnabas.errors import InvalidConfig
from barnabas.log.reader.partition_files import find_partitions
from barnabas.log.reader.transactions import TransactionReader
from barnabas.spark.logs.options import parse_options
from barnabas.spark.logs.rows import spark_schema
from barnabas.spark.logs.source import LogDataSource
from barnabas.spark.logs.stream import LogStreamReader
from tests.log.compacted import CompactedLog
from tests.spark.log_writing import Writer, save

ALL = ReadAllAvailable()


def stream(path: Path, **options: object) -> LogStreamReader:
    parsed = parse_options({"path": str(path), **{name: str(value) for name, value in options.items()}})
    return LogStreamReader(parsed, spark_schema(parsed))


def rows(reader: LogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [
        row["offset"]
        for task in reader.partitions(start, end)
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]


def test_a_trigger_reads_what_has_come_since_the_last(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.segment(4)
    reader = stream(tmp_path)
    start = reader.initialOffset()
    assert start == {"numbers": {"0": 0}}
    first = reader.latestOffset(start, ALL)
    assert first == {"numbers": {"0": 20}} == reader.reportLatestOffset()
    writer.segment(4)
    Writer(tmp_path, "numbers-1").segment(1)
    assert rows(reader, start, first) == list(range(20))
    second = reader.latestOffset(first, ALL)
    assert second == {"numbers": {"0": 40, "1": 5}}
    assert rows(reader, first, second) == [*range(20, 40), *range(5)]
    assert reader.latestOffset(second, ALL) == second
    # Another driver that runs the batch again reads the same.
    assert rows(stream(tmp_path), first, second) == [*range(20, 40), *range(5)]


def test_a_trigger_takes_no_more_than_it_may_and_batches_are_cut(tmp_path: Path) -> None:
    Writer(tmp_path).segment(4)
    reader = stream(tmp_path, maxOffsetsPerTrigger=7)
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    assert limit.max_rows == 7
    offset, found = reader.initialOffset(), []
    for _ in range(3):
        end = reader.latestOffset(offset, limit)
        found.append(rows(reader, offset, end))
        offset = end
    assert found == [list(range(7)), list(range(7, 14)), list(range(14, 20))]


def test_available_now_ends_where_the_log_ended_at_first(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.segment(1)
    reader = stream(tmp_path)
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset({}, ALL)
    writer.segment(1)
    assert reader.latestOffset(first, ALL) == first == {"numbers": {"0": 5}}


def test_a_batch_is_in_one_trigger_alone(tmp_path: Path) -> None:
    Writer(tmp_path).segment(4)
    reader = stream(tmp_path, mode="batches")
    told = [
        [
            row["baseOffset"]
            for task in reader.partitions({"numbers": {"0": start}}, {"numbers": {"0": end}})
            for batch in reader.read(task)
            for row in batch.to_pylist()
        ]
        for start, end in ((0, 7), (7, 14), (14, 20))
    ]
    assert told == [[0, 5], [10], [15]]


def test_what_is_not_decided_is_not_read_yet(tmp_path: Path) -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.append((b"b", b"2"), producer_id=1, transactional=True)
    log.append((b"c", b"3"), producer_id=2, transactional=True)
    save(log, tmp_path)
    reader = stream(tmp_path, isolation="read_committed")
    first = reader.latestOffset({}, ALL)
    assert first == {"compacted": {"0": 1}}
    assert rows(reader, {}, first) == [0]
    log.end_transaction(1, commits=False)
    log.append((b"d", b"4"), producer_id=2, transactional=True)
    log.end_transaction(2, commits=True)
    log.append((b"e", b"5"))
    save(log, tmp_path)
    # The marker of what was aborted lies behind: it is still known.
    second = reader.latestOffset(first, ALL)
    assert second == {"compacted": {"0": 7}}
    assert (
        rows(reader, first, second)
        == rows(stream(tmp_path, isolation="read_committed"), first, second)
        == [2, 4, 6]
    )


def test_what_has_expired_is_told_of(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    first = writer.segment(2)
    writer.segment(2)
    reader = stream(tmp_path)
    end = reader.latestOffset({}, ALL)
    first.unlink()
    with pytest.raises(Exception, match="offsets 3 to 9 of numbers-0 have expired; its log begins at 10"):
        reader.partitions({"numbers": {"0": 3}}, end)
    lenient = stream(tmp_path, failOnDataLoss=False)
    assert rows(lenient, {"numbers": {"0": 3}}, end) == list(range(10, 20))


def test_a_stream_has_no_end(tmp_path: Path) -> None:
    Writer(tmp_path).segment(1)
    source = LogDataSource({"path": str(tmp_path), "endingTimestamp": "5"})
    with pytest.raises(InvalidConfig, match="endingTimestamp is given, and a stream has no end"):
        source.streamReader(source.schema())


def test_transactions_that_a_stream_has_passed_are_forgotten(tmp_path: Path) -> None:
    log = CompactedLog()
    for _ in range(20):
        log.append((b"a", b"1"), producer_id=1, transactional=True)
        log.end_transaction(1, commits=False)
    save(log, tmp_path)
    reader = TransactionReader(fails_on_corruption=True)
    (files,) = find_partitions([str(tmp_path)], lambda _: True)
    assert len(reader.read(files).aborted) == 20
    reader.forget_before(31)
    assert [each.last_offset for each in reader.read(files).aborted] == [31, 33, 35, 37, 39]
