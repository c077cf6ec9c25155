"""The log manager: opening, making, deleting, moving, retaining, and disks that fail."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.clock import SystemClock
from barnabas.config.log_config import LogConfig
from barnabas.errors import InconsistentTopicId, KafkaStorageError, LogDirNotFound
from barnabas.log.checkpoints import read_offsets
from barnabas.log.directory import DirectoryInUse
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.manager.manager import LogManager
from barnabas.log.manager.open_logs import DuplicateLog
from barnabas.log.manager.settings import ManagerSettings
from barnabas.log.partition.environment import LogEnvironment
from barnabas.log.tools.verify import verify_directory
from barnabas.model import TimestampMs, TopicPartition
from barnabas.records.builder import BatchBuilder
from tests.log.managed import ManagedLogs, values

A0 = TopicPartition("a", 0)


def names(logs: ManagedLogs, directory: str = "/disk") -> list[str]:
    return logs.fs.list_dir(directory)


def test_clean_stop_and_start() -> None:
    logs = ManagedLogs()
    logs.create("a-0", "one", "two")
    logs.create("b-with-dashes-12", "three")
    logs.restart()
    assert values(logs.log("a-0")) == ["one", "two"]
    assert values(logs.log("b-with-dashes-12")) == ["three"]
    assert [progress.loaded_logs for progress in logs.progress] == [1, 2]
    assert all(progress.is_clean and progress.total_logs == 2 for progress in logs.progress)
    # Until the next clean stop a crash is a crash.
    assert ".kafka_cleanshutdown" not in names(logs)
    assert list(verify_directory(logs.fs, "/disk")) == []


@pytest.mark.parametrize("threads", [1, 3])
def test_recovery_after_a_crash(threads: int) -> None:
    logs = ManagedLogs(settings=ManagerSettings(num_recovery_threads_per_data_dir=threads))
    for number in range(7):
        logs.create(f"a-{number}", *(f"{number}-{index}" for index in range(20)))
    logs.kill()
    assert not logs.progress[0].is_clean
    assert max(progress.loaded_logs for progress in logs.progress) == 7
    assert logs.progress[-1].remaining_segments == 0
    for number in range(7):
        assert values(logs.log(f"a-{number}")) == [f"{number}-{index}" for index in range(20)]


def test_recovery_begins_at_the_checkpoint() -> None:
    logs = ManagedLogs()
    log = logs.create("a-0", "one")
    log.roll()
    logs.append(log, "two")
    log.flush()
    logs.manager.checkpoint_all()
    assert read_offsets(logs.fs, "/disk/recovery-point-offset-checkpoint") == {A0: 2}
    # Damage before the recovery point is not looked for.
    file = logs.fs.open("/disk/a-0/00000000000000000000.log", 2)
    file.pwrite(b"\xff", file.size_bytes() - 1)
    logs.kill()
    assert logs.log("a-0").log_end_offset == 2


def test_foreign_directories_are_named_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    logs = ManagedLogs()
    logs.create("a-0", "one")
    logs.manager.close()
    for name in ("notes", "lost+found", "b-0.1234-stray", "__cluster_metadata-0"):
        logs.fs.make_dirs(f"/disk/{name}")
        logs.fs.write_atomically(f"/disk/{name}/file", b"x")
    logs.start()
    assert [str(log.topic_partition) for log in logs.manager.logs()] == ["a-0"]
    for name in ("notes", "lost+found", "b-0.1234-stray", "__cluster_metadata-0"):
        assert logs.fs.read_file(f"/disk/{name}/file") == b"x"
    for name in ("notes", "lost+found", "b-0.1234-stray"):
        assert f"/disk/{name}" in caplog.text


def test_log_beyond_help_is_named_and_the_others_open(caplog: pytest.LogCaptureFixture) -> None:
    logs = ManagedLogs()
    logs.create("a-0", "one")
    logs.create("b-0", "two")
    logs.manager.close()
    logs.fs.write_atomically("/disk/a-0/00000000000000000000.log", bytes(100))
    logs.start()
    assert [str(log.topic_partition) for log in logs.manager.logs()] == ["b-0"]
    assert "/disk/a-0 cannot be opened" in caplog.text
    # Its state is unknown, so the directory was not stopped cleanly.
    logs.manager.close()
    assert ".kafka_cleanshutdown" not in names(logs)


def test_log_beyond_help_is_not_made_again_elsewhere() -> None:
    logs = ManagedLogs(["/disk1", "/disk2"])
    logs.create("a-0", "one", directory="/disk1")
    logs.create("b-0", "two", directory="/disk1")
    logs.manager.close()
    intact = bytes(100)
    logs.fs.write_atomically("/disk1/a-0/00000000000000000000.log", intact)
    logs.start()
    for is_new in (False, True):
        with pytest.raises(KafkaStorageError, match="/disk1/a-0 could not be opened"):
            logs.manager.get_or_create(A0, None, is_new=is_new)
    assert "a-0" not in names(logs, "/disk2")
    assert logs.fs.read_file("/disk1/a-0/00000000000000000000.log") == intact
    # Whoever deletes the topic gets rid of it, and may make it again.
    logs.manager.delete(A0)
    assert "a-0" not in names(logs, "/disk1")
    logs.create("a-0", "new")
    logs.pass_ms(logs.settings.file_delete_delay_ms)
    assert not [name for name in names(logs, "/disk1") if name.endswith("-delete")]
    logs.restart()
    assert values(logs.log("a-0")) == ["new"]


def test_topic_id() -> None:
    logs = ManagedLogs()
    topic_id, other_id = bytes(15) + b"\1", bytes(15) + b"\2"
    logs.create("a-0")
    assert logs.manager.get_or_create(A0, topic_id).topic_id == topic_id
    with pytest.raises(InconsistentTopicId):
        logs.manager.get_or_create(A0, other_id)
    # A controller below protocol level 2.8 knows no ids.
    assert logs.manager.get_or_create(A0, bytes(16)).topic_id == topic_id
    logs.create("a-1")
    assert logs.manager.get_or_create(TopicPartition("a", 1), bytes(16)).topic_id is None


def test_a_high_watermark_does_not_outlive_its_log() -> None:
    logs = ManagedLogs()
    logs.create("a-0", "one", "two")
    logs.manager.checkpoint_high_watermarks()
    logs.manager.delete(A0)
    log = logs.create("a-0")
    builder = BatchBuilder()
    builder.append(TimestampMs(logs.clock.now_ms()), None, b"not committed")
    log.append_as_leader(bytearray(builder.build()), leader_epoch=0)
    logs.kill()
    assert (logs.log("a-0").high_watermark, logs.log("a-0").log_end_offset) == (0, 1)


def test_a_log_of_an_earlier_topic_is_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    logs = ManagedLogs()
    topic_id, other_id = bytes(15) + b"\1", bytes(15) + b"\2"
    logs.create("a-0", "old").assign_topic_id(topic_id)
    logs.manager.checkpoint_all()
    assert logs.manager.get_or_create(A0, topic_id, sets_aside=True).log_end_offset == 1
    new = logs.manager.get_or_create(A0, other_id, sets_aside=True)
    assert (new.topic_id, new.log_end_offset) == (other_id, 0)
    [stray] = [name for name in names(logs) if name.endswith("-stray")]
    assert stray.startswith("a-0.")
    assert b"old" in logs.fs.read_file(f"/disk/{stray}/00000000000000000000.log")
    assert f"/disk/{stray} now" in caplog.text
    logs.append(new, "new")
    logs.kill()
    # Nothing that is written down about the old log counts for the new one, and the stray is left alone.
    assert values(logs.log("a-0")) == ["new"]
    assert stray in names(logs)


def test_new_logs_go_where_there_are_fewest() -> None:
    logs = ManagedLogs(["/disk1", "/disk2", "/disk3"])
    for number in range(7):
        logs.create(f"a-{number}")
    counts = [len([name for name in names(logs, disk) if name.startswith("a-")]) for disk in logs.directories]
    assert sorted(counts) == [2, 2, 3]
    assert logs.create("b-0", directory="/disk2").directory == "/disk2/b-0"
    with pytest.raises(LogDirNotFound):
        logs.create("c-0", directory="/elsewhere")
    logs.restart()
    assert len(logs.manager.logs()) == 8


def test_partition_in_two_directories() -> None:
    logs = ManagedLogs(["/disk1", "/disk2"])
    logs.create("a-0", directory="/disk1")
    logs.manager.close()
    logs.fs.make_dirs("/disk2/a-0")
    with pytest.raises(DuplicateLog, match=r"/disk\d/a-0.*/disk\d/a-0"):
        logs.start()


def test_deletion() -> None:
    logs = ManagedLogs()
    logs.create("a-0", "old")
    log = logs.create("b-0", "other")
    logs.manager.delete(A0)
    assert logs.manager.log(A0) is None
    marked = [name for name in names(logs) if name.endswith("-delete")]
    assert len(marked) == 1
    assert read_offsets(logs.fs, "/disk/recovery-point-offset-checkpoint") == {log.topic_partition: 0}
    # The name is free at once; a reader of the old log is still served.
    logs.create("a-0", "new")
    assert values(logs.log("a-0")) == ["new"]
    logs.pass_ms(logs.settings.file_delete_delay_ms - 1)
    assert marked[0] in names(logs)
    logs.pass_ms(1)
    assert marked[0] not in names(logs)
    assert values(logs.log("a-0")) == ["new"]
    logs.manager.delete(TopicPartition("unknown", 3))


def test_deletion_goes_on_after_a_start() -> None:
    logs = ManagedLogs()
    logs.create("a-0", "old")
    logs.manager.delete(A0)
    logs.kill()
    assert logs.manager.logs() == []
    logs.pass_ms(logs.settings.file_delete_delay_ms)
    assert not [name for name in names(logs) if name.endswith("-delete")]


def test_deleted_records_stay_deleted() -> None:
    logs = ManagedLogs()
    log = logs.create("a-0", "one", "two", "three")
    log.delete_records(2)
    logs.manager.checkpoint_all()
    assert read_offsets(logs.fs, "/disk/log-start-offset-checkpoint") == {A0: 2}
    logs.kill()
    assert values(logs.log("a-0")) == ["three"]
    log = logs.log("a-0")
    log.update_high_watermark(3)
    log.roll()
    log.delete_records(3)
    logs.manager.retain()
    # Where the first segment starts needs no checkpoint.
    logs.restart()
    assert read_offsets(logs.fs, "/disk/log-start-offset-checkpoint") == {}
    assert logs.log("a-0").log_start_offset == 3


def test_records_stay_deleted_whose_files_are_still_there() -> None:
    logs = ManagedLogs()
    log = logs.create("a-0", "one", "two")
    log.update_high_watermark(2)
    log.roll()
    log.delete_records(2)
    # Retention does the same, and is cut off by a crash before it has marked the files.
    log._local.detach_oldest(1)
    logs.manager.checkpoint_all()
    assert read_offsets(logs.fs, "/disk/log-start-offset-checkpoint") == {A0: 2}
    logs.kill()
    assert logs.log("a-0").segments.base_offsets == [0, 2]
    assert logs.log("a-0").log_start_offset == 2
    logs.manager.retain()
    assert logs.log("a-0").segments.base_offsets == [2]


def test_high_watermarks_are_remembered() -> None:
    logs = ManagedLogs()
    log = logs.create("a-0", "one", "two")
    logs.manager.checkpoint_high_watermarks()
    logs.append(log, "three")
    logs.restart()
    assert logs.log("a-0").high_watermark == 2


def test_retention() -> None:
    logs = ManagedLogs(config=LogConfig(retention_ms=1000))
    log = logs.create("a-0", "old")
    log.roll()
    logs.clock.advance_ms(2000)
    logs.append(log, "new")
    assert logs.manager.retain() == 1
    assert values(log) == ["new"]
    with logs.manager.cleaner.exclusion.paused(A0):
        assert logs.manager.cleaner.exclusion.try_pause(A0)
        logs.manager.cleaner.exclusion.resume(A0)


def test_flushes_when_due() -> None:
    logs = ManagedLogs(config=LogConfig(flush_ms=500))
    log = logs.create("a-0", "one")
    logs.manager.flush_overdue()
    assert log.recovery_point == 0
    logs.clock.advance_ms(500)
    logs.manager.flush_overdue()
    assert log.recovery_point == 1


def test_settings_change_while_open() -> None:
    logs = ManagedLogs()
    log = logs.create("a-0")
    logs.config = replace(logs.config, retention_ms=5)
    logs.manager.update_config("b")
    assert log.config.retention_ms != 5
    logs.manager.update_config("a")
    assert log.config.retention_ms == 5


def test_moving_to_another_directory() -> None:
    logs = ManagedLogs(["/disk1", "/disk2"])
    log = logs.create("a-0", "zero", directory="/disk1")
    log.roll()
    logs.append(log, "one", "two")
    log.delete_records(1)
    logs.manager.cleaner.offsets.update(logs.manager.directory("/disk1"), A0, 1)
    future = logs.manager.create_future(A0, "/disk2")
    assert logs.manager.create_future(A0, "/disk2") is future
    assert [name for name in names(logs, "/disk2") if name.endswith("-future")]
    while not logs.manager.copy_to_future(A0):
        pass
    logs.append(log, "three")
    assert not logs.manager.copy_to_future(A0) or values(future) == ["one", "two", "three"]
    while not logs.manager.copy_to_future(A0):
        pass
    moved = logs.manager.replace_with_future(A0)
    assert logs.log("a-0") is moved is future
    assert moved.directory == "/disk2/a-0"
    assert values(moved) == ["one", "two", "three"]
    assert moved.high_watermark == 4
    assert read_offsets(logs.fs, "/disk2/cleaner-offset-checkpoint") == {A0: 1}
    assert read_offsets(logs.fs, "/disk1/cleaner-offset-checkpoint") == {}
    assert read_offsets(logs.fs, "/disk1/recovery-point-offset-checkpoint") == {}
    logs.pass_ms(logs.settings.file_delete_delay_ms)
    assert not [name for name in names(logs, "/disk1") if name.startswith("a-0")]
    logs.append(moved, "four")
    logs.restart()
    assert values(logs.log("a-0")) == ["one", "two", "three", "four"]


@pytest.mark.parametrize("deleted_while_copied", [False, True])
def test_moving_a_log_that_starts_within_a_batch(deleted_while_copied: bool) -> None:
    logs = ManagedLogs(["/disk1", "/disk2"])
    log = logs.create("a-0", "zero", "one", "two", directory="/disk1")
    logs.append(log, "three")
    if not deleted_while_copied:
        log.delete_records(1)
    future = logs.manager.create_future(A0, "/disk2")
    log.delete_records(1)
    while not logs.manager.copy_to_future(A0):
        pass
    future.advance_log_start_offset(log.log_start_offset)
    moved = logs.manager.replace_with_future(A0)
    assert values(moved) == values(log) == ["zero", "one", "two", "three"][log.log_start_offset :]
    assert (moved.log_start_offset, moved.log_end_offset) == (1, 4)


def test_moving_a_log_whose_segments_have_become_smaller() -> None:
    logs = ManagedLogs(["/disk1", "/disk2"])
    log = logs.create("a-0", "zero", directory="/disk1")
    for number in range(20):
        logs.append(log, str(number))
    logs.config = replace(logs.config, segment_bytes=200)
    logs.manager.update_config("a")
    future = logs.manager.create_future(A0, "/disk2")
    while not logs.manager.copy_to_future(A0):
        pass
    assert len(future.segments) > 5
    assert values(logs.manager.replace_with_future(A0)) == ["zero", *map(str, range(20))]


def test_move_goes_on_after_a_crash_and_can_be_given_up() -> None:
    logs = ManagedLogs(["/disk1", "/disk2", "/disk3"])
    logs.create("a-0", "one", directory="/disk1")
    logs.manager.create_future(A0, "/disk2")
    logs.manager.copy_to_future(A0)
    logs.kill()
    future = logs.manager.log(A0, is_future=True)
    assert future is not None
    assert values(future) == ["one"]
    # Another target: the first attempt is deleted.
    logs.manager.create_future(A0, "/disk3")
    assert not [name for name in names(logs, "/disk2") if name.endswith("-future")]
    logs.manager.delete(A0, is_future=True)
    assert logs.manager.log(A0, is_future=True) is None
    assert values(logs.log("a-0")) == ["one"]
    with pytest.raises(KafkaStorageError):
        logs.manager.copy_to_future(A0)


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_failing_disk_takes_only_its_own_partitions_offline(error_number: int) -> None:
    logs = ManagedLogs(["/disk1", "/disk2"])
    bad = logs.create("a-0", "one", directory="/disk1")
    other = logs.create("a-1", "two", directory="/disk1")
    good = logs.create("b-0", "three", directory="/disk2")
    logs.fs.inject("/disk1", error_number, operations=["write", "sync"])
    with pytest.raises(KafkaStorageError):
        logs.append(bad, "lost")
    assert logs.offline == [("/disk1", [A0, TopicPartition("a", 1)])]
    for log in (bad, other):
        with pytest.raises(KafkaStorageError):
            logs.append(log, "lost")
        assert logs.manager.log(log.topic_partition) is None
    logs.append(good, "four")
    # It may be on the disk that is gone, so it is not made again.
    with pytest.raises(KafkaStorageError, match="/disk1, which is offline"):
        logs.manager.get_or_create(A0, None)
    with pytest.raises(KafkaStorageError, match="/disk1, which is offline"):
        logs.manager.delete(A0)
    assert logs.create("c-0", "five").directory == "/disk2/c-0"
    logs.manager.checkpoint_all()
    logs.manager.close()
    assert ".kafka_cleanshutdown" in names(logs, "/disk2")
    assert ".kafka_cleanshutdown" not in names(logs, "/disk1")
    logs.fs.faults.clear()
    logs.kill()
    assert values(logs.log("a-0")) == ["one"]
    assert values(logs.log("a-1")) == ["two"]
    assert values(logs.log("b-0")) == ["three", "four"]


def test_disk_that_fails_at_the_start() -> None:
    logs = ManagedLogs(["/disk1", "/disk2"])
    logs.create("a-0", "one", directory="/disk1")
    logs.create("b-0", "two", directory="/disk2")
    logs.manager.close()
    logs.fs.inject("/disk1", errno.EIO, operations=["read", "list", "open"])
    logs.start()
    assert logs.offline[0][0] == "/disk1"
    assert [str(log.topic_partition) for log in logs.manager.logs()] == ["b-0"]
    logs.manager.close()
    logs.fs.inject("/disk2", errno.EIO)
    with pytest.raises(KafkaStorageError, match="no log directory can be used: cannot open /disk1"):
        logs.start()


def test_disk_that_fails_at_a_checkpoint() -> None:
    logs = ManagedLogs(["/disk1", "/disk2"])
    logs.create("a-0", "one", directory="/disk1")
    logs.fs.inject("/disk1", errno.EIO, operations=["rename"])
    logs.manager.checkpoint_all()
    assert logs.offline == [("/disk1", [A0])]


def real_manager(path: Path) -> LogManager:
    return LogManager(
        [str(path)],
        environment=LogEnvironment(fs=DiskFileSystem(), clock=SystemClock()),
        config_of=lambda topic: LogConfig(),
    )


def test_directory_belongs_to_one_manager(tmp_path: Path) -> None:
    first = real_manager(tmp_path)
    first.open()
    with pytest.raises(DirectoryInUse):
        real_manager(tmp_path).open()
    first.close()
    second = real_manager(tmp_path)
    second.open()
    second.close()


def test_reopened_logs_hold_few_files(tmp_path: Path) -> None:
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("needs /proc to count open files")
    manager = real_manager(tmp_path)
    manager.open()
    for number in range(30):
        manager.get_or_create(TopicPartition("t", number), None, is_new=True)
    manager.close()
    before = len(list(descriptors.iterdir()))
    manager = real_manager(tmp_path)
    manager.open()
    assert len(manager.logs()) == 30
    assert len(list(descriptors.iterdir())) <= before + 5
    manager.close()
