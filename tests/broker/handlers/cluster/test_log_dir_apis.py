"""Log directories: what clients of a running broker see of them, and partitions that move between them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from barnabas import errors
from barnabas.log import names
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import TopicPartition
from barnabas.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tests.broker.config_requests import BROKER, DELETE, SET, TOPIC, incremental
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, fetch, produce, values
from tests.broker.running import RunningBroker
from tests.waiting import wait_until

MOVES_BOUND = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [str(tmp_path_factory.mktemp(name)) for name in ("first", "second")]


@pytest.fixture(scope="module")
def broker(directories: list[str]) -> Iterator[RunningBroker]:
    with two_directories(directories) as running:
        yield running


def two_directories(directories: list[str], settings: Mapping[str, str] | None = None) -> RunningBroker:
    return RunningBroker(
        Path(directories[0]),
        {
            "log.dirs": ",".join(directories),
            "broker.id": "0",
            "log.segment.delete.delay.ms": "0",
            **(settings or {}),
        },
    )


def describe(client: RawClient, *partitions: TopicPartition, version: int = 5) -> dict[str, Any]:
    """Results by directory."""
    topics = [DescribableLogDirTopic(topic=at.topic, partitions=[at.partition]) for at in partitions]
    response = client.ask("DescribeLogDirs", version, DescribeLogDirsRequest(topics=topics or None))
    assert response.error_code == 0
    return {result.log_dir: result for result in response.results}


def found(client: RawClient, at: TopicPartition) -> dict[str, Any]:
    """A partition's logs by directory."""
    return {
        path: partition
        for path, result in describe(client, at).items()
        for topic in result.topics
        for partition in topic.partitions
    }


def place(client: RawClient, at: TopicPartition) -> str:
    """The directory of the log that is in use."""
    [path] = [path for path, partition in found(client, at).items() if not partition.is_future_key]
    return path


def other(directories: list[str], path: str) -> str:
    return directories[1 - directories.index(path)]


def move(client: RawClient, at: TopicPartition, path: str, *, version: int = 2) -> int:
    topics = [AlterReplicaLogDirTopic(name=at.topic, partitions=[at.partition])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
    [topic] = client.ask("AlterReplicaLogDirs", version, request).results
    [answer] = topic.partitions
    assert (topic.topic_name, answer.partition_index) == at
    error_code: int = answer.error_code
    return error_code


def delete(client: RawClient, topic: str) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=30_000)
    [answer] = client.ask("DeleteTopics", 6, request).responses
    error_code: int = answer.error_code
    return error_code


def metrics_of(broker: RunningBroker) -> list[str]:
    """The names of the metrics, with their labels."""

    async def render() -> str:
        return broker.server.broker.metrics.render()

    return [line.rpartition(" ")[0] for line in broker.call(render).splitlines() if line[0] != "#"]


def wait_for_move(client: RawClient, at: TopicPartition, path: str) -> None:
    wait_until(lambda: list(found(client, at)) == [path])


def produce_until_stored(client: RawClient, topic: str, records: bytes) -> None:
    """As a client does: a partition that is being swapped is asked again."""

    def is_stored() -> bool:
        error_code = produce(client, topic, records).error_code
        assert error_code in (0, errors.NotLeaderOrFollower.code)
        return bool(error_code == 0)

    wait_until(is_stored)


def everything(client: RawClient, topic: str, count: int) -> list[bytes | None]:
    records: list[bytes | None] = []
    while len(records) < count:
        answer = fetch(client, topic, len(records))
        assert answer.error_code in (0, errors.NotLeaderOrFollower.code)
        records += values(answer.records)
    return records


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_describe_log_dirs(client: RawClient, directories: list[str], version: int) -> None:
    topic = f"described-v{version}"
    create_topic(client, topic, partitions=2)
    records = batch(b"x" * 100)
    produce(client, topic, records)
    at = TopicPartition(topic, 0)
    results = describe(client, at, version=version)
    assert sorted(results) == sorted(directories)
    path = place(client, at)
    assert results[other(directories, path)].topics == []
    [described] = results[path].topics
    [partition] = described.partitions
    assert (described.name, partition.partition_index) == at
    assert (partition.partition_size, partition.offset_lag, partition.is_future_key) == (
        len(records),
        0,
        False,
    )
    for result in results.values():
        assert result.error_code == 0
        assert not result.is_cordoned
        if version >= 4:
            assert 0 < result.usable_bytes <= result.total_bytes
        else:
            assert result.total_bytes == -1


