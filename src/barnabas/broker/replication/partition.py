"""A partition on this broker: the log of its replica here, and the replica's role.

The controller decides the role. A leader takes records, and its high watermark is the least end offset of the in-sync
replicas: `barnabas.replication.leader` has the rules. A follower serves consumers up to its own high watermark. On one
node the leader has no followers, and its high watermark is the end of its log.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, Protocol

from barnabas.broker.replication.delayed import DelayedOperations
from barnabas.broker.replication.topic_metrics import TopicMetrics
from barnabas.clock import Clock
from barnabas.coordination.metadata.cache import MetadataCache
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
from barnabas.model import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, TopicPartition
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrPartitionState
from barnabas.records.policy import AppendOrigin, AppendPolicy
from barnabas.records.validate import ValidatedRecords
from barnabas.replication.isr_change import IsrChange
from barnabas.replication.leader import PartitionLeader
from barnabas.replication.remote_replica import RemoteReplica

ACKS_ALL: Final = -1
ANY_EPOCH: Final = -1
_NO_LEADER: Final = BrokerId(-1)


class Proposals(Protocol):
    """Takes changes of in-sync replicas to the controller."""

    def propose(self, partition: Partition, change: IsrChange) -> None: ...


class PartitionContext:
    """The parts that all partitions of a broker share."""

    __slots__ = ("_clock", "broker_id", "delayed", "isr_changes", "lag_time_max_ms", "metadata")

    def __init__(
        self,
        broker_id: BrokerId,
        clock: Clock,
        delayed: DelayedOperations,
        metadata: MetadataCache,
        lag_time_max_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self._clock = clock
        self.delayed = delayed
        self.metadata = metadata
        self.lag_time_max_ms = lag_time_max_ms
        # None on a broker that is alone: its partitions have no other replicas.
        self.isr_changes: Proposals | None = None

    @property
    def live_brokers(self) -> Container[BrokerId]:
        """The brokers that are alive, as far as this one knows."""
        return self.metadata.image.brokers

    def rack_of(self, broker_id: BrokerId) -> str | None:
        broker = self.metadata.image.brokers.get(broker_id)
        return None if broker is None else broker.rack

    def now_ms(self) -> int:
        """A time that never goes back, for the lag of replicas."""
        return self._clock.monotonic_ns() // 1_000_000


class Partition:
    __slots__ = (
        "_adding_count",
        "_context",
        "_in_sync",
        "_partition_epoch",
        "delayed",
        "is_offline",
        "is_reassigning",
        "leader",
        "leader_epoch",
        "leadership",
        "log",
        "metrics",
        "readers",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        context: PartitionContext,
        metrics: TopicMetrics,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._context = context
        self.delayed = context.delayed
        self.metrics = metrics
        # None until the log is open, and again when its directory has failed.
        self.log: PartitionLog | None = None
        # Who reads the log from beginning to end: meanwhile it is not exchanged for one in another directory.
        self.readers = 0
        self.is_offline = False
        # The leadership of this broker. It begins when the controller has named this broker and the log is open.
        self.leadership: PartitionLeader | None = None
        self.leader = _NO_LEADER
        self.leader_epoch = LeaderEpoch(NO_LEADER_EPOCH)
        self._partition_epoch = -1
        self.replicas: tuple[BrokerId, ...] = ()
        # Whether replicas are being added or removed, and how many are being added.
        self.is_reassigning = False
        self._adding_count = 0
        # The controller's state; a leader's machine knows more.
        self._in_sync: tuple[BrokerId, ...] = ()

    def take_topic_id(self, topic_id: bytes) -> None:
        """Of a topic that had none. Raises InconsistentTopicId if the log is one of another topic."""
        if self.log is not None:
            self.log.assign_topic_id(topic_id)
        self.topic_id = topic_id

    @property
    def is_leader(self) -> bool:
        """Whether the controller has made this broker the leader."""
        return self.leader == self._context.broker_id

    @property
    def is_follower(self) -> bool:
        """Whether the controller has made another broker the leader, which this one follows."""
        return self.leader not in (self._context.broker_id, _NO_LEADER)

    @property
    def leads_in_epoch(self) -> LeaderEpoch | None:
        """The leader epoch if this broker leads the partition; else None, because a follower assigns no epochs."""
        return self.leader_epoch if self.is_leader else None

    @property
    def is_under_replicated(self) -> bool:
        """Whether a leader's in-sync replicas are too few. Replicas that are being added do not count."""
        leadership = self.leadership
        return leadership is not None and len(leadership.in_sync) < len(self.replicas) - self._adding_count

    @property
    def min_isr_surplus(self) -> int:
        """By how many a leader's in-sync replicas exceed `min.insync.replicas`; 1 if this broker does not lead."""
        log, leadership = self.log, self.leadership
        if log is None or leadership is None:
            return 1
        return len(leadership.in_sync) - leadership.min_isr(log.config.min_insync_replicas)

    def become_leader(self, state: LeaderAndIsrPartitionState) -> None:
        """Leads at once if it leads already, else as soon as the log is open: see `open`."""
        self._take_over(state)
        if self.leadership is not None and self.log is not None:
            self._lead(self.log)

    def become_follower(self, state: LeaderAndIsrPartitionState) -> None:
        self._take_over(state)
        self._end_leadership()

    def _take_over(self, state: LeaderAndIsrPartitionState) -> None:
        self.leader = BrokerId(state.leader)
        self.leader_epoch = LeaderEpoch(state.leader_epoch)
        self._partition_epoch = state.partition_epoch
        self.replicas = tuple(map(BrokerId, state.replicas))
        self.is_reassigning = bool(state.adding_replicas or state.removing_replicas)
        self._adding_count = len(state.adding_replicas)
        in_sync = tuple(map(BrokerId, state.isr))
        self._in_sync = self.replicas if in_sync == self.replicas else in_sync

    def stop(self) -> None:
        """Ends the role, whichever it is. The epoch stays, so that an older role is rejected."""
        self.leader = _NO_LEADER
        self._end_leadership()

    def _end_leadership(self) -> None:
        self.leadership = None
        self.delayed.note_change(self.topic_partition)

    def open(self, log: PartitionLog) -> None:
        """The log can be used from now on. A leader begins its epoch where the log ends."""
        self.log = log
        if self.is_leader:
            self._lead(log)

    def take_offline(self) -> None:
        self.log = None
        self.is_offline = True
        self._end_leadership()

    def _lead(self, log: PartitionLog) -> None:
        context = self._context
        leadership = self.leadership
        if leadership is None:
            leadership = PartitionLeader(context.broker_id, context.lag_time_max_ms)
        start_offset = log.assign_epoch_start(self.leader_epoch)
        if leadership.leader_epoch != self.leader_epoch:
            leadership.begin_epoch(
                leader_epoch=self.leader_epoch,
                partition_epoch=self._partition_epoch,
                replicas=self.replicas,
                in_sync=self._in_sync,
                log_end_offset=start_offset,
                now_ms=context.now_ms(),
            )
        self.leadership = leadership
        self._advance_high_watermark(log, leadership)

    def _advance_high_watermark(self, log: PartitionLog, leadership: PartitionLeader) -> None:
        if leadership.is_alone:
            candidate: int = log.log_end_offset
        else:
            candidate = leadership.high_watermark(
                log_end_offset=log.log_end_offset,
                min_insync_replicas=log.config.min_insync_replicas,
                now_ms=self._context.now_ms(),
                live=self._context.live_brokers,
            )
        if candidate >= 0 and log.advance_high_watermark(candidate):
            self.delayed.note_change(self.topic_partition)

    def leader_log(self, current_leader_epoch: int = ANY_EPOCH) -> PartitionLog:
        """The log, for requests that only the leader answers. They may name the leader epoch that they know."""
        log = self.log
        if (
            log is None
            or self.leadership is None
            or (current_leader_epoch != ANY_EPOCH and current_leader_epoch != self.leader_epoch)
        ):
            raise self._refusal(current_leader_epoch)
        return log

    def readable_log(self, current_leader_epoch: int = ANY_EPOCH) -> PartitionLog:
        """The log, for consumers that read from any replica (KIP-392)."""
        log = self.log
        if (
            log is None
            or (self.leadership is None and not self.is_follower)
            or (current_leader_epoch != ANY_EPOCH and current_leader_epoch != self.leader_epoch)
        ):
            raise self._refusal(current_leader_epoch)
        return log

    def preferred_replica(self, rack: str, fetch_offset: int) -> BrokerId | None:
        """The broker in its rack that a consumer should read from, if it is not this one."""
        leadership = self.leadership
        if leadership is None or leadership.is_alone:
            return None
        # A broker that is alone, and one without a selector, never gets here.
        from barnabas.replication.read_replica import select_in_rack

        return select_in_rack(leadership, self.leader, rack, fetch_offset, self._context.rack_of)

    def _refusal(self, current_leader_epoch: int) -> KafkaError:
        """Kafka checks the epoch before the leadership: a client with an old epoch has to look for a newer one."""
        at = self.topic_partition
        if self.is_offline:
            return KafkaStorageError(f"The log directory of {at} is offline.")
        if current_leader_epoch not in (ANY_EPOCH, self.leader_epoch):
            where = f"{at} is at leader epoch {self.leader_epoch}, not {current_leader_epoch}."
            is_old = current_leader_epoch < self.leader_epoch
            return FencedLeaderEpoch(where) if is_old else UnknownLeaderEpoch(where)
        if self.is_leader:
            return NotLeaderOrFollower(f"The log of {at} is still being opened.")
        return NotLeaderOrFollower(f"Broker {self.leader} leads {at}.")

    def append(
        self,
        records: Data,
        acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: int = NO_GUARD,
        transaction_version: int = 0,
        only_briefly: bool = False,
    ) -> AppendInfo:
        """Appends as leader. With `only_briefly`, records that take long to check raise RecordsTakeLong.

        `append_later` takes them when they have been checked elsewhere.
        """
        metrics = self.metrics
        metrics.total_produce_requests += 1
        try:
            log = self._log_for_append(acks)
            leadership = self.leadership
            assert leadership is not None
            info = log.append_as_leader(
                records,
                leader_epoch=self.leader_epoch,
                origin=origin,
                verification_guard=verification_guard,
                transaction_version=transaction_version,
                is_alone=leadership.is_alone,
                only_briefly=only_briefly,
            )
        except KafkaError as error:
            metrics.count_failed_produce(error, len(records))
            raise
        self._note_append(log, leadership, info, len(records))
        return info

    def append_later(
        self,
        validated: ValidatedRecords,
        policy: AppendPolicy,
        acks: int,
        verification_guard: int,
        size_bytes: int,
    ) -> AppendInfo | None:
        """Appends records that took long to validate; None if the current settings require another validation."""
        log = self._log_for_append(acks)
        leadership = self.leadership
        assert leadership is not None
        info = log.append_validated(
            validated,
            policy,
            leader_epoch=self.leader_epoch,
            verification_guard=verification_guard,
            is_alone=leadership.is_alone,
        )
        if info is not None:
            self._note_append(log, leadership, info, size_bytes)
        return info

    def _log_for_append(self, acks: int) -> PartitionLog:
        log = self.leader_log()
        if acks == ACKS_ALL and self._is_under_min_isr(log):
            raise NotEnoughReplicas(self._few_in_sync(log))
        return log

    def _is_under_min_isr(self, log: PartitionLog) -> bool:
        leadership = self.leadership
        assert leadership is not None
        return not leadership.is_alone and leadership.is_under_min_isr(log.config.min_insync_replicas)

    def _few_in_sync(self, log: PartitionLog) -> str:
        leadership = self.leadership
        assert leadership is not None
        return (
            f"{self.topic_partition} has {len(leadership.in_sync)} in-sync replicas, and min.insync.replicas is"
            f" {log.config.min_insync_replicas}."
        )

    def _note_append(
        self, log: PartitionLog, leadership: PartitionLeader, info: AppendInfo, size_bytes: int
    ) -> None:
        metrics = self.metrics
        metrics.bytes_in += size_bytes
        metrics.messages_in += info.last_offset - info.first_offset + 1
        if info.converted_count:
            metrics.produce_message_conversions += info.converted_count
        if not leadership.is_alone:
            self._advance_high_watermark(log, leadership)
        self.delayed.note_change(self.topic_partition)

    def has_replicated(self, end_offset: int) -> bool:
        """Whether all in-sync replicas have the records before the offset. Raises if this replica does not lead."""
        return self.leader_log().high_watermark >= end_offset

    def check_replicated(self, end_offset: int, leadership: PartitionLeader) -> bool:
        """The same for a request that has waited since a leadership; an error ends its waiting.

        A leader that has returned may have other records at the offset.
        """
        if self.leadership is None:
            raise self._refusal(ANY_EPOCH)
        if self.leadership is not leadership:
            raise NotLeaderOrFollower(f"{self.topic_partition} was led by another broker meanwhile.")
        log = self.log
        if log is None or log.high_watermark < end_offset:
            # Without a log it is being exchanged for one in another directory.
            return False
        if len(leadership.maximal_in_sync) < leadership.min_isr(log.config.min_insync_replicas):
            raise NotEnoughReplicasAfterAppend(self._few_in_sync(log))
        return True

    def is_behind_its_epoch(self, log: PartitionLog) -> bool:
        """Whether a new leader does not know yet that all records of the leaders before it are committed."""
        leadership = self.leadership
        return leadership is not None and log.high_watermark < leadership.epoch_start_offset

    def follower(self, broker_id: int, current_leader_epoch: int) -> RemoteReplica:
        """The replica of a broker that fetches as a follower. Only brokers of the assignment may."""
        leadership = self.leadership
        assert leadership is not None
        found = leadership.find(BrokerId(broker_id))
        if found is None:
            what = f"Broker {broker_id} has no replica of {self.topic_partition}."
            # With an epoch, the assignment may be one that has not arrived here: the follower has to try again.
            raise NotLeaderOrFollower(what) if current_leader_epoch == ANY_EPOCH else UnknownLeaderEpoch(what)
        return found

    def is_in_sync(self, follower: RemoteReplica) -> bool:
        leadership = self.leadership
        return leadership is not None and follower.broker_id in leadership.in_sync

    def note_fetch(
        self, follower: RemoteReplica, fetch_offset: int, log_start_offset: int, log_end_offset: int
    ) -> None:
        """A follower has all records before the offset. The leader's log ended at `log_end_offset` when it asked."""
        log, leadership = self.log, self.leadership
        assert log is not None
        assert leadership is not None
        before_end_offset, before_start_offset = follower.log_end_offset, follower.log_start_offset
        follower.note_fetch(
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_end_offset=log_end_offset,
            now_ms=self._context.now_ms(),
        )
        if follower.broker_id not in leadership.in_sync:
            self._expand_isr(log, leadership, follower)
        if follower.log_end_offset != before_end_offset:
            self._advance_high_watermark(log, leadership)
        if follower.log_start_offset != before_start_offset:
            # A deletion of records may have waited for the follower.
            self.delayed.note_change(self.topic_partition)

    def _expand_isr(self, log: PartitionLog, leadership: PartitionLeader, follower: RemoteReplica) -> None:
        isr_changes = self._context.isr_changes
        if isr_changes is None:
            return
        change = leadership.propose_expansion(
            follower, high_watermark=log.high_watermark, live=self._context.live_brokers
        )
        if change is not None:
            isr_changes.propose(self, change)

    def shrink_isr(self) -> None:
        """Proposes to remove the replicas that lag, if there are any."""
        log, leadership, isr_changes = self.log, self.leadership, self._context.isr_changes
        if log is None or leadership is None or leadership.is_alone or isr_changes is None:
            return
        change = leadership.propose_shrink(log_end_offset=log.log_end_offset, now_ms=self._context.now_ms())
        if change is not None:
            isr_changes.propose(self, change)
        # A replica that is not in sync holds the high watermark up only while it is caught up by time.
        self._advance_high_watermark(log, leadership)

    def recheck(self) -> None:
        """To be called when a replica may no longer count that was not in sync: nothing else would move on."""
        log, leadership = self.log, self.leadership
        if log is not None and leadership is not None and not leadership.is_alone:
            self._advance_high_watermark(log, leadership)
            self.delayed.note_change(self.topic_partition)

    def proposes(self, change: IsrChange) -> bool:
        """Whether a change still waits for the controller."""
        return self.leadership is not None and self.leadership.pending is change

    def isr_changed(
        self, change: IsrChange, *, leader_epoch: int, partition_epoch: int, in_sync: tuple[BrokerId, ...]
    ) -> bool:
        """The controller has agreed to a change. False if the answer is out of date."""
        log, leadership = self.log, self.leadership
        if (
            log is None
            or leadership is None
            or not leadership.isr_changed(
                change, leader_epoch=leader_epoch, partition_epoch=partition_epoch, in_sync=in_sync
            )
        ):
            return False
        self._advance_high_watermark(log, leadership)
        # Produces may have waited for a replica that has left, and may now miss enough replicas.
        self.delayed.note_change(self.topic_partition)
        return True

    def isr_refused(self, change: IsrChange, code: int) -> bool:
        """The controller has refused a change. True if it is to be sent again."""
        leadership = self.leadership
        if leadership is None or leadership.isr_refused(change, code):
            return leadership is not None
        self.recheck()
        return False

    def delete_records(self, before_offset: int) -> int:
        """The new start of the log."""
        log = self.leader_log()
        start_offset = log.delete_records(before_offset)
        self.delayed.note_change(self.topic_partition)
        return start_offset

    def low_watermark(self) -> int:
        """The start offset that every live replica has reached."""
        log = self.leader_log()
        leadership = self.leadership
        assert leadership is not None
        if leadership.is_alone:
            return log.log_start_offset
        return leadership.low_watermark(
            log_start_offset=log.log_start_offset, live=self._context.live_brokers
        )
