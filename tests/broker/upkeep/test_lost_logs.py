"""Directories of partitions, or whole log directories, that vanish while a broker is down, or while it runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from barnabas.errors import CoordinatorLoadInProgress, KafkaStorageError, NotCoordinator
from barnabas.log.names import PARTITION_REGISTER, RECOVERY_POINT_CHECKPOINT
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from tests.broker.group_requests import commit, fetch_offsets, wait_for_coordinator
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, fetch, produce, values
from tests.broker.running import RunningBroker
from tests.sampling import sample
from tests.waiting import wait_until

TOPIC = "topic"
PARTITIONS = 4
SMALL = {"log.index.size.max.bytes": "4096", "offsets.topic.num.partitions": "1"}


def fill(client: RawClient) -> None:
    create_topic(client, TOPIC, PARTITIONS, retention_ms="-1")
    for partition in range(PARTITIONS):
        assert produce(client, TOPIC, batch(b"%d" % partition), partition=partition).error_code == 0


def check(client: RawClient, offline: set[int]) -> None:
    for partition in range(PARTITIONS):
        found = fetch(client, TOPIC, 0, partition=partition)
        if partition in offline:
            answer = produce(client, TOPIC, batch(b"new"), partition=partition)
            assert (found.error_code, answer.error_code) == (KafkaStorageError.code,) * 2
        else:
            assert (found.error_code, values(found.records)) == (0, [b"%d" % partition])


@pytest.fixture(params=["stopped", "killed"])
def directory(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """What a broker has left behind."""
    with RunningBroker(tmp_path / "stopped", SMALL) as broker, broker.client() as client:
        fill(client)
        # What a process that is killed leaves is what others see while it runs.
        shutil.copytree(tmp_path / "stopped", tmp_path / "killed")
    return tmp_path / str(request.param)


@pytest.mark.parametrize("how", ["directory", "content"])
def test_a_partition_that_vanished_is_offline(
    directory: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    saved = shutil.copytree(directory / f"{TOPIC}-1", directory.with_name("saved"))
    shutil.rmtree(directory / f"{TOPIC}-1")
    if how == "content":
        (directory / f"{TOPIC}-1").mkdir()
    for _ in range(2):
        caplog.clear()
        with RunningBroker(directory, SMALL) as broker, broker.client() as client:
            check(client, offline={1})
        assert f"the log {directory / f'{TOPIC}-1'} has vanished" in caplog.text
        assert f"--override barnabas.accept.loss={directory / f'{TOPIC}-1'}" in caplog.text
    shutil.copytree(saved, directory / f"{TOPIC}-1", dirs_exist_ok=True)
    with RunningBroker(directory, SMALL) as broker, broker.client() as client:
        check(client, offline=set())


@pytest.mark.parametrize("found_by", ["a look at the directory", "a write"])
def test_a_partition_that_vanishes_while_the_broker_runs(
    tmp_path: Path, found_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its open files could be written without end, and nothing of it would be left. The other partitions go on."""
    looks = found_by == "a look at the directory"
    settings = {
        **SMALL,
        "log.initial.task.delay.ms": "50" if looks else "3600000",
        "log.flush.offset.checkpoint.interval.ms": "50" if looks else "3600000",
        "log.segment.bytes": "1048576" if looks else "300",
    }
    broker = RunningBroker(tmp_path / "data", settings)
    with broker, broker.client() as client:
        fill(client)
        shutil.rmtree(broker.directory / f"{TOPIC}-1")
        wait_until(
            lambda: (
                produce(client, TOPIC, batch(bytes(200)), partition=1).error_code == KafkaStorageError.code
            ),
            "the partition is still written to",
        )
        check(client, offline={1})
        # The line comes after the partition is closed to clients, from another thread.
        line = f"the log {broker.directory / f'{TOPIC}-1'} has vanished"
        wait_until(lambda: line in caplog.text, "the loss is logged")
    assert "is not stopped cleanly" not in caplog.text
    with broker, broker.client() as client:
        check(client, offline={1})
    accepted = {**settings, "barnabas.accept.loss": str(broker.directory / f"{TOPIC}-1")}
    with RunningBroker(broker.directory, accepted) as broker, broker.client() as client:
        assert produce(client, TOPIC, batch(b"new"), partition=1).base_offset == 0


def test_a_partition_that_vanished_with_the_store_is_offline(directory: Path) -> None:
    """The topic is adopted from its other partitions."""
    shutil.rmtree(directory / f"{TOPIC}-1")
    for path in directory.glob("barnabas-store*"):
        path.unlink()
    for _ in range(2):
        with RunningBroker(directory, SMALL) as broker, broker.client() as client:
            check(client, offline={1})


def test_a_partition_that_is_given_up_begins_again(directory: Path) -> None:
    shutil.rmtree(directory / f"{TOPIC}-1")
    accepting = {**SMALL, "barnabas.accept.loss": str(directory / f"{TOPIC}-1")}
    with RunningBroker(directory, accepting) as broker, broker.client() as client:
        answer = produce(client, TOPIC, batch(b"1"), partition=1)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        check(client, offline=set())
    with RunningBroker(directory, SMALL) as broker, broker.client() as client:
        check(client, offline=set())


