"""Markers for partitions of other brokers: batched, one request at a time, and each with one report."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from barnabas.broker.coordinators import destinations
from barnabas.broker.coordinators.remote_markers import RemoteMarkers
from barnabas.broker.waiting.tasks import Tasks
from barnabas.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    NotCoordinator,
    NotLeaderOrFollower,
    TransactionCoordinatorFenced,
)
from barnabas.model import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from barnabas.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from barnabas.transactions.markers import Markers
from tests.broker.coordinators.other_brokers import OtherBrokers, settle

LEADER = BrokerId(2)
EPOCH = 5
TIMEOUT_MS = 30_000
PARTITIONS = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))

Results = dict[TopicPartition, KafkaError | None]


class Cluster:
    def __init__(self) -> None:
        self.brokers = OtherBrokers()
        self.topics = {"kept": 1}
        self.store_error: KafkaError | None = None
        self.epochs: dict[str, int] = {}
        self.tasks = Tasks()
        self.version: int | None = None
        self.remote = RemoteMarkers(
            self.brokers,
            self.tasks,
            self._partition_count,
            timeout_ms=TIMEOUT_MS,
            version=lambda: self.version,
        )
        self.remote.begin(lambda id_, epoch: self.epochs.get(id_, EPOCH) == epoch)

    async def _partition_count(self, name: str) -> int:
        if self.store_error is not None:
            raise self.store_error
        return self.topics.get(name, 0)

    def send(self, number: int, partitions: tuple[TopicPartition, ...] = PARTITIONS) -> list[Results]:
        """Ends the transaction of producer `number`."""
        markers = Markers(
            transactional_id=f"id-{number}",
            producer_id=ProducerId(number),
            producer_epoch=ProducerEpoch(3),
            is_commit=number % 2 == 0,
            partitions=partitions,
            version=2,
        )
        reports: list[Results] = []
        self.remote.send(LEADER, markers, EPOCH, partitions, reports.append)
        return reports


def run(test: Callable[[Cluster], Awaitable[None]]) -> None:
    async def start() -> None:
        cluster = Cluster()
        await test(cluster)
        await cluster.tasks.stop()

    asyncio.run(start())


def written(*producers: int, **codes: int) -> WriteTxnMarkersResponse:
    """All partitions have the marker, except those of a topic with a code."""
    topics = [
        WritableTxnMarkerTopicResult(
            name=name,
            partitions=[
                WritableTxnMarkerPartitionResult(partition_index=index, error_code=codes.get(name, 0))
                for topic, index in PARTITIONS
                if topic == name
            ],
        )
        for name in ("a", "b")
    ]
    return WriteTxnMarkersResponse(
        markers=[WritableTxnMarkerResult(producer_id=each, topics=topics) for each in producers]
    )


def test_a_marker_says_what_has_ended_and_in_which_epoch() -> None:
    async def test(cluster: Cluster) -> None:
        reports = cluster.send(4)
        sent = await cluster.brokers.answer(written(4))
        assert (sent.broker_id, sent.purpose, sent.api_name) == (LEADER, "markers", "WriteTxnMarkers")
        assert sent.timeout_ms == TIMEOUT_MS
        [marker] = sent.request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (4, 3, EPOCH)
        assert (marker.transaction_result, marker.transaction_version) == (True, 2)
        assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [
            ("a", [0, 1]),
            ("b", [0]),
        ]
        assert reports == [dict.fromkeys(PARTITIONS)]

    run(test)


@pytest.mark.parametrize("version", [None, 2])
def test_the_version_is_that_of_the_moment(version: int | None) -> None:
    async def test(cluster: Cluster) -> None:
        cluster.version = version
        cluster.send(4)
        sent = await cluster.brokers.answer(written(4))
        assert sent.version == version

    run(test)


def test_what_comes_during_a_request_goes_with_the_next_one() -> None:
    async def test(cluster: Cluster) -> None:
        first, second = cluster.send(1), cluster.send(2)
        await cluster.brokers.next()
        third, fourth = cluster.send(3), cluster.send(4)
        sent = await cluster.brokers.answer(written(1, 2))
        assert [each.producer_id for each in sent.request.markers] == [1, 2]
        assert (len(first), len(second), third, fourth) == (1, 1, [], [])
        sent = await cluster.brokers.answer(written(4, 3))
        assert [each.producer_id for each in sent.request.markers] == [3, 4]
        assert third == fourth == first == second == [dict.fromkeys(PARTITIONS)]
        assert not cluster.brokers.sent
        assert len(cluster.tasks) == 0

    run(test)


def test_each_partition_has_its_own_error() -> None:
    async def test(cluster: Cluster) -> None:
        reports = cluster.send(1)
        await cluster.brokers.answer(
            written(1, a=NotLeaderOrFollower.code, b=TransactionCoordinatorFenced.code)
        )
        [results] = reports
        assert [type(results[key]) for key in PARTITIONS] == [
            NotLeaderOrFollower,
            NotLeaderOrFollower,
            TransactionCoordinatorFenced,
        ]

    run(test)


def test_a_request_that_fails_and_an_answer_that_lacks_a_producer_fail_their_markers() -> None:
    async def test(cluster: Cluster) -> None:
        reports = cluster.send(1)
        await cluster.brokers.answer(NetworkException("gone"))
        assert {type(each) for each in reports[0].values()} == {NetworkException}
        reports = cluster.send(1)
        await cluster.brokers.answer(written(2))
        assert {type(each) for each in reports[0].values()} == {NetworkException}

    run(test)


def test_markers_of_a_coordinator_that_is_gone_are_not_sent() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.send(1)
        await cluster.brokers.next()
        gone, kept = cluster.send(2), cluster.send(3)
        cluster.epochs["id-2"] = EPOCH + 1
        await cluster.brokers.answer(written(1))
        assert {type(each) for each in gone[0].values()} == {NotCoordinator}
        sent = await cluster.brokers.answer(written(3))
        assert [each.producer_id for each in sent.request.markers] == [3]
        assert kept == [dict.fromkeys(PARTITIONS)]

    run(test)


def test_a_transaction_waits_once_in_a_queue() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.send(1)
        await cluster.brokers.next()
        older, newer = cluster.send(2), cluster.send(2)
        assert {type(each) for each in older[0].values()} == {NotCoordinator}
        await cluster.brokers.answer(written(1))
        await cluster.brokers.answer(written(2))
        assert newer == [dict.fromkeys(PARTITIONS)]

    run(test)


def test_a_request_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destinations, "PARTITIONS_MAX", 7)

    async def test(cluster: Cluster) -> None:
        reports = [cluster.send(number) for number in range(4)]
        many = cluster.send(9, tuple(TopicPartition("many", index) for index in range(20)))
        asked = []
        for _ in range(3):
            sent = await cluster.brokers.answer(written(*range(4)))
            asked.append([each.producer_id for each in sent.request.markers])
        assert asked == [[0, 1], [2, 3], [9]]
        assert [len(each) for each in reports] == [1, 1, 1, 1]
        assert len(many) == 1

    run(test)


def test_a_report_that_fails_keeps_no_other_from_its_own() -> None:
    async def test(cluster: Cluster) -> None:
        markers = Markers(
            transactional_id="id-1",
            producer_id=ProducerId(1),
            producer_epoch=ProducerEpoch(3),
            is_commit=True,
            partitions=PARTITIONS,
            version=0,
        )

        def fail(results: Results) -> None:
            raise ValueError

        cluster.remote.send(LEADER, markers, EPOCH, PARTITIONS, fail)
        reports = cluster.send(2)
        await cluster.brokers.answer(written(1, 2))
        assert len(reports) == 1

    run(test)


def test_a_missing_partition_counts_as_deleted_if_the_store_says_so() -> None:
    async def test(cluster: Cluster) -> None:
        reports: list[Results] = []
        kept, deleted = TopicPartition("kept", 0), TopicPartition("deleted", 0)
        # Of a topic that was deleted, and made again with one partition.
        beyond = TopicPartition("kept", 1)
        cluster.remote.settle_missing([kept, beyond, deleted], reports.append)
        await settle()
        assert reports[0][deleted] is None
        assert reports[0][beyond] is None
        assert isinstance(reports[0][kept], LeaderNotAvailable)
        cluster.store_error = CoordinatorNotAvailable("no store")
        cluster.remote.settle_missing([deleted], reports.append)
        await settle()
        assert isinstance(reports[1][deleted], CoordinatorNotAvailable)

    run(test)
