"""The register of partitions, and the logs that it misses."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.log.manager.settings import ManagerSettings
from barnabas.log.names import PARTITION_REGISTER, RECOVERY_POINT_CHECKPOINT
from barnabas.log.register import STALE_LINES_MAX, PartitionRegister
from barnabas.model import TopicPartition
from tests.log.managed import ManagedLogs, values
from tests.log.simulated import SimulatedFileSystem

PATH = "/register"
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
REGISTER = f"/disk/{PARTITION_REGISTER}"


def loaded(fs: SimulatedFileSystem, *flushed: TopicPartition) -> set[TopicPartition]:
    return PartitionRegister(fs, PATH).load(dict.fromkeys(flushed, 1))


def test_what_was_made_and_not_removed_is_known() -> None:
    fs = SimulatedFileSystem()
    register = PartitionRegister(fs, PATH)
    assert register.load({}) == set()
    assert not fs.exists(PATH)
    register.add([A0, A1])
    register.add([A0, B0])
    register.remove([A1, TopicPartition("c", 0)])
    assert fs.read_file(PATH).count(b"\n") == 5
    assert loaded(fs) == {A0, B0}
    # A second life goes on where the first has ended.
    register = PartitionRegister(fs, PATH)
    register.load({})
    register.add([A1])
    assert loaded(fs) == {A0, A1, B0}


def test_damage_is_noticed_and_others_fill_in() -> None:
    whole = SimulatedFileSystem()
    register = PartitionRegister(whole, PATH)
    register.load({})
    register.add([A0, A1, B0])
    data = whole.read_file(PATH)
    rng = Random(1)
    for position in range(len(data)):
        fs = whole.clone()
        flipped = bytearray(data)
        flipped[position] ^= 1 << rng.randrange(8)
        fs.write_atomically(PATH, flipped)
        assert loaded(fs, A0, A1, B0) == {A0, A1, B0}
        assert sorted(fs.read_file(PATH).splitlines()) == sorted(data.splitlines())
    for length in range(len(data)):
        fs = whole.clone()
        fs.write_atomically(PATH, data[:length])
        known = loaded(fs)
        assert known <= {A0, A1, B0}
        assert loaded(fs) == known
    fs = whole.clone()
    fs.remove(PATH)
    assert loaded(fs, A0) == {A0}
    assert loaded(fs) == {A0}


def test_after_a_power_cut_only_flushed_logs_are_expected() -> None:
    for seed in range(20):
        fs = SimulatedFileSystem()
        register = PartitionRegister(fs, PATH)
        register.load({})
        register.add([A0, A1, B0])
        register.remove([B0])
        fs = fs.crash(Random(seed))
        assert PartitionRegister(fs, PATH).load({A0: 1, A1: 0}) == {A0}
        # A log that is missed once is missed at every start, whatever the checkpoint has forgotten.
        register = PartitionRegister(fs, PATH)
        register.load({A0: 1})
        register.note_missing([A0])
        register.add([A1])
        fs = fs.crash(Random(seed))
        register = PartitionRegister(fs, PATH)
        assert register.load({}) == {A0}
        register.note_missing([A0])
        (register.add if seed % 2 else register.remove)([A0])
        fs = fs.crash(Random(seed))
        assert loaded(fs) == set()


def test_a_killed_process_loses_no_line() -> None:
    fs = SimulatedFileSystem()
    register = PartitionRegister(fs, PATH)
    register.load({})
    register.add([A0, A1])
    assert loaded(fs.kill()) == {A0, A1}


def test_lines_that_say_nothing_any_more_go() -> None:
    fs = SimulatedFileSystem()
    register = PartitionRegister(fs, PATH)
    register.load({})
    for _ in range(STALE_LINES_MAX):
        register.add([A0])
        register.remove([A0])
    register.add([A1])
    assert loaded(fs) == {A1}
    assert fs.read_file(PATH).count(b"\n") == 2


def two_logs() -> ManagedLogs:
    logs = ManagedLogs()
    logs.create("a-0", "one")
    logs.create("a-1", "two")
    return logs


@pytest.mark.parametrize("stops", [True, False])
@pytest.mark.parametrize("leaves_directory", [True, False])
def test_a_log_that_vanished_is_not_made_again(stops: bool, leaves_directory: bool) -> None:
    logs = two_logs()
    if stops:
        logs.manager.close()
    logs.fs = logs.fs.kill()
    saved = logs.fs.clone()
    logs.fs.remove_tree("/disk/a-0")
    if leaves_directory:
        logs.fs.make_dirs("/disk/a-0")
    logs.start()
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match=r"barnabas\.accept\.loss=/disk/a-0"):
            logs.manager.get_or_create(A0, None)
        assert values(logs.log("a-1")) == ["two"]
        logs.restart()
    lost = logs.fs.clone()
    # Put back, it is as it was.
    logs.manager.close()
    logs.fs = saved
    logs.start()
    assert values(logs.log("a-0")) == ["one"]
    # Given up, it begins again.
    logs.manager.close()
    logs.fs = lost
    for accepted in ("/disk/a-0", "/disk"):
        logs.fs = lost.clone()
        logs.settings = replace(ManagerSettings(), accepted_losses=frozenset({accepted}))
        logs.start()
        assert logs.manager.get_or_create(A0, None).log_end_offset == 0
        logs.settings = ManagerSettings()
        logs.restart()
        assert logs.log("a-0").log_end_offset == 0


def test_a_log_that_vanished_is_missed_after_a_restart_of_the_machine_too() -> None:
    for seed in range(10):
        logs = two_logs()
        logs.restart()
        logs.fs.remove_tree("/disk/a-0")
        logs.fs.sync_dir("/disk")
        for _ in range(3):
            logs.fs = logs.fs.crash(Random(seed))
            logs.start()
            with pytest.raises(KafkaStorageError, match="has vanished"):
                logs.manager.get_or_create(A0, None)
            logs.manager.checkpoint_all()
        logs.settings = replace(ManagerSettings(), accepted_losses=frozenset({"/disk"}))
        logs.start()
        assert logs.manager.get_or_create(A0, None).log_end_offset == 0
        logs.settings = ManagerSettings()
        logs.fs = logs.fs.crash(Random(seed))
        logs.start()
        assert logs.manager.get_or_create(A0, None).log_end_offset == 0


def test_a_topic_with_a_log_that_vanished_can_be_deleted_and_made_again() -> None:
    logs = two_logs()
    logs.fs = logs.fs.kill()
    logs.fs.remove_tree("/disk/a-0")
    logs.start()
    assert logs.manager.delete_all([A0, A1]) == {}
    logs.create("a-0", "new")
    logs.restart()
    assert values(logs.log("a-0")) == ["new"]
    assert logs.manager.log(A1) is None
    assert logs.manager.get_or_create(A1, None).log_end_offset == 0


def test_a_log_that_was_never_made_is_made() -> None:
    logs = two_logs()
    logs.restart()
    assert logs.manager.get_or_create(B0, None).log_end_offset == 0


@pytest.mark.parametrize("leaves_checkpoint", [True, False])
def test_a_directory_without_register_goes_by_its_checkpoint(leaves_checkpoint: bool) -> None:
    """As version 0.1 leaves it."""
    logs = two_logs()
    logs.manager.close()
    for name in (REGISTER, "/disk/a-0/00000000000000000000.log"):
        logs.fs.remove(name)
    if not leaves_checkpoint:
        logs.fs.remove(f"/disk/{RECOVERY_POINT_CHECKPOINT}")
    logs.start()
    if leaves_checkpoint:
        with pytest.raises(KafkaStorageError, match="has vanished"):
            logs.manager.get_or_create(A0, None)
    else:
        assert logs.manager.get_or_create(A0, None).log_end_offset == 0


def test_a_log_that_was_moved_is_not_missed() -> None:
    logs = ManagedLogs(["/disk1", "/disk2"])
    logs.create("a-0", "one", directory="/disk1")
    logs.manager.create_future(A0, "/disk2")
    while not logs.manager.copy_to_future(A0):
        pass
    logs.manager.replace_with_future(A0)
    logs.kill()
    assert values(logs.log("a-0")) == ["one"]
    logs.fs = logs.fs.kill()
    logs.fs.remove_tree("/disk2/a-0")
    logs.start()
    with pytest.raises(KafkaStorageError, match="the log /disk2/a-0 has vanished"):
        logs.manager.get_or_create(A0, None)
