"""Dumps of the small files and of damaged ones; segments and indexes are held against Kafka's own dumps in golden/."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.log.checkpoints import (
    MetaProperties,
    write_clean_shutdown,
    write_meta_properties,
    write_offsets,
    write_topic_id,
)
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.tools.dump import Row, UnknownFileKind, dump_file
from barnabas.model import Offset, TimestampMs, TopicPartition
from barnabas.records.builder import BatchBuilder
from barnabas.records.layout import CompressionType

FS = DiskFileSystem()


def dump(path: Path, *, with_records: bool = False) -> list[Row]:
    return list(dump_file(FS, str(path), with_records=with_records))


def batch(base_offset: int, *values: bytes | None) -> bytes:
    builder = BatchBuilder(base_offset=Offset(base_offset), compression=CompressionType.ZSTD)
    for value in values:
        builder.append(TimestampMs(1000), b"k", value, (("name", None),))
    return builder.build()


def test_small_files(tmp_path: Path) -> None:
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    write_offsets(FS, str(checkpoint), {TopicPartition("a", 0): 7, TopicPartition("b-c", 12): 1 << 40})
    assert dump(checkpoint) == [
        {"topic": "a", "partition": 0, "offset": 7},
        {"topic": "b-c", "partition": 12, "offset": 1 << 40},
    ]
    metadata = tmp_path / "partition.metadata"
    write_topic_id(FS, str(metadata), bytes(range(16)))
    assert dump(metadata) == [{"topic_id": "AAECAwQFBgcICQoLDA0ODw"}]
    meta = tmp_path / "meta.properties"
    write_meta_properties(FS, str(meta), MetaProperties(broker_id=3, cluster_id="c"))
    [row] = dump(meta)
    assert row == {"version": 0, "cluster_id": "c", "broker_id": 3, "directory_id": None, "log_dirs": []}
    epochs = tmp_path / "leader-epoch-checkpoint"
    epochs.write_text("0\n1\n4 100\n")
    assert dump(epochs) == [{"leader_epoch": 4, "start_offset": 100}]


def test_clean_shutdown(tmp_path: Path) -> None:
    file = tmp_path / ".kafka_cleanshutdown"
    write_clean_shutdown(FS, str(file), 12)
    assert dump(file) == [{"broker_epoch": 12}]
    file.write_text("")
    assert dump(file) == [{"broker_epoch": -1}]


def test_records_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000005.log"
    log.write_bytes(batch(5, b"v", None))
    header, first, second = dump(log, with_records=True)
    assert (header["base_offset"], header["last_offset"]) == (5, 6)
    assert (header["compression"], header["is_valid"]) == ("zstd", True)
    assert (first["key"], first["value"]) == ("6b", "76")
    assert second["value"] is None
    assert second["headers"] == [["name", None]]
    assert len(dump(log)) == 1


def test_damage_ends_a_dump_with_a_fault(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    first, second = batch(0, b"a"), batch(1, b"b")
    log.write_bytes(first + second[:-3])
    assert [row.get("position") for row in dump(log)] == [0, len(first)]
    assert "fault" in dump(log)[-1]
    flipped = bytearray(first)
    flipped[-1] ^= 1
    log.write_bytes(bytes(flipped) + second)
    assert [row["is_valid"] for row in dump(log)] == [False, True]
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(bytes(8) + b"\1\0\0")
    assert dump(index)[-1]["position"] == 8
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n2\na 0 1\n")
    assert "has 1 entries" in dump(checkpoint)[0]["fault"]
    snapshot = tmp_path / "00000000000000000009.snapshot"
    snapshot.write_bytes(b"\0\1")
    assert "less than its header" in dump(snapshot)[0]["fault"]


def test_foreign_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UnknownFileKind, match=r"notes\.txt"):
        dump(tmp_path / "notes.txt")