def test_all_partitions_and_partitions_that_are_not_there(client: RawClient, directories: list[str]) -> None:
    create_topic(client, "all", partitions=4)
    per_directory = [
        sum(len(topic.partitions) for topic in result.topics if topic.name == "all")
        for result in describe(client).values()
    ]
    # New partitions go where there are fewest.
    assert per_directory == [2, 2]
    assert found(client, TopicPartition("all", 4)) == {}
    assert found(client, TopicPartition("absent", 0)) == {}


@pytest.mark.parametrize("version", range(3))
def test_a_partition_moves_with_all_its_records(
    broker: RunningBroker, client: RawClient, directories: list[str], version: int
) -> None:
    topic = f"moved-v{version}"
    create_topic(client, topic, segment_bytes="20000")
    sent = [b"%d" % index * 1_000 for index in range(50)]
    for value in sent:
        produce(client, topic, batch(value))
    at = TopicPartition(topic, 0)
    source = place(client, at)
    target = other(directories, source)
    assert move(client, at, target, version=version) == 0
    wait_for_move(client, at, target)
    assert everything(client, topic, len(sent)) == sent
    # It goes on where it was, and comes back.
    produce_until_stored(client, topic, batch(b"more"))
    assert move(client, at, source, version=version) == 0
    wait_for_move(client, at, source)
    assert everything(client, topic, len(sent) + 1) == [*sent, b"more"]
    assert os.path.isdir(os.path.join(source, str(at)))
    wait_until(lambda: not [name for name in os.listdir(target) if name.startswith(topic)])


@pytest.mark.slow
def test_a_move_under_load_loses_nothing(
    broker: RunningBroker, client: RawClient, directories: list[str]
) -> None:
    create_topic(client, "busy", segment_bytes="100000")
    at = TopicPartition("busy", 0)
    sent: list[bytes] = []
    stopping = threading.Event()

    def produce_on() -> None:
        with broker.client("producer") as producer:
            while not stopping.is_set():
                sent.append(b"%d" % len(sent))
                produce_until_stored(producer, "busy", batch(sent[-1] + b" " * 1_000))

    thread = threading.Thread(target=produce_on)
    thread.start()
    try:
        wait_until(lambda: len(sent) > 20)
        for _ in range(2):
            target = other(directories, place(client, at))
            assert move(client, at, target) == 0
            wait_for_move(client, at, target)
    finally:
        stopping.set()
        thread.join()
    received = everything(client, "busy", len(sent))
    assert [bytes(value or b"").strip() for value in received] == sent


def test_a_move_leaves_deleted_records_and_takes_producers_along(
    client: RawClient, directories: list[str]
) -> None:
    create_topic(client, "kept")
    assert produce(client, "kept", batch(b"a", b"b", b"c")).base_offset == 0
    idempotent = batch(b"d", producer_id=7, producer_epoch=0, base_sequence=0)
    assert produce(client, "kept", idempotent).base_offset == 3
    deletion = DeleteRecordsTopic(
        name="kept", partitions=[DeleteRecordsPartition(partition_index=0, offset=3)]
    )
    client.ask("DeleteRecords", 2, DeleteRecordsRequest(topics=[deletion], timeout_ms=30_000))
    at = TopicPartition("kept", 0)
    target = other(directories, place(client, at))
    assert move(client, at, target) == 0
    wait_for_move(client, at, target)
    wait_until(lambda: fetch(client, "kept", 3).error_code == 0)
    answer = fetch(client, "kept", 3)
    assert (answer.log_start_offset, answer.high_watermark) == (3, 4)
    assert fetch(client, "kept", 0).error_code == errors.OffsetOutOfRange.code
    assert values(answer.records) == [b"d"]
    # A producer that has not heard of its success tries again.
    again = produce(client, "kept", idempotent)
    assert (again.error_code, again.base_offset) == (0, 3)
    assert fetch(client, "kept", 3).high_watermark == 4


