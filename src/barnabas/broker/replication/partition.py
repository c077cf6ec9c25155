"""A partition as this broker has it: who leads it, who is in sync, and the log of the replica here.

On one node the replica here is the leader and alone in sync, so the high watermark follows the end of the log at once.
What replication needs (epochs, the in-sync set, the bound it puts on the high watermark) is in place all the same.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.replication.delayed import DelayedOperations
from barnabas.broker.replication.topic_metrics import TopicMetrics
from barnabas.coordination.metadata.image import PartitionImage
from barnabas.errors import (
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)
from barnabas.log.file_system import Data
from barnabas.log.partition.append import AppendInfo
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.producers.state import NO_GUARD
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition
from barnabas.records.policy import AppendOrigin, AppendPolicy
from barnabas.records.validate import ValidatedRecords

ACKS_ALL: Final = -1
ANY_EPOCH: Final = -1


class Partition:
    __slots__ = (
        "_broker_id",
        "delayed",
        "in_sync",
        "is_leader",
        "is_offline",
        "leader",
        "leader_epoch",
        "log",
        "metrics",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        broker_id: BrokerId,
        delayed: DelayedOperations,
        metrics: TopicMetrics,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._broker_id = broker_id
        self.delayed = delayed
        self.metrics = metrics
        # None until the log is open, and again when its directory has failed.
        self.log: PartitionLog | None = None
        self.is_offline = False
        self.is_leader = False
        self.leader = BrokerId(-1)
        self.leader_epoch = LeaderEpoch(-1)
        self.replicas: tuple[BrokerId, ...] = ()
        self.in_sync: tuple[BrokerId, ...] = ()

    def apply(self, image: PartitionImage) -> None:
        """Takes over what the controller has decided. A leader of a new epoch begins it where its log ends."""
        begins_epoch = image.leader == self._broker_id and image.leader_epoch > self.leader_epoch
        self.leader = image.leader
        self.is_leader = image.leader == self._broker_id
        self.leader_epoch = image.leader_epoch
        self.replicas = image.replicas
        self.in_sync = image.isr
        if begins_epoch and self.log is not None:
            self._begin_epoch(self.log)

    @property
    def leads_in_epoch(self) -> LeaderEpoch | None:
        """The leader epoch if this broker leads the partition; else None, because a follower assigns no epochs."""
        return self.leader_epoch if self.is_leader else None

    def open(self, log: PartitionLog) -> None:
        self.log = log
        if self.is_leader:
            self._begin_epoch(log)

    def take_offline(self) -> None:
        self.log = None
        self.is_offline = True

    def _begin_epoch(self, log: PartitionLog) -> None:
        log.assign_epoch_start(self.leader_epoch)
        if self._is_alone:
            log.advance_high_watermark(log.log_end_offset)

    def leader_log(self, current_leader_epoch: int = ANY_EPOCH) -> PartitionLog:
        """The log, for whoever has to ask the leader and may have told which epoch it believes in."""
        log = self.log
        if log is None:
            if self.is_offline:
                raise KafkaStorageError(f"the log directory of {self.topic_partition} is offline")
            raise NotLeaderOrFollower(f"the log of {self.topic_partition} is still being opened")
        if not self.is_leader:
            raise NotLeaderOrFollower(f"broker {self.leader} leads {self.topic_partition}")
        if current_leader_epoch != ANY_EPOCH and current_leader_epoch != self.leader_epoch:
            where = (
                f"{self.topic_partition} is at leader epoch {self.leader_epoch}, not {current_leader_epoch}"
            )
            raise (FencedLeaderEpoch if current_leader_epoch < self.leader_epoch else UnknownLeaderEpoch)(
                where
            )
        return log

    def append(
        self,
        records: Data,
        acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: int = NO_GUARD,
        transaction_version: int = 0,
        only_briefly: bool = False,
    ) -> AppendInfo:
        """Appends as leader. Raises RecordsTakeLong if only what is done briefly is to be done: see `append_later`."""
        metrics = self.metrics
        metrics.total_produce_requests += 1
        try:
            log = self._log_for_append(acks)
            info = log.append_as_leader(
                records,
                leader_epoch=self.leader_epoch,
                origin=origin,
                verification_guard=verification_guard,
                transaction_version=transaction_version,
                is_alone=self._is_alone,
                only_briefly=only_briefly,
            )
        except KafkaError as error:
            metrics.count_failed_produce(error, len(records))
            raise
        self._count_append(info, len(records))
        return info

    def append_later(
        self,
        validated: ValidatedRecords,
        policy: AppendPolicy,
        acks: int,
        verification_guard: int,
        size_bytes: int,
    ) -> AppendInfo | None:
        """Appends records that took long to validate; None if that has to be done again, by what holds now."""
        log = self._log_for_append(acks)
        info = log.append_validated(
            validated,
            policy,
            leader_epoch=self.leader_epoch,
            verification_guard=verification_guard,
            is_alone=self._is_alone,
        )
        if info is not None:
            self._count_append(info, size_bytes)
        return info

    def _log_for_append(self, acks: int) -> PartitionLog:
        log = self.leader_log()
        if acks == ACKS_ALL and self._is_under_min_isr(log):
            raise NotEnoughReplicas(self._few_in_sync(log))
        return log

    def has_replicated(self, end_offset: int) -> bool:
        """Whether all in-sync replicas have the records before the offset. Raises if that will never be known here."""
        log = self.leader_log()
        if log.high_watermark < end_offset:
            return False
        if self._is_under_min_isr(log):
            raise NotEnoughReplicasAfterAppend(self._few_in_sync(log))
        return True

    def _is_under_min_isr(self, log: PartitionLog) -> bool:
        """A topic with fewer replicas than min.insync.replicas needs all that it has."""
        return len(self.in_sync) < min(log.config.min_insync_replicas, len(self.replicas))

    def _few_in_sync(self, log: PartitionLog) -> str:
        return (
            f"{self.topic_partition} has {len(self.in_sync)} in-sync replicas, and min.insync.replicas is"
            f" {log.config.min_insync_replicas}."
        )

    def _count_append(self, info: AppendInfo, size_bytes: int) -> None:
        metrics = self.metrics
        metrics.bytes_in += size_bytes
        metrics.messages_in += info.last_offset - info.first_offset + 1
        if info.converted_count:
            metrics.produce_message_conversions += info.converted_count
        self.delayed.note_change(self.topic_partition)

    def delete_records(self, before_offset: int) -> int:
        """The new start of the log."""
        log = self.leader_log()
        start_offset = log.delete_records(before_offset)
        self.delayed.note_change(self.topic_partition)
        return start_offset

    def low_watermark(self) -> int:
        """The highest start of the log that every replica has reached: here there is one replica."""
        return self.leader_log().log_start_offset

    @property
    def _is_alone(self) -> bool:
        """Whether nobody else is in sync: the high watermark then follows the end of the log."""
        return len(self.in_sync) == 1 and self.in_sync[0] == self._broker_id
