"""Ends transactions on partitions of this broker: the coordinator has decided, and each partition gets a marker.

A marker on a partition of `__consumer_offsets` also decides the offsets that groups have committed in the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.broker.group_runtime import GroupRuntime
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.clock import Clock
from barnabas.errors import KafkaError
from barnabas.model import TopicPartition

MarkersWritten = Callable[[dict[TopicPartition, KafkaError | None]], None]


class TransactionMarkers:
    def __init__(self, replicas: ReplicaManager, groups: GroupRuntime, clock: Clock) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock

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
        raise NotImplementedError