def test_a_move_waits_for_whoever_reads_the_log(
    broker: RunningBroker, client: RawClient, directories: list[str]
) -> None:
    """As a coordinator does that begins on the partition."""
    create_topic(client, "read")
    at = TopicPartition("read", 0)
    produce(client, "read", batch(b"a"))
    path = place(client, at)
    partition = broker.server.broker.replicas.partition(*at)
    partition.readers = 1
    assert move(client, at, other(directories, path)) == 0
    wait_until(lambda: [each.offset_lag for each in found(client, at).values()] == [0, 0])
    produce(client, "read", batch(b"b"))
    assert place(client, at) == path
    partition.readers = 0
    wait_for_move(client, at, other(directories, path))
    assert everything(client, "read", 2) == [b"a", b"b"]


def test_a_slow_move_is_seen_stopped_and_cut_short_by_deletion(
    broker: RunningBroker, client: RawClient, directories: list[str]
) -> None:
    for topic in ("slow", "doomed"):
        create_topic(client, topic, max_message_bytes="3000000")
        for _ in range(3):
            produce(client, topic, batch(b"x" * 900_000))
    assert incremental(client, BROKER, "0", (MOVES_BOUND, SET, "1")) == (0, None)
    slow, doomed = TopicPartition("slow", 0), TopicPartition("doomed", 0)
    source = place(client, slow)
    target = other(directories, source)
    doomed_source = place(client, doomed)
    assert move(client, slow, target) == 0
    assert move(client, doomed, other(directories, doomed_source)) == 0
    wait_until(lambda: found(client, slow)[target].partition_size > 0)
    future = found(client, slow)[target]
    assert future.is_future_key
    assert future.offset_lag in (1, 2)
    assert found(client, slow)[source].offset_lag == 0
    # Each log has metrics of its own.
    metrics = metrics_of(broker)
    for labels in ('topic="slow",partition="0"', 'topic="slow",partition="0",is_future="true"'):
        assert metrics.count(f"kafka_log_log_size{{{labels}}}") == 1
    # The settings of a topic hold for its copy too.
    incremental(client, TOPIC, "slow", ("segment.bytes", SET, "3000000"))
    copy = broker.server.broker.log_manager.log(slow, is_future=True)
    assert copy is not None
    assert copy.config.segment_bytes == 3_000_000
    # To be where it is ends a move; asking twice for the same changes nothing.
    assert move(client, slow, target) == 0
    assert move(client, slow, source) == 0
    assert list(found(client, slow)) == [source]
    doomed_topics = [DeleteTopicState(name="doomed")]
    answer = client.ask("DeleteTopics", 6, DeleteTopicsRequest(topics=doomed_topics, timeout_ms=30_000))
    assert answer.responses[0].error_code == 0
    assert found(client, doomed) == {}
    wait_until(lambda: not [name for path in directories for name in os.listdir(path) if "doomed" in name])
    assert incremental(client, BROKER, "0", (MOVES_BOUND, DELETE, None)) == (0, None)
    assert values(fetch(client, "slow", 0).records) == [b"x" * 900_000]


@pytest.mark.parametrize(
    ("topic", "path", "error"),
    [
        ("known", "/no/such/directory", errors.LogDirNotFound),
        ("unknown", None, errors.ReplicaNotAvailable),
        ("l" * 249, None, errors.InvalidTopicException),
    ],
)
def test_what_cannot_be_moved(
    client: RawClient, directories: list[str], topic: str, path: str | None, error: type[errors.KafkaError]
) -> None:
    if topic != "unknown":
        create_topic(client, topic)
    assert move(client, TopicPartition(topic, 0), path or directories[0]) == error.code


