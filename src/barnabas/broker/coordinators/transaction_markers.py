"""Ends transactions on partitions of this broker: the coordinator has decided, and each partition gets a marker.

A marker on a partition of `__consumer_offsets` also decides the offsets that groups have committed in the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.broker.coordinators.group_runtime import OFFSETS_TOPIC, GroupRuntime
from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.waiting.purgatory import DelayedOperation
from barnabas.clock import Clock
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from barnabas.log.partition.append import AppendInfo
from barnabas.model import ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from barnabas.records.builder import end_transaction_marker
from barnabas.records.layout import ControlRecordType
from barnabas.records.policy import AppendOrigin

MarkersWritten = Callable[[dict[TopicPartition, KafkaError | None]], None]


class TransactionMarkers:
    def __init__(
        self, replicas: ReplicaManager, groups: GroupRuntime, clock: Clock, *, timeout_ms: int
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        # For so long the replicas in sync have time to write a marker.
        self._timeout_ms = timeout_ms

    def write_markers(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        partitions: Iterable[TopicPartition],
        then: MarkersWritten,
        *,
        transaction_version: int = 0,
    ) -> None:
        """Appends a marker to each partition. `then` is called exactly once, perhaps before this returns.

        It gets, for each partition, None where the marker is committed and otherwise what kept it from that. From
        transaction version 2 on a marker has to have a later epoch than the transaction's records.
        """
        marker = end_transaction_marker(
            control_type=ControlRecordType.COMMIT if commit else ControlRecordType.ABORT,
            timestamp=TimestampMs(self._clock.now_ms()),
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(producer_epoch),
            coordinator_epoch=coordinator_epoch,
        )
        results: dict[TopicPartition, KafkaError | None] = {}
        waiting: list[tuple[Partition, int]] = []
        for key in partitions:
            try:
                partition = self._replicas.partition(key.topic, key.partition)
                if key.topic == OFFSETS_TOPIC:
                    info = self._end_offset_commits(
                        key.partition, marker, ProducerId(producer_id), commit, transaction_version
                    )
                else:
                    info = _append(partition, marker, transaction_version)
                results[key] = None
                if partition.leader_log().high_watermark <= info.last_offset:
                    waiting.append((partition, info.last_offset + 1))
            except KafkaError as error:
                results[key] = error
        if not waiting:
            then(results)
            return
        self._replicas.waiting_produces.try_complete_else_watch(
            _AwaitedMarkers(self._timeout_ms, waiting, results, then),
            [partition.topic_partition for partition, _ in waiting],
        )

    def _end_offset_commits(
        self, index: int, marker: bytes, producer_id: ProducerId, commit: bool, transaction_version: int
    ) -> AppendInfo:
        try:
            shell = self._groups.shell_at(index)
        except (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator) as error:
            # A transaction's coordinator knows partitions and their leaders, not coordinators of groups.
            raise NotLeaderOrFollower(str(error)) from error
        info = _append(shell.partition, marker, transaction_version)
        shell.coordinator.transaction_ended(producer_id, is_committed=commit)
        return info


class _AwaitedMarkers(DelayedOperation):
    """Markers that are written here and not yet by all replicas in sync."""

    def __init__(
        self,
        timeout_ms: int,
        waiting: list[tuple[Partition, int]],
        results: dict[TopicPartition, KafkaError | None],
        then: MarkersWritten,
    ) -> None:
        super().__init__(timeout_ms)
        self._waiting = waiting
        self._results = results
        self._then = then

    def try_complete(self) -> bool:
        self._waiting = [each for each in self._waiting if not self._is_done(*each)]
        return not self._waiting and self.force_complete()

    def _is_done(self, partition: Partition, end_offset: int) -> bool:
        try:
            return partition.leader_log().high_watermark >= end_offset
        except KafkaError as error:
            self._results[partition.topic_partition] = error
            return True

    def on_complete(self) -> None:
        for partition, _ in self._waiting:
            self._results[partition.topic_partition] = RequestTimedOut(
                "the replicas in sync did not all write the marker in time"
            )
        self._then(self._results)


def _append(partition: Partition, marker: bytes, transaction_version: int) -> AppendInfo:
    return partition.append(
        marker, ACKS_ALL, AppendOrigin.COORDINATOR, transaction_version=transaction_version
    )
