"""Ends transactions on partitions of this broker: the coordinator has decided, and each partition gets a marker.

A marker on a partition of `__consumer_offsets` also decides the offsets that groups have committed in the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from barnabas.broker.coordinators.group_runtime import OFFSETS_TOPIC, GroupRuntime
from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.replicated import await_replicated
from barnabas.broker.waiting.turns import AT_ONCE, Turns
from barnabas.clock import Clock
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    NotLeaderOrFollower,
)
from barnabas.log.partition.append import AppendInfo
from barnabas.model import ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from barnabas.records.builder import end_transaction_marker
from barnabas.records.layout import ControlRecordType
from barnabas.records.policy import AppendOrigin

MarkersWritten = Callable[[dict[TopicPartition, KafkaError | None]], None]


class TransactionMarkers:
    def __init__(
        self, replicas: ReplicaManager, groups: GroupRuntime, clock: Clock, turns: Turns, *, timeout_ms: int
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._turns = turns
        # The time for the in-sync replicas to write a marker.
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
        keys = list(partitions)
        written = _Written(then)
        ending = _Ending(marker, ProducerId(producer_id), commit, transaction_version, written)
        if len(keys) <= AT_ONCE:
            for key in keys:
                self._write(ending, key)
            written.complete()
        else:
            self._write_in_turns(ending, keys, 0)

    def _write_in_turns(self, ending: _Ending, keys: list[TopicPartition], start: int) -> None:
        """A transaction may have thousands of partitions: other requests run in between."""
        end_ns = self._turns.end_ns()
        for index in range(start, len(keys)):
            self._write(ending, keys[index])
            if self._turns.is_over(end_ns):
                self._turns.add(partial(self._write_in_turns, ending, keys, index + 1))
                return
        ending.written.complete()

    def _write(self, ending: _Ending, key: TopicPartition) -> None:
        written = ending.written
        try:
            partition = self._replicas.partition(key.topic, key.partition)
            if key.topic == OFFSETS_TOPIC:
                info = self._end_offset_commits(
                    key.partition,
                    ending.marker,
                    ending.producer_id,
                    ending.is_commit,
                    ending.transaction_version,
                )
            else:
                info = _append(partition, ending.marker, ending.transaction_version)
            written.note(key, None)
            if not partition.has_replicated(info.last_offset + 1):
                written.await_replicated(partition, info.last_offset + 1, self._timeout_ms)
        except KafkaError as error:
            written.note(key, error)

    def _end_offset_commits(
        self, index: int, marker: bytes, producer_id: ProducerId, commit: bool, transaction_version: int
    ) -> AppendInfo:
        try:
            shell = self._groups.shell_at(index)
        except (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator) as error:
            # A transaction's coordinator knows partitions and their leaders, not coordinators of groups.
            raise NotLeaderOrFollower(str(error)) from error
        info = _append(shell.partition, marker, transaction_version)
        shell.marker_appended(producer_id, info, is_committed=commit)
        return info


class _Written:
    """How the markers of one call fared. `then` gets it when the last of them is replicated, or cannot be."""

    __slots__ = ("_is_complete", "_results", "_then", "_unreplicated")

    def __init__(self, then: MarkersWritten) -> None:
        self._then = then
        self._results: dict[TopicPartition, KafkaError | None] = {}
        self._unreplicated = 0
        self._is_complete = False

    def note(self, key: TopicPartition, error: KafkaError | None) -> None:
        self._results[key] = error

    def await_replicated(self, partition: Partition, end_offset: int, timeout_ms: int) -> None:
        self._unreplicated += 1
        await_replicated(
            partition, end_offset, timeout_ms, partial(self._note_replicated, partition.topic_partition)
        )

    def _note_replicated(self, key: TopicPartition, error: KafkaError | None) -> None:
        self._results[key] = error
        self._unreplicated -= 1
        self._end()

    def complete(self) -> None:
        """No marker is added any more."""
        self._is_complete = True
        self._end()

    def _end(self) -> None:
        if self._is_complete and not self._unreplicated:
            self._then(self._results)


class _Ending(NamedTuple):
    """What is written to each partition of a transaction."""

    marker: bytes
    producer_id: ProducerId
    is_commit: bool
    transaction_version: int
    written: _Written


def _append(partition: Partition, marker: bytes, transaction_version: int) -> AppendInfo:
    return partition.append(
        marker, ACKS_ALL, AppendOrigin.COORDINATOR, transaction_version=transaction_version
    )
