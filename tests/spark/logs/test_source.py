"""Log directories read without a broker: the rows are what a consumer reads, whatever state the files are in."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan
from pyspark.sql.types import LongType, StructField, StructType

from barnabas.errors import InvalidConfig
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.partition.read import Isolation
from barnabas.log.reader.partition_files import SegmentGone
from barnabas.log.tools.dump import dump_file
from barnabas.records.layout import CompressionType
from barnabas.records.record import Record
from tests.log.compacted import CompactedLog
from tests.sampling import seeds
from tests.spark.log_reading import Reading, read_rows
from tests.spark.log_writing import COMPRESSIONS, EPOCH, START_MS, Writer, flip, offsets, save, time_of


def test_rows_have_the_columns_of_a_topic(tmp_path: Path) -> None:
    Writer(tmp_path).segment(1, records=7)
    rows = read_rows(tmp_path, includeHeaders=True)
    assert rows[1] == {
        "key": b"key-1",
        "value": b"value-1 " * 5,
        "topic": "numbers",
        "partition": 0,
        "offset": 1,
        "timestamp": time_of(1),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "none", "value": None}],
    }
    assert (rows[0]["key"], rows[0]["headers"], rows[6]["value"]) == (None, None, None)
    assert list(read_rows(tmp_path)[0]) == [name for name in rows[0] if name != "headers"]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_format_and_compression_is_read_in_splits_of_any_size(tmp_path: Path, magic: int) -> None:
    writer = Writer(tmp_path)
    for _ in range(3):
        writer.segment(40, magic=magic, compressions=COMPRESSIONS[: 5 if magic == 2 else 4])
    whole = Reading(tmp_path)
    split = Reading(tmp_path, splitBytes=4096)
    assert len(whole.tasks) == 1
    assert len(split.tasks) == 6
    rows = whole.rows()
    assert offsets(rows) == list(range(writer.end_offset))
    assert [row["value"] for row in rows if row["offset"] % 7 != 6] == [
        b"value-%d " % number * 5 for number in range(writer.end_offset) if number % 7 != 6
    ]
    assert split.rows() == rows


def test_small_partitions_share_a_task_and_directories_are_read_together(tmp_path: Path) -> None:
    for disk, number in (("a", 0), ("a", 1), ("b", 2)):
        Writer(tmp_path / disk, f"numbers-{number}").segment(1)
    Writer(tmp_path / "a", "__consumer_offsets-0").segment(1)
    (tmp_path / "a" / "not a partition").mkdir()
    reading = Reading(f"{tmp_path / 'a'}, {tmp_path / 'b'}")
    assert [(row["partition"], row["offset"]) for row in reading.rows()] == [
        (partition, offset) for partition in range(3) for offset in range(5)
    ]
    assert len(reading.tasks) == 1
    assert {row["partition"] for row in read_rows(tmp_path / "a" / "numbers-1")} == {1}


def test_of_replicas_the_most_advanced_is_read(tmp_path: Path) -> None:
    Writer(tmp_path / "a").segment(1)
    Writer(tmp_path / "b").segment(3)
    assert len(read_rows(f"{tmp_path / 'a'},{tmp_path / 'b'}")) == 15
    # It is ahead, but of an older epoch: what it has more is not the partition's.
    (tmp_path / "a" / "numbers-0" / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
    (tmp_path / "b" / "numbers-0" / "leader-epoch-checkpoint").write_text("0\n1\n2 0\n")
    assert len(read_rows(f"{tmp_path / 'a'},{tmp_path / 'b'}")) == 5


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, {"numbers", "numbers.more"}),
        ({"topics": "numbers"}, {"numbers"}),
        ({"topics": "__state, numbers"}, {"numbers", "__state"}),
        ({"topicPattern": "num.*"}, {"numbers", "numbers.more"}),
        ({"partitions": '{"numbers.more":[0]}'}, {"numbers.more"}),
    ],
)
def test_topics_are_chosen(tmp_path: Path, chosen: dict[str, str], expected: set[str]) -> None:
    for name in ("numbers-0", "numbers.more-0", "__state-0", "deleted-0.abc-delete"):
        Writer(tmp_path, name).segment(1)
    assert {row["topic"] for row in read_rows(tmp_path, **chosen)} == expected


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, (0, 600)),
        ({"startingOffsets": '{"numbers":{"0":203}}'}, (203, 600)),
        ({"endingOffsets": '{"numbers":{"0":203}}'}, (0, 203)),
        ({"startingOffsets": '{"numbers":{"0":-2}}', "endingOffsets": '{"numbers":{"0":-1}}'}, (0, 600)),
        ({"startingOffsets": "latest"}, (0, 0)),
        ({"startingTimestamp": START_MS + 33, "endingTimestamp": START_MS + 333}, (33, 333)),
        ({"startingOffsetsByTimestamp": f'{{"numbers":{{"0":{START_MS + 599}}}}}'}, (599, 600)),
        ({"startingTimestamp": START_MS + 600}, (0, 0)),
        ({"endingTimestamp": START_MS + 600}, (0, 600)),
        ({"endingTimestamp": START_MS - 1}, (0, 0)),
    ],
)
def test_offsets_and_times_bound_what_is_read(
    tmp_path: Path, bounds: dict[str, object], expected: tuple[int, int]
) -> None:
    writer = Writer(tmp_path)
    for _ in range(3):
        writer.segment(40)
    assert offsets(read_rows(tmp_path, splitBytes=4096, **bounds)) == list(range(*expected))


def test_filters_leave_segments_and_batches_out(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for _ in range(10):
        path = writer.segment(40)
        last = START_MS + writer.end_offset - 1
        path.with_suffix(".timeindex").write_bytes(last.to_bytes(8, "big") + (199).to_bytes(4, "big"))
    Writer(tmp_path, "numbers-1").segment(1)
    # The broker has synced the files up to here, so their time indexes are complete.
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nnumbers 0 2000\n")

    def files(reading: Reading) -> set[int]:
        return {int(Path(piece.segment.path).stem) for task in reading.tasks for piece in task.pieces}

    by_offset = Reading(
        tmp_path,
        filters=[
            GreaterThanOrEqual(("offset",), 1203),
            LessThan(("offset",), 1250),
            EqualTo(("partition",), 0),
        ],
    )
    assert files(by_offset) == {1200}
    assert offsets(by_offset.rows()) == list(range(1203, 1250))
    by_time = Reading(
        tmp_path,
        filters=[
            EqualTo(("partition",), 0),
            GreaterThan(("timestamp",), time_of(1777)),
            In(("topic",), ("numbers",)),
        ],
    )
    assert files(by_time) == {1600, 1800}
    assert offsets(by_time.rows()) == list(range(1778, 2000))
    assert by_time.filters_left == by_offset.filters_left == []
    before = Reading(tmp_path, filters=[LessThan(("timestamp",), time_of(3)), EqualTo(("partition",), 0)])
    assert offsets(before.rows()) == [0, 1, 2]
    assert Reading(tmp_path, filters=[EqualTo(("topic",), "other")]).rows() == []


def test_only_columns_that_the_schema_names_are_made(tmp_path: Path) -> None:
    Writer(tmp_path).segment(2)
    schema = StructType([StructField("position", LongType()), StructField("offset", LongType())])
    rows = read_rows(tmp_path, schema=schema, includeFile=True)
    assert rows[7] == {"position": rows[7]["position"], "offset": 7}
    late = Reading(
        tmp_path, schema=schema, includeFile=True, filters=[GreaterThan(("timestamp",), time_of(7))]
    )
    assert offsets(late.rows()) == [8, 9]
    with pytest.raises(InvalidConfig, match="there is no column 'position'; there are key, value, topic"):
        read_rows(tmp_path, schema=schema)


def test_each_row_tells_the_file_and_the_position_of_its_batch(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    paths = [writer.segment(3), writer.segment(3)]
    for row in read_rows(tmp_path, includeFile=True):
        assert row["file"] == str(paths[row["offset"] // 15])
        assert row["position"] == writer.positions[row["offset"] // 5 * 5]


def test_batches_are_told_of_as_the_dump_tells_of_them(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    path = writer.segment(10)
    flip(path, writer.positions[35] + 70)
    rows = read_rows(tmp_path, mode="batches")
    dumped = [row for row in dump_file(DiskFileSystem(), str(path)) if "fault" not in row or "magic" in row]
    assert len(rows) == len(dumped) == 10
    names = {
        "baseOffset": "base_offset",
        "lastOffset": "last_offset",
        "recordCount": "count",
        "sizeBytes": "size_bytes",
        "magic": "magic",
        "compression": "compression",
        "leaderEpoch": "partition_leader_epoch",
        "producerId": "producer_id",
        "producerEpoch": "producer_epoch",
        "baseSequence": "base_sequence",
        "isTransactional": "is_transactional",
        "isControl": "is_control",
        "crcOk": "is_valid",
        "position": "position",
    }
    for row, dump in zip(rows, dumped, strict=True):
        assert {name: row[name] for name in names} == {name: dump[key] for name, key in names.items()}
        assert row["maxTimestamp"] == EPOCH + timedelta(milliseconds=dump["max_timestamp"])
        assert (row["file"], row["topic"], row["partition"]) == (str(path), "numbers", 0)
    assert [row["baseOffset"] for row in rows if not row["crcOk"]] == [35]
    assert "checksum" in rows[7]["error"]


def test_what_is_appended_after_planning_is_not_read(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    path = writer.segment(3)
    reading = Reading(tmp_path)
    with path.open("ab") as log:
        log.write(writer.batch(5, CompressionType.NONE, 2))
    assert offsets(reading.rows()) == list(range(15))
    assert offsets(read_rows(tmp_path)) == list(range(20))


def test_a_file_that_was_deleted_is_read_as_long_as_it_is_there(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    first = writer.segment(3)
    writer.segment(3)
    reading = Reading(tmp_path)
    lenient = Reading(tmp_path, failOnDataLoss=False)
    first.rename(first.with_name(first.name + ".deleted"))
    assert offsets(reading.rows()) == list(range(30))
    first.with_name(first.name + ".deleted").unlink()
    with pytest.raises(SegmentGone, match="deleted or compacted after it was listed; run the query again"):
        reading.rows()
    assert offsets(lenient.rows()) == list(range(15, 30))


def test_a_file_that_was_compacted_meanwhile_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    path = writer.segment(30)
    reading = Reading(tmp_path, splitBytes=4096)
    cleaned = path.with_name(path.name + ".swap")
    cleaned.write_bytes(path.read_bytes()[writer.positions[75] :])
    keeper = path.with_name("keeps-the-inode")
    path.rename(keeper)
    cleaned.rename(path)
    with pytest.raises(SegmentGone):
        reading.rows()


def test_records_before_the_start_of_the_log_are_not_read(tmp_path: Path) -> None:
    Writer(tmp_path).segment(10)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nnumbers 0 23\n")
    assert offsets(read_rows(tmp_path)) == list(range(23, 50))
    (tmp_path / "log-start-offset-checkpoint").write_text("nonsense")
    assert offsets(read_rows(tmp_path)) == list(range(50))


def as_rows(records: list[Record]) -> list[tuple[Any, ...]]:
    return [
        (record.offset, record.key, record.value, EPOCH + timedelta(milliseconds=record.timestamp))
        for record in records
    ]


@pytest.mark.parametrize("seed", seeds(12, fast=3))
def test_histories_of_transactions_and_compaction_are_read_as_a_consumer_reads_them(
    tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    log = CompactedLog()
    for step in range(120):
        choice = rng.random()
        producer = rng.randrange(-1, 4)
        if choice < 0.6:
            records = [(b"key-%d" % rng.randrange(20), rng.randbytes(30)) for _ in range(rng.randrange(1, 5))]
            is_transactional = producer >= 0 and (producer in log.transaction_of or rng.random() < 0.8)
            log.append(
                *records,
                producer_id=producer,
                transactional=is_transactional,
                compression=rng.choice(COMPRESSIONS),
            )
        elif choice < 0.85:
            if producer in log.transaction_of:
                log.end_transaction(producer, commits=rng.random() < 0.5)
        elif choice < 0.88:
            log.roll()
        elif choice < 0.9 and step > 40:
            log.clean()
        elif choice < 0.93:
            log.log.flush()
        elif choice < 0.95:
            log.kill()
    root = tmp_path / "running"
    save(log, root)
    if rng.random() < 0.5:
        log.reopen()
        root = tmp_path / "stopped"
        save(log, root)
    if rng.random() < 0.3:
        (root / "recovery-point-offset-checkpoint").unlink()
    for isolation, level in (
        ("read_uncommitted", Isolation.HIGH_WATERMARK),
        ("read_committed", Isolation.TXN_COMMITTED),
    ):
        rows = read_rows(root, isolation=isolation, splitBytes=4096)
        told = [(row["offset"], row["key"], row["value"], row["timestamp"]) for row in rows]
        assert told == as_rows(log.records(level)), isolation


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topic": "x"}, "no option 'topic'; did you mean topics"),
        ({"subscribe": "x"}, "named by topics"),
        ({"kafka.bootstrap.servers": "x"}, "format barnabas reads from one"),
        ({"topics": "x", "topicPattern": "x"}, "topics and topicPattern are given"),
        ({"topics": ","}, "topics names no topic"),
        ({"topics": "absent"}, "topics=absent: not in"),
        ({"topicPattern": "("}, "no regular expression"),
        ({"topicPattern": "absent"}, "no topic that topicPattern matches"),
        ({"partitions": "[0]"}, "it takes JSON such as"),
        ({"partitions": '{"numbers":[7]}'}, "partitions names numbers-7"),
        ({"startingOffsets": "first"}, "it takes earliest, latest or JSON"),
        ({"startingOffsets": '{"numbers":{"9":1}}'}, "startingOffsets names numbers-9"),
        ({"startingTimestamp": "yesterday"}, "whole number of milliseconds"),
        ({"isolation": "serializable"}, "it takes read_uncommitted or read_committed"),
        ({"onCorruption": "ignore"}, "it takes fail or rows or skip"),
        ({"mode": "rows"}, "it takes records or batches"),
        ({"splitBytes": "1"}, "it takes a size from 4096 on, such as 128m"),
        ({"includeHeaders": "yes"}, "it takes true or false"),
    ],
)
def test_what_is_wrong_with_options_is_told_in_one_sentence(
    tmp_path: Path, options: dict[str, str], told: str
) -> None:
    Writer(tmp_path).segment(1)
    with pytest.raises(InvalidConfig) as raised:
        read_rows(tmp_path, **options)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_paths_that_are_none_are_told_of(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="No such file or directory; name a broker's log directory"):
        read_rows(tmp_path / "absent")
    with pytest.raises(InvalidConfig, match="has no directories of partitions"):
        read_rows(tmp_path)
    writer = Writer(tmp_path, "numbers-0")
    writer.segment(1)
    os.rename(writer.directory, tmp_path / "numbers")
    with pytest.raises(InvalidConfig, match="named neither topic-partition"):
        read_rows(tmp_path / "numbers")
    with pytest.raises(InvalidConfig, match="path is missing"):
        read_rows(" ")


def test_options_take_sizes_with_units(tmp_path: Path) -> None:
    Writer(tmp_path).segment(200)
    assert len(Reading(tmp_path, splitBytes="4k").tasks) > len(Reading(tmp_path, splitBytes="1m").tasks)
    assert json.dumps(offsets(read_rows(tmp_path, splitBytes="8KB"))) == json.dumps(list(range(1000)))
