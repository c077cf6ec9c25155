"""The machine of a partition's leader, by the rules of Kafka 3.9's Partition."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from barnabas.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidUpdateVersion,
    NetworkException,
    OperationNotAttempted,
)
from barnabas.model import NO_OFFSET, BrokerId, LeaderEpoch
from barnabas.replication.isr_change import IsrChange
from barnabas.replication.leader import PartitionLeader
from barnabas.replication.remote_replica import NEVER_MS, RemoteReplica

LAG_MS = 30_000
# The clock of a machine that has just been started.
NOW_MS = 1_000
LOCAL, SECOND, THIRD = BrokerId(0), BrokerId(1), BrokerId(2)
ALL = (LOCAL, SECOND, THIRD)


def leading(
    *, replicas: tuple[BrokerId, ...] = ALL, in_sync: tuple[BrokerId, ...] = ALL, log_end_offset: int = 10
) -> PartitionLeader:
    leader = PartitionLeader(LOCAL, LAG_MS)
    begin(leader, 5, replicas=replicas, in_sync=in_sync, log_end_offset=log_end_offset)
    return leader


def begin(
    leader: PartitionLeader,
    epoch: int,
    *,
    replicas: tuple[BrokerId, ...] = ALL,
    in_sync: tuple[BrokerId, ...] = ALL,
    log_end_offset: int = 10,
    now_ms: int = NOW_MS,
) -> None:
    leader.begin_epoch(
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=epoch,
        replicas=replicas,
        in_sync=in_sync,
        log_end_offset=log_end_offset,
        now_ms=now_ms,
    )


def remote(leader: PartitionLeader, broker: BrokerId) -> RemoteReplica:
    found = leader.find(broker)
    assert found is not None
    return found


def fetch(
    leader: PartitionLeader,
    broker: BrokerId,
    offset: int,
    *,
    end: int = 10,
    start: int = 0,
    now_ms: int = NOW_MS,
) -> None:
    remote(leader, broker).note_fetch(
        fetch_offset=offset, log_start_offset=start, leader_end_offset=end, now_ms=now_ms
    )


def watermark(
    leader: PartitionLeader,
    end: int = 10,
    *,
    min_isr: int = 1,
    now_ms: int = NOW_MS,
    live: Iterable[BrokerId] = ALL,
) -> int:
    return leader.high_watermark(
        log_end_offset=end, min_insync_replicas=min_isr, now_ms=now_ms, live=frozenset(live)
    )


def expansion(leader: PartitionLeader, broker: BrokerId, high_watermark: int = 10) -> IsrChange | None:
    return leader.propose_expansion(
        remote(leader, broker), high_watermark=high_watermark, live=frozenset(ALL)
    )


class TestHighWatermark:
    def test_a_leader_without_other_replicas_has_committed_what_it_has_written(self) -> None:
        leader = leading(replicas=(LOCAL,), in_sync=(LOCAL,))
        assert leader.is_alone
        assert watermark(leader, 10) == 10
        # min.insync.replicas is bounded by the number of replicas.
        assert watermark(leader, 11, min_isr=3) == 11

    def test_a_new_leader_knows_nothing_of_the_others(self) -> None:
        leader = leading()
        assert not leader.is_alone
        assert watermark(leader) == NO_OFFSET
        fetch(leader, SECOND, 8)
        assert watermark(leader) == NO_OFFSET
        fetch(leader, THIRD, 9)
        assert watermark(leader) == 8

    def test_it_stands_still_while_the_isr_is_below_its_minimum(self) -> None:
        leader = leading(in_sync=(LOCAL,))
        assert watermark(leader, min_isr=2) == NO_OFFSET
        assert watermark(leader, min_isr=1) == 10

    def test_a_replica_that_is_about_to_join_counts(self) -> None:
        leader = leading(in_sync=(LOCAL, SECOND))
        fetch(leader, SECOND, 10)
        fetch(leader, THIRD, 10)
        assert watermark(leader, 12) == 10
        fetch(leader, SECOND, 12, end=12)
        assert watermark(leader, 12) == 10
        assert watermark(leader, 12, live=[LOCAL, SECOND]) == 12
        assert watermark(leader, 12, now_ms=NOW_MS + LAG_MS + 1) == 12

    def test_a_replica_outside_the_isr_counts_only_once_it_has_fetched(self) -> None:
        leader = leading(in_sync=(LOCAL, SECOND))
        fetch(leader, SECOND, 10)
        assert watermark(leader) == 10


def test_the_low_watermark_is_the_least_start_of_live_replicas() -> None:
    leader = leading()
    live = frozenset(ALL)
    assert leader.low_watermark(log_start_offset=4, live=live) == NO_OFFSET
    fetch(leader, SECOND, 10, start=3)
    fetch(leader, THIRD, 10, start=2)
    assert leader.low_watermark(log_start_offset=4, live=live) == 2
    assert leader.low_watermark(log_start_offset=4, live=live - {THIRD}) == 3
    assert leader.low_watermark(log_start_offset=4, live={LOCAL}) == 4


class TestCaughtUp:
    def test_the_fetch_before_counts_for_a_replica_that_is_always_a_little_behind(self) -> None:
        leader = leading()
        fetch(leader, SECOND, 10, end=10, now_ms=NOW_MS)
        fetch(leader, SECOND, 15, end=20, now_ms=NOW_MS + 100)
        assert remote(leader, SECOND).last_caught_up_ms == NOW_MS
        fetch(leader, SECOND, 20, end=30, now_ms=NOW_MS + 200)
        assert remote(leader, SECOND).last_caught_up_ms == NOW_MS + 100
        fetch(leader, SECOND, 30, end=30, now_ms=NOW_MS + 300)
        assert remote(leader, SECOND).last_caught_up_ms == NOW_MS + 300

    def test_a_leader_that_stays_remembers_and_one_that_returns_does_not(self) -> None:
        leader = leading()
        fetch(leader, SECOND, 9, start=3)
        begin(leader, 6, in_sync=(LOCAL, THIRD), now_ms=NOW_MS + 1)
        second = remote(leader, SECOND)
        assert (second.log_end_offset, second.log_start_offset) == (9, 3)
        assert (second.last_caught_up_ms, second.last_fetch_ms) == (NEVER_MS, NEVER_MS)
        third = remote(leader, THIRD)
        assert (third.last_caught_up_ms, third.last_fetch_ms) == (NOW_MS + 1, NOW_MS + 1)
        assert remote(leading(), SECOND).log_end_offset == NO_OFFSET

    def test_replicas_that_leave_the_assignment_are_forgotten(self) -> None:
        leader = leading()
        begin(leader, 6, replicas=(LOCAL, THIRD), in_sync=(LOCAL, THIRD))
        assert leader.find(SECOND) is None
        begin(leader, 7, replicas=(LOCAL,), in_sync=(LOCAL,))
        assert leader.is_alone


class TestExpansion:
    def test_a_replica_joins_when_it_has_reached_watermark_and_epoch(self) -> None:
        leader = leading(in_sync=(LOCAL, SECOND), log_end_offset=10)
        fetch(leader, THIRD, 9)
        assert expansion(leader, THIRD, high_watermark=8) is None  # before the start of the epoch
        fetch(leader, THIRD, 10)
        assert expansion(leader, THIRD, high_watermark=11) is None
        change = expansion(leader, THIRD, high_watermark=10)
        assert change is not None
        assert change.in_sync == ALL
        assert leader.in_sync == (LOCAL, SECOND)
        assert leader.maximal_in_sync == ALL

    def test_only_live_replicas_outside_the_isr_join(self) -> None:
        leader = leading(in_sync=(LOCAL, SECOND))
        fetch(leader, SECOND, 10)
        fetch(leader, THIRD, 10)
        assert expansion(leader, SECOND) is None
        third = remote(leader, THIRD)
        assert leader.propose_expansion(third, high_watermark=10, live=frozenset({SECOND})) is None

    def test_one_change_is_under_way_at_a_time(self) -> None:
        leader = leading(in_sync=(LOCAL,))
        fetch(leader, SECOND, 10)
        fetch(leader, THIRD, 10)
        assert expansion(leader, SECOND) is not None
        assert expansion(leader, THIRD) is None
        assert leader.propose_shrink(log_end_offset=11, now_ms=NOW_MS + LAG_MS + 1) is None


class TestShrink:
    def test_replicas_leave_that_lag_too_long(self) -> None:
        leader = leading()
        fetch(leader, SECOND, 10)
        fetch(leader, THIRD, 8)
        assert leader.propose_shrink(log_end_offset=10, now_ms=NOW_MS + LAG_MS) is None
        change = leader.propose_shrink(log_end_offset=10, now_ms=NOW_MS + LAG_MS + 1)
        assert change is not None
        assert change.in_sync == (LOCAL, SECOND)
        assert leader.maximal_in_sync == ALL
        assert watermark(leader) == 8
        assert leader.isr_changed(change, leader_epoch=5, partition_epoch=6, in_sync=change.in_sync)
        assert watermark(leader, now_ms=NOW_MS + LAG_MS + 1) == 10

    def test_a_replica_that_is_not_assigned_leaves(self) -> None:
        leader = leading(replicas=(LOCAL, SECOND), in_sync=ALL)
        change = leader.propose_shrink(log_end_offset=10, now_ms=NOW_MS)
        assert change is not None
        assert change.in_sync == (LOCAL, SECOND)


class TestAnswers:
    def proposal(self) -> tuple[PartitionLeader, IsrChange]:
        leader = leading(in_sync=(LOCAL, SECOND))
        fetch(leader, THIRD, 10)
        change = expansion(leader, THIRD)
        assert change is not None
        assert (change.leader_epoch, change.partition_epoch) == (5, 5)
        return leader, change

    def test_a_committed_change_ends_the_proposal(self) -> None:
        leader, change = self.proposal()
        assert leader.isr_changed(change, leader_epoch=5, partition_epoch=6, in_sync=ALL)
        assert (leader.in_sync, leader.partition_epoch, leader.pending) == (ALL, 6, None)

    @pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(6, 6), (5, 4)])
    def test_an_answer_for_another_state_is_dropped(self, leader_epoch: int, partition_epoch: int) -> None:
        leader, change = self.proposal()
        assert not leader.isr_changed(
            change, leader_epoch=leader_epoch, partition_epoch=partition_epoch, in_sync=ALL
        )
        assert leader.pending is change

    def test_a_new_epoch_replaces_the_proposal(self) -> None:
        leader, change = self.proposal()
        begin(leader, 6, in_sync=(LOCAL, SECOND))
        assert not leader.isr_changed(change, leader_epoch=6, partition_epoch=7, in_sync=ALL)
        assert not leader.isr_refused(change, NetworkException.code)
        assert leader.maximal_in_sync == (LOCAL, SECOND)

    @pytest.mark.parametrize("error", [IneligibleReplica, OperationNotAttempted])
    def test_a_change_that_was_not_applied_is_given_up(self, error: type[IneligibleReplica]) -> None:
        leader, change = self.proposal()
        assert not leader.isr_refused(change, error.code)
        assert leader.pending is None
        assert leader.maximal_in_sync == (LOCAL, SECOND)

    @pytest.mark.parametrize("error", [FencedLeaderEpoch, InvalidUpdateVersion])
    def test_a_leader_that_is_out_of_date_waits_for_its_role(self, error: type[FencedLeaderEpoch]) -> None:
        leader, change = self.proposal()
        assert not leader.isr_refused(change, error.code)
        assert leader.pending is change
        assert leader.maximal_in_sync == ALL

    def test_other_errors_are_tried_again(self) -> None:
        leader, change = self.proposal()
        assert leader.isr_refused(change, NetworkException.code)
        assert leader.pending is change