def test_a_move_goes_on_after_a_restart(tmp_path: Path) -> None:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    at = TopicPartition("resumed", 0)
    with two_directories(directories) as broker, broker.client() as client:
        create_topic(client, "resumed")
        for _ in range(3):
            produce(client, "resumed", batch(b"x" * 900_000))
        incremental(client, BROKER, "0", (MOVES_BOUND, SET, "1"))
        source = place(client, at)
        target = other(directories, source)
        assert move(client, at, target) == 0
        wait_until(lambda: found(client, at)[target].partition_size > 0)
    with two_directories(directories) as broker, broker.client() as client:
        assert found(client, at)[target].is_future_key
        incremental(client, BROKER, "0", (MOVES_BOUND, DELETE, None))
        wait_for_move(client, at, target)
        assert len(everything(client, "resumed", 3)) == 3
    with two_directories(directories) as broker, broker.client() as client:
        assert list(found(client, at)) == [target]
        assert fetch(client, "resumed", 2).high_watermark == 3


def test_a_directory_that_has_failed(tmp_path: Path) -> None:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    with two_directories(directories) as broker, broker.client() as client:
        create_topic(client, "t", partitions=2)
        lost, kept = sorted(
            (TopicPartition("t", index) for index in range(2)),
            key=lambda at: place(client, at) == directories[0],
        )
        manager = broker.server.broker.log_manager

        async def fail() -> None:
            manager.directory(directories[1]).fail(errors.KafkaStorageError("gone"))

        broker.call(fail)
        results = describe(client)
        assert results[directories[1]].error_code == errors.KafkaStorageError.code
        assert results[directories[0]].error_code == 0
        assert list(found(client, kept)) == [directories[0]]
        assert move(client, lost, directories[0]) == errors.KafkaStorageError.code
        assert move(client, kept, directories[1]) == errors.KafkaStorageError.code
        assert produce(client, "t", batch(b"x"), partition=kept.partition).error_code == 0


def test_a_directory_whose_files_cannot_be_looked_at(tmp_path: Path) -> None:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    at = TopicPartition("t", 0)
    with two_directories(directories) as broker, broker.client() as client:
        create_topic(client, "t", segment_bytes="1048576")
        for _ in range(3):
            produce(client, "t", batch(b"x" * 900_000))
        path = place(client, at)
    with two_directories(directories) as broker, broker.client() as client:
        os.remove(os.path.join(path, str(at), names.segment_file(0, names.LOG_SUFFIX)))
        results = describe(client)
        assert results[path].error_code == errors.KafkaStorageError.code
        assert results[other(directories, path)].error_code == 0
        metrics = metrics_of(broker)
        assert 'kafka_log_log_logendoffset{topic="t",partition="0"}' in metrics
        assert not [name for name in metrics if name.startswith("kafka_log_log_size{")]


def test_a_directory_that_fails_while_a_topic_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    with two_directories(directories) as broker, broker.client() as client:
        manager = broker.server.broker.log_manager
        get_or_create = manager.get_or_create

        def then_fail(at: TopicPartition, *arguments: Any, **options: Any) -> PartitionLog:
            made = get_or_create(at, *arguments, **options)
            if at.partition == 3:
                manager.directory(directories[1]).fail(errors.KafkaStorageError("gone"))
            return made

        monkeypatch.setattr(manager, "get_or_create", then_fail)
        create_topic(client, "t", partitions=4)
        answers = [produce(client, "t", batch(b"x"), partition=index).error_code for index in range(4)]
        assert sorted(answers) == [0, 0, errors.KafkaStorageError.code, errors.KafkaStorageError.code]
        # Nobody waits for what did not come about.
        assert delete(client, "t") == errors.KafkaStorageError.code
        create_topic(client, "u")
        assert produce(client, "u", batch(b"x")).error_code == 0