def test_a_topic_with_a_partition_that_vanished_can_be_deleted(directory: Path) -> None:
    shutil.rmtree(directory / f"{TOPIC}-1")
    with RunningBroker(directory, SMALL) as broker, broker.client() as client:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=30_000)
        [answer] = client.ask("DeleteTopics", 6, request).responses
        assert answer.error_code == 0
        fill(client)
        check(client, offline=set())
    with RunningBroker(directory, SMALL) as broker, broker.client() as client:
        check(client, offline=set())


def test_a_partition_that_was_never_made_comes_up_by_itself(directory: Path) -> None:
    """As after a crash between the store's change and the making of the log."""
    shutil.rmtree(directory / f"{TOPIC}-3")
    for name in (PARTITION_REGISTER, RECOVERY_POINT_CHECKPOINT):
        path = directory / name
        if path.exists():
            lines = path.read_text().splitlines(keepends=True)
            kept = [line for line in lines if f"{TOPIC} 3 " not in line]
            if name == RECOVERY_POINT_CHECKPOINT:
                kept[1] = f"{len(kept) - 2}\n"
            path.write_text("".join(kept))
    with RunningBroker(directory, SMALL) as broker, broker.client() as client:
        assert produce(client, TOPIC, batch(b"3"), partition=3).base_offset == 0
        check(client, offline=set())


@pytest.fixture
def two(tmp_path: Path) -> tuple[list[Path], dict[str, str]]:
    """Two log directories with partitions in both."""
    directories = [tmp_path / "a", tmp_path / "b"]
    overrides = {**SMALL, "log.dirs": ",".join(map(str, directories))}
    with RunningBroker(tmp_path, overrides) as broker, broker.client() as client:
        fill(client)
    return directories, overrides


def in_directory(directory: Path) -> set[int]:
    return {number for number in range(PARTITIONS) if (directory / f"{TOPIC}-{number}").is_dir()}


@pytest.mark.parametrize("which", sample([0, 1], fast=1))
@pytest.mark.parametrize("how", ["not mounted", "gone", "not named"])
def test_a_log_directory_that_is_not_there_is_offline(
    two: tuple[list[Path], dict[str, str]],
    tmp_path: Path,
    which: int,
    how: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    directories, overrides = two
    missing = directories[which]
    offline = in_directory(missing)
    assert 0 < len(offline) < PARTITIONS
    missing.rename(tmp_path / "elsewhere")
    without = dict(overrides)
    if how == "not mounted":
        missing.mkdir()
    elif how == "not named":
        without["log.dirs"] = str(directories[1 - which])
    for _ in range(2):
        caplog.clear()
        with RunningBroker(tmp_path, without) as broker, broker.client() as client:
            assert describe_retention(broker) == "-1"
            check(client, offline=offline)
            # A topic that is new goes where there is a disk.
            if "new" not in broker.server.broker.image.topics:
                create_topic(client, "new")
            assert produce(client, "new", batch(b"value")).error_code == 0
        assert f"--override barnabas.accept.loss={missing}" in caplog.text
        assert str(missing) in caplog.text
        # Nothing is written to where a disk should be mounted.
        assert not missing.exists() or not list(missing.iterdir())
    if missing.exists():
        missing.rmdir()
    (tmp_path / "elsewhere").rename(missing)
    with RunningBroker(tmp_path, overrides) as broker, broker.client() as client:
        check(client, offline=set())
    shutil.rmtree(missing)
    accepting = {**without, "barnabas.accept.loss": str(missing)}
    with RunningBroker(tmp_path, accepting) as broker, broker.client() as client:
        for partition in offline:
            assert produce(client, TOPIC, batch(b"%d" % partition), partition=partition).base_offset == 0
        check(client, offline=set())
    with RunningBroker(tmp_path, without) as broker, broker.client() as client:
        check(client, offline=set())


def describe_retention(broker: RunningBroker) -> str:
    return broker.server.broker.image.topic_config(TOPIC)["retention.ms"]


def test_offsets_that_vanished_are_no_offsets_of_none(tmp_path: Path) -> None:
    """A consumer that was told of no offset would begin at the beginning, or at the end."""
    with RunningBroker(tmp_path / "data", SMALL) as broker, broker.client() as client:
        fill(client)
        wait_for_coordinator(client, "group")
        assert commit(client, "group", {(TOPIC, 0): 1}) == {(TOPIC, 0): 0}
    shutil.rmtree(tmp_path / "data" / "__consumer_offsets-0")
    with RunningBroker(tmp_path / "data", SMALL) as broker, broker.client() as client:
        wait_until(lambda: fetch_offsets(client, "group", {TOPIC: [0]}) != CoordinatorLoadInProgress.code)
        assert fetch_offsets(client, "group", {TOPIC: [0]}) == NotCoordinator.code
        assert commit(client, "group", {(TOPIC, 0): 1}) == {(TOPIC, 0): NotCoordinator.code}
        check(client, offline=set())
