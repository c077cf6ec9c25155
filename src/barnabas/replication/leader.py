"""One partition as its leader sees it: the other replicas' progress, the in-sync replicas (ISR), the watermarks.

    committed ISR   the ISR that the controller has confirmed; the check before an append counts it
    maximal ISR     the committed ISR and a replica whose joining is proposed; the high watermark waits for all of it

The rules are those of Kafka 3.9 (`Partition.scala`). The machine has no IO: its shell passes the time, the end of the
log and the live brokers, sends the proposed changes to the controller and passes the answers back.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, BrokerId, LeaderEpoch
from barnabas.replication.isr_change import NOT_APPLIED, OUT_OF_DATE, IsrChange
from barnabas.replication.remote_replica import RemoteReplica


class PartitionLeader:
    """A leader that stays leader in a later epoch keeps its machine; one that returns gets a new one."""

    __slots__ = (
        "_lag_time_max_ms",
        "_local",
        "epoch_start_offset",
        "in_sync",
        "is_alone",
        "leader_epoch",
        "maximal_in_sync",
        "partition_epoch",
        "pending",
        "remotes",
    )

    epoch_start_offset: int
    in_sync: tuple[BrokerId, ...]
    is_alone: bool
    leader_epoch: LeaderEpoch
    maximal_in_sync: tuple[BrokerId, ...]
    partition_epoch: int
    pending: IsrChange | None
    remotes: tuple[RemoteReplica, ...]

    def __init__(self, local: BrokerId, lag_time_max_ms: int) -> None:
        self._local = local
        self._lag_time_max_ms = lag_time_max_ms
        self.leader_epoch = LeaderEpoch(NO_LEADER_EPOCH)
        self.partition_epoch = -1
        self.epoch_start_offset = NO_OFFSET
        self.remotes = ()
        self.in_sync = ()
        self.maximal_in_sync = ()
        self.pending = None
        # Without other replicas the high watermark is the end of the log: appends need not ask for it.
        self.is_alone = False

    def begin_epoch(
        self,
        *,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        replicas: Sequence[BrokerId],
        in_sync: tuple[BrokerId, ...],
        log_end_offset: int,
        now_ms: int,
    ) -> None:
        """Takes over what the controller has decided. An ISR change that is under way counts no longer."""
        assert leader_epoch > self.leader_epoch, (leader_epoch, self.leader_epoch)
        is_new_leader = self.leader_epoch == NO_LEADER_EPOCH
        known = {remote.broker_id: remote for remote in self.remotes}
        self.remotes = tuple(
            known.get(each) or RemoteReplica(each) for each in replicas if each != self._local
        )
        self.leader_epoch = leader_epoch
        self.epoch_start_offset = log_end_offset
        for remote in self.remotes:
            remote.begin_epoch(
                leader_end_offset=log_end_offset,
                is_new_leader=is_new_leader,
                is_in_sync=remote.broker_id in in_sync,
                now_ms=now_ms,
            )
        self._commit(partition_epoch, in_sync)

    def _commit(self, partition_epoch: int, in_sync: tuple[BrokerId, ...]) -> None:
        self.partition_epoch = partition_epoch
        self.in_sync = in_sync
        self.maximal_in_sync = in_sync
        self.pending = None
        self.is_alone = not self.remotes and self._local in in_sync

    def find(self, broker_id: BrokerId) -> RemoteReplica | None:
        """The replica of another broker; None if the broker is not in the assignment."""
        for remote in self.remotes:
            if remote.broker_id == broker_id:
                return remote
        return None

    def min_isr(self, min_insync_replicas: int) -> int:
        """A partition with fewer replicas than `min.insync.replicas` needs all that it has."""
        return min(min_insync_replicas, len(self.remotes) + 1)

    def is_under_min_isr(self, min_insync_replicas: int) -> bool:
        return len(self.in_sync) < self.min_isr(min_insync_replicas)

    def high_watermark(
        self, *, log_end_offset: int, min_insync_replicas: int, now_ms: int, live: Container[BrokerId]
    ) -> int:
        """The least end offset of the maximal ISR; NO_OFFSET while the ISR is below its minimum.

        A live replica outside the ISR that is caught up by time counts too. Otherwise the leader alone would move the
        high watermark faster than a replica can follow, and the replica could never join.
        """
        if self.is_under_min_isr(min_insync_replicas):
            return NO_OFFSET
        offset = log_end_offset
        for remote in self.remotes:
            if remote.log_end_offset < offset and (
                remote.broker_id in self.maximal_in_sync
                or (
                    remote.is_caught_up(
                        leader_end_offset=log_end_offset,
                        now_ms=now_ms,
                        lag_time_max_ms=self._lag_time_max_ms,
                    )
                    and remote.broker_id in live
                )
            ):
                offset = remote.log_end_offset
        return offset

    def low_watermark(self, *, log_start_offset: int, live: Container[BrokerId]) -> int:
        """The least start offset of the live replicas: records before it are deleted everywhere."""
        offset = log_start_offset
        for remote in self.remotes:
            if remote.log_start_offset < offset and remote.broker_id in live:
                offset = remote.log_start_offset
        return offset

    def propose_expansion(
        self, joining: RemoteReplica, *, high_watermark: int, live: Container[BrokerId]
    ) -> IsrChange | None:
        """Proposes that a replica joins the ISR if it has fetched far enough. Must be called after each of its fetches.

        It must have reached the current epoch: committed records may be between the high watermark and the epoch's
        start, and a replica without them must not become leader.
        """
        if (
            self.pending is not None
            or joining.broker_id in self.in_sync
            or joining.log_end_offset < high_watermark
            or joining.log_end_offset < self.epoch_start_offset
            or joining.broker_id not in live
        ):
            return None
        in_sync = (*self.in_sync, joining.broker_id)
        # The watermark waits for the newcomer at once. If the controller refuses, no harm is done.
        return self._propose(in_sync, in_sync)

    def propose_shrink(self, *, log_end_offset: int, now_ms: int) -> IsrChange | None:
        """Proposes an ISR without the replicas that lag. To be asked each half of `replica.lag.time.max.ms`."""
        if self.pending is not None:
            return None
        caught_up = {
            remote.broker_id
            for remote in self.remotes
            if remote.is_caught_up(
                leader_end_offset=log_end_offset, now_ms=now_ms, lag_time_max_ms=self._lag_time_max_ms
            )
        }
        in_sync = tuple(each for each in self.in_sync if each == self._local or each in caught_up)
        if len(in_sync) == len(self.in_sync):
            return None
        # Until the controller has agreed, a replica that is to leave may still be elected: the watermark waits for it.
        return self._propose(in_sync, self.in_sync)

    def _propose(self, in_sync: tuple[BrokerId, ...], maximal_in_sync: tuple[BrokerId, ...]) -> IsrChange:
        change = IsrChange(
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            in_sync=in_sync,
            maximal_in_sync=maximal_in_sync,
            previous=self.in_sync,
        )
        self.pending = change
        self.maximal_in_sync = maximal_in_sync
        return change

    def isr_changed(
        self, change: IsrChange, *, leader_epoch: int, partition_epoch: int, in_sync: tuple[BrokerId, ...]
    ) -> bool:
        """The controller has answered a proposal with the state that holds now. False if the answer is out of date."""
        if (
            change is not self.pending
            or leader_epoch != self.leader_epoch
            or partition_epoch < self.partition_epoch
        ):
            return False
        self._commit(partition_epoch, in_sync)
        return True

    def isr_refused(self, change: IsrChange, code: int) -> bool:
        """The controller has answered a proposal with an error. True if the change is to be sent again."""
        if change is not self.pending:
            return False
        if code in NOT_APPLIED:
            self._commit(self.partition_epoch, self.in_sync)
            return False
        return code not in OUT_OF_DATE