def test_a_deletion_waits_for_a_directory_that_is_offline(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    directories = [str(first), str(second)]
    with two_directories(directories) as broker, broker.client() as client:
        create_topic(client, "t", partitions=2)
        manager = broker.server.broker.log_manager

        async def fail() -> None:
            manager.directory(directories[1]).fail(errors.KafkaStorageError("gone"))

        broker.call(fail)
        assert delete(client, "t") == errors.KafkaStorageError.code
    second.rename(tmp_path / "aside")
    second.write_text("no directory")
    with two_directories(directories) as broker, broker.client() as client:
        create_topic(client, "u")
        assert produce(client, "u", batch(b"x")).error_code == 0
    second.unlink()
    (tmp_path / "aside").rename(second)
    with two_directories(directories) as broker, broker.client() as client:
        assert list(broker.server.broker.image.topics) == ["u"]
        create_topic(client, "t")
        assert fetch(client, "t", 0).high_watermark == 0


def test_a_copy_that_outlives_its_topic(tmp_path: Path) -> None:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    at = TopicPartition("t", 0)
    with two_directories(directories) as broker, broker.client() as client:
        create_topic(client, "t")
        for _ in range(3):
            produce(client, "t", batch(b"o" * 900_000))
        incremental(client, BROKER, "0", (MOVES_BOUND, SET, "1"))
        source = place(client, at)
        target = other(directories, source)
        assert move(client, at, target) == 0
        wait_until(lambda: found(client, at)[target].partition_size > 0)
        manager = broker.server.broker.log_manager

        async def fail() -> None:
            manager.directory(target).fail(errors.KafkaStorageError("gone"))

        broker.call(fail)
        assert delete(client, "t") == 0
        create_topic(client, "t")
        for _ in range(3):
            produce(client, "t", batch(b"n" * 900_000))
        assert place(client, at) == source
    # The directory is well again, and has a copy of the old topic.
    with two_directories(directories) as broker, broker.client() as client:
        incremental(client, BROKER, "0", (MOVES_BOUND, DELETE, None))
        assert list(found(client, at)) == [source]
        assert everything(client, "t", 3) == [b"n" * 900_000] * 3
        wait_until(lambda: not [name for name in os.listdir(target) if name.startswith("t-0")])


@pytest.mark.parametrize("is_removed_at_once", [False, True])
def test_a_copy_does_not_bring_its_topic_back(tmp_path: Path, is_removed_at_once: bool) -> None:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    at = TopicPartition("t", 0)
    settings = {} if is_removed_at_once else {"log.segment.delete.delay.ms": "600000"}
    with two_directories(directories, settings) as broker, broker.client() as client:
        create_topic(client, "t")
        incremental(client, BROKER, "0", (MOVES_BOUND, SET, "1"))
        for _ in range(3):
            produce(client, "t", batch(b"o" * 900_000))
        target = other(directories, place(client, at))
        assert move(client, at, target) == 0
        manager = broker.server.broker.log_manager

        async def fail() -> None:
            manager.directory(target).fail(errors.KafkaStorageError("gone"))

        broker.call(fail)
        assert delete(client, "t") == 0
    with two_directories(directories) as broker:
        assert list(broker.server.broker.image.topics) == []
        wait_until(lambda: not [name for name in os.listdir(target) if name.startswith("t-0")])


def test_a_copy_does_not_keep_what_a_crash_has_taken_from_its_original(tmp_path: Path) -> None:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    at = TopicPartition("crashed", 0)
    with two_directories(directories) as broker, broker.client() as client:
        create_topic(client, "crashed")
        for _ in range(3):
            produce(client, "crashed", batch(b"x" * 900_000))
        incremental(client, BROKER, "0", (MOVES_BOUND, SET, "1"))
        source = place(client, at)
        target = other(directories, source)
        assert move(client, at, target) == 0
        wait_until(lambda: found(client, at)[target].partition_size > 0)
    for path in directories:
        os.remove(os.path.join(path, names.CLEAN_SHUTDOWN))
        os.remove(os.path.join(path, names.RECOVERY_POINT_CHECKPOINT))
    os.truncate(os.path.join(source, str(at), names.segment_file(0, names.LOG_SUFFIX)), 0)
    with two_directories(directories) as broker, broker.client() as client:
        assert {each.partition_size for each in found(client, at).values()} == {0}
        produce_until_stored(client, "crashed", batch(b"new"))
        incremental(client, BROKER, "0", (MOVES_BOUND, DELETE, None))
        wait_for_move(client, at, target)
        assert everything(client, "crashed", 1) == [b"new"]
