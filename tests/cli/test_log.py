"""`barnabas log` as a person calls it: output, exit codes, directories in every state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.offline.log import log
from barnabas.clock import ManualClock
from barnabas.config.log_config import LogConfig
from barnabas.log.directory import DirectoryInUse
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.manager.manager import LogManager
from barnabas.log.names import BadDirectoryName
from barnabas.log.partition.environment import LogEnvironment
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.log.tools.inspection import Inspection
from barnabas.model import TimestampMs, TopicPartition
from barnabas.records.builder import BatchBuilder

NOW_MS = 1_700_000_000_000


def run(*arguments: object) -> Result:
    return CliRunner().invoke(log, [str(argument) for argument in arguments], catch_exceptions=False)


def partition(folder: Path) -> Path:
    directory = folder / "topic-0"
    directory.mkdir()
    builder = BatchBuilder()
    builder.append(TimestampMs(1000), b"key", b"value")
    (directory / "00000000000000000000.log").write_bytes(builder.build())
    (directory / "00000000000000000000.index").touch()
    (directory / "00000000000000000000.timeindex").write_bytes((1000).to_bytes(8, "big") + bytes(4))
    return directory


def open_manager(directory: Path) -> LogManager:
    manager = LogManager(
        [str(directory)],
        environment=LogEnvironment(fs=DiskFileSystem(), clock=ManualClock(NOW_MS)),
        config_of=lambda topic: LogConfig(segment_bytes=400, index_interval_bytes=100),
    )
    manager.open()
    return manager


def append(opened: PartitionLog, *values: bytes | None) -> None:
    builder = BatchBuilder()
    for value in values:
        builder.append(TimestampMs(NOW_MS), b"k", value, (("h", None),))
    opened.append_as_leader(bytearray(builder.build()), leader_epoch=3)
    opened.update_high_watermark(opened.log_end_offset)


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_dump(tmp_path: Path) -> None:
    file = partition(tmp_path) / "00000000000000000000.log"
    result = run("dump", file)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == str(file)
    assert "base_offset: 0 last_offset: 0 count: 1" in result.stdout
    rows = lines(run("dump", "--json", "--records", file))
    assert (rows[1]["key"], rows[1]["value"]) == (b"key".hex(), b"value".hex())
    file.write_bytes(file.read_bytes()[:-1])
    damaged = run("dump", file)
    assert damaged.exit_code == 1
    assert "position: 0 fault: " in damaged.stdout


def test_verify(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    assert run("verify", tmp_path).exit_code == 0
    assert run("verify", directory).exit_code == 0
    (directory / "00000000000000000000.index").unlink()
    result = run("verify", tmp_path)
    assert result.exit_code == 1
    assert result.stdout == f"{directory}/00000000000000000000.index: position 0: the index is missing\n"
    assert result.stderr == "1 fault\n"


def test_records_and_describe_of_a_directory_in_use(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    opened = manager.get_or_create(TopicPartition("t", 1), bytes(15) + b"\1", is_new=True)
    for number in range(10):
        append(opened, b"%d" % number, None)
    opened.delete_records(3)
    manager.checkpoint_all()
    before = {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")}
    rows = lines(run("records", tmp_path))
    assert [row["offset"] for row in rows] == list(range(3, 20))
    assert rows[1] == {
        "topic": "t",
        "partition": 1,
        "offset": 4,
        "timestamp": NOW_MS,
        "timestamp_type": "CreateTime",
        "key": "6b",
        "value": "32",
        "headers": [["h", None]],
    }
    assert rows[0]["value"] is None
    described = json.loads(
        run("describe", tmp_path, "--json", "--at-ms", NOW_MS, "--times", f"0,{NOW_MS + 1}").stdout
    )
    assert described["topics"]["t"]["id"] == "AAAAAAAAAAAAAAAAAAAAAQ"
    content = described["topics"]["t"]["partitions"]["1"]
    assert content["earliest"] == [3, -1, 3]
    assert content["latest"] == [20, -1, 3]
    assert content["offsets_for_times"] == [[0, [3, NOW_MS, 3]], [NOW_MS + 1, [-1, -1, None]]]
    assert content["leader_epochs"] == [[3, 3]]
    text = run("describe", tmp_path, "--topic", "t").stdout
    assert text.startswith("t-1\n  earliest: [3,-1,3]\n")
    assert {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")} == before
    with pytest.raises(DirectoryInUse):
        run("recover", tmp_path)
    append(opened, b"more")
    manager.close()
    assert len(lines(run("records", tmp_path))) == 18


def test_segments_that_go_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = open_manager(tmp_path)
    opened = manager.get_or_create(TopicPartition("t", 0), None, is_new=True)
    for number in range(12):
        append(opened, b"%030d" % number, None)
    opened.flush()
    monkeypatch.setattr("barnabas.log.tools.inspection.READ_BYTES", 1)
    reading = Inspection(DiskFileSystem(), str(tmp_path), NOW_MS).records(
        TopicPartition("t", 0), Isolation.HIGH_WATERMARK
    )
    found = [next(reading)[1].offset]
    # The broker deletes what lies before offset 16; what was not read yet of it is gone.
    opened.delete_records(16)
    assert manager.retain() >= 2
    found += [record.offset for _, record in reading]
    assert found == sorted(set(found))
    assert found[-8:] == list(range(16, 24))
    manager.close()


def test_recover(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    file = directory / "00000000000000000000.log"
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:30])
    (directory / "00000000000000000000.index").unlink()
    assert run("verify", tmp_path).exit_code == 1
    assert [row["offset"] for row in lines(run("records", tmp_path))] == [0]
    result = run("recover", tmp_path, "--at-ms", NOW_MS)
    assert (result.exit_code, result.stderr) == (0, "1 logs recovered and cleanly shut down\n")
    assert file.read_bytes() == whole
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert run("verify", tmp_path).exit_code == 0


def test_directory_of_one_partition(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    assert [row["offset"] for row in lines(run("records", directory))] == [0]
    assert run("describe", directory).stdout.startswith("topic-0\n")
    with pytest.raises(BadDirectoryName, match="Name the log directory that contains it"):
        run("recover", directory)
    assert sorted(path.suffix for path in directory.iterdir()) == [".index", ".log", ".timeindex"]


def test_bad_arguments(tmp_path: Path) -> None:
    assert run("describe", tmp_path, "--times", "1,x").exit_code == 2
    assert run("records", tmp_path, "--isolation", "none").exit_code == 2
    assert run("verify", tmp_path / "missing").exit_code == 2
    assert run("records", tmp_path).stdout == ""
