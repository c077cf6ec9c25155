"""Markers for partitions that other brokers lead.

They go to each broker in WriteTxnMarkers requests, one at a time. Every marker has one report: the partitions that have
it, and why the others do not. The coordinator repeats those, and finds their leaders again. A marker whose coordinator
has lost its role in the meantime is not sent: the next coordinator sends it, in a later epoch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.broker.coordinators.destinations import Destinations, Peers, Report, report
from barnabas.broker.waiting.tasks import Tasks
from barnabas.errors import (
    NONE,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    NotCoordinator,
    error_for_code,
)
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from barnabas.transactions.markers import Markers

MARKERS: Final = "markers"

# Whether this broker coordinates the transactional id, in the epoch.
IsCoordinator = Callable[[str, int], bool]
# How many partitions a topic has in the cluster, whatever this broker's metadata says; 0 if there is no such topic.
# Raises KafkaError if that is unknown.
PartitionCount = Callable[[str], Awaitable[int]]


class _Marker(NamedTuple):
    """The end of a transaction on the partitions that one broker leads."""

    markers: Markers
    coordinator_epoch: int
    partitions: Sequence[TopicPartition]
    then: Report

    @property
    def transactional_id(self) -> str:
        return self.markers.transactional_id

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    def fail(self, error: KafkaError) -> None:
        report(self.then, dict.fromkeys(self.partitions, error))


class RemoteMarkers:
    def __init__(
        self,
        peers: Peers,
        tasks: Tasks,
        partition_count: PartitionCount,
        *,
        timeout_ms: int,
        version: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`version` is the one of WriteTxnMarkers; None means that of the protocol level."""
        self._peers = peers
        self._tasks = tasks
        self._partition_count = partition_count
        self._timeout_ms = timeout_ms
        self._version = version
        self._is_coordinator: IsCoordinator = _always
        self._destinations: Destinations[_Marker] = Destinations(tasks, self._write)

    def begin(self, is_coordinator: IsCoordinator) -> None:
        self._is_coordinator = is_coordinator

    def send(
        self,
        broker_id: BrokerId,
        markers: Markers,
        coordinator_epoch: int,
        partitions: Sequence[TopicPartition],
        then: Report,
    ) -> None:
        """Sends markers to the leader of the partitions. `then` is called once, later."""
        before = self._destinations.waiting(broker_id, markers.transactional_id)
        self._destinations.add(broker_id, _Marker(markers, coordinator_epoch, partitions, then))
        if before is not None:
            before.fail(NotCoordinator("the coordinator was loaded again"))

    def settle_missing(self, partitions: Sequence[TopicPartition], then: Report) -> None:
        """For partitions that the metadata does not have: those that were deleted with their topic need no marker.

        A broker that has just started may not have all metadata yet, so the store is asked.
        """
        self._tasks.start(self._settle_missing(partitions, then))

    async def _settle_missing(self, partitions: Sequence[TopicPartition], then: Report) -> None:
        counts: dict[str, int | KafkaError] = {}
        for name in dict.fromkeys(each.topic for each in partitions):
            try:
                counts[name] = await self._partition_count(name)
            except KafkaError as error:
                counts[name] = error
        report(then, {each: _why_missing(each, counts[each.topic]) for each in partitions})

    async def _write(self, broker_id: BrokerId, batch: list[_Marker]) -> None:
        wanted = []
        for each in batch:
            if self._is_coordinator(each.transactional_id, each.coordinator_epoch):
                wanted.append(each)
            else:
                each.fail(NotCoordinator(f"{each.transactional_id} is coordinated in another epoch now"))
        if not wanted:
            return
        request = WriteTxnMarkersRequest(markers=[_request_of(each) for each in wanted])
        try:
            link = self._peers.link(broker_id, MARKERS)
            answer: WriteTxnMarkersResponse = await link.ask(
                "WriteTxnMarkers", request, version=self._version(), timeout_ms=self._timeout_ms
            )
        except KafkaError as error:
            for each in wanted:
                each.fail(error)
            return
        results = _results(answer)
        for each in wanted:
            of_producer = results.get(each.markers.producer_id, {})
            missing = NetworkException(f"broker {broker_id} did not report on the marker")
            report(each.then, {key: of_producer.get(key, missing) for key in each.partitions})


def _always(transactional_id: str, coordinator_epoch: int) -> bool:
    return True


def _why_missing(at: TopicPartition, count: int | KafkaError) -> KafkaError | None:
    if isinstance(count, KafkaError):
        return count
    # A topic that was made again may have fewer partitions than before.
    return LeaderNotAvailable(f"{at} has no known leader") if at.partition < count else None


def _request_of(marker: _Marker) -> WritableTxnMarker:
    markers = marker.markers
    return WritableTxnMarker(
        producer_id=markers.producer_id,
        producer_epoch=markers.producer_epoch,
        transaction_result=markers.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in _by_topic(marker.partitions).items()
        ],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=markers.version,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def _results(answer: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, KafkaError | None]]:
    return {
        marker.producer_id: {
            TopicPartition(topic.name, each.partition_index): (
                None if each.error_code == NONE else error_for_code(each.error_code)
            )
            for topic in marker.topics
            for each in topic.partitions
        }
        for marker in answer.markers
    }
