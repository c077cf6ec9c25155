"""What holds for a partition's leader whatever happens: fetches, appends, ISR changes, epochs, answers in any order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.errors import FencedLeaderEpoch, IneligibleReplica, KafkaError, NetworkException
from barnabas.model import NO_OFFSET, BrokerId, LeaderEpoch
from barnabas.replication.isr_change import IsrChange
from barnabas.replication.leader import PartitionLeader
from tests.sampling import cases

LOCAL = BrokerId(0)
OTHERS = (BrokerId(1), BrokerId(2), BrokerId(3))
LAG_MS = 100


class LeaderMachine(RuleBasedStateMachine):
    """The shell: a log of so many records, a clock, and a controller that applies changes or not."""

    def __init__(self) -> None:
        super().__init__()
        self.leader = PartitionLeader(LOCAL, LAG_MS)
        self.epoch = 0
        self.partition_epoch = 0
        self.now_ms = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.min_isr = 1
        self.live: frozenset[BrokerId] = frozenset((LOCAL, *OTHERS))
        self.answered: list[IsrChange] = []

    @initialize(others=st.sets(st.sampled_from(OTHERS)), min_isr=st.integers(1, 4), data=st.data())
    def elect(self, others: set[BrokerId], min_isr: int, data: st.DataObject) -> None:
        self.min_isr = min_isr
        self._begin(others, data)

    def _begin(self, others: set[BrokerId], data: st.DataObject) -> None:
        self.epoch += 1
        self.partition_epoch += 1
        replicas = (LOCAL, *sorted(others))
        in_sync = (LOCAL, *sorted(data.draw(st.sets(st.sampled_from(sorted(others)))) if others else ()))
        self.leader.begin_epoch(
            leader_epoch=LeaderEpoch(self.epoch),
            partition_epoch=self.partition_epoch,
            replicas=replicas,
            in_sync=in_sync,
            log_end_offset=self.log_end_offset,
            now_ms=self.now_ms,
        )
        self._advance()

    def _advance(self) -> None:
        """Everything that can move the high watermark ends with this, as in the shell."""
        candidate = self.leader.high_watermark(
            log_end_offset=self.log_end_offset,
            min_insync_replicas=self.min_isr,
            now_ms=self.now_ms,
            live=self.live,
        )
        if len(self.leader.in_sync) < min(self.min_isr, len(self.leader.remotes) + 1):
            assert candidate == NO_OFFSET
            return
        ends = [self.log_end_offset]
        ends += [
            each.log_end_offset
            for each in self.leader.remotes
            if each.broker_id in self.leader.maximal_in_sync
        ]
        assert candidate <= min(ends)
        if self.leader.is_alone:
            assert candidate == self.log_end_offset
        self.high_watermark = max(self.high_watermark, candidate)

    @rule(others=st.sets(st.sampled_from(OTHERS)), data=st.data())
    def stay_leader_in_the_next_epoch(self, others: set[BrokerId], data: st.DataObject) -> None:
        self._begin(others, data)

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.log_end_offset += count
        self._advance()

    @rule(delta_ms=st.integers(1, 2 * LAG_MS))
    def wait(self, delta_ms: int) -> None:
        self.now_ms += delta_ms

    @rule(live=st.sets(st.sampled_from(OTHERS)))
    def brokers_come_and_go(self, live: set[BrokerId]) -> None:
        self.live = frozenset({LOCAL, *live})

    @precondition(lambda self: bool(self.leader.remotes))
    @rule(data=st.data())
    def fetch(self, data: st.DataObject) -> None:
        remote = data.draw(st.sampled_from(self.leader.remotes))
        before_ms = remote.last_caught_up_ms
        offset = data.draw(st.integers(max(remote.log_end_offset, 0), self.log_end_offset))
        remote.note_fetch(
            fetch_offset=offset,
            log_start_offset=0,
            leader_end_offset=self.log_end_offset,
            now_ms=self.now_ms,
        )
        assert before_ms <= remote.last_caught_up_ms <= self.now_ms
        if offset == self.log_end_offset:
            assert remote.last_caught_up_ms == self.now_ms
        pending = self.leader.pending
        change = self.leader.propose_expansion(remote, high_watermark=self.high_watermark, live=self.live)
        if change is not None:
            assert pending is None
            assert offset >= self.high_watermark
            assert set(change.in_sync) == {*self.leader.in_sync, remote.broker_id}
            assert self.leader.maximal_in_sync == change.in_sync
        self._advance()

    @rule()
    def check_for_replicas_that_lag(self) -> None:
        in_sync = self.leader.in_sync
        change = self.leader.propose_shrink(log_end_offset=self.log_end_offset, now_ms=self.now_ms)
        if change is not None:
            assert set(change.in_sync) < set(in_sync)
            assert LOCAL in change.in_sync
            assert self.leader.maximal_in_sync == in_sync

    @precondition(lambda self: self.leader.pending is not None)
    @rule()
    def controller_agrees(self) -> None:
        change = self.leader.pending
        assert change is not None
        self.partition_epoch += 1
        assert self.leader.isr_changed(
            change,
            leader_epoch=self.epoch,
            partition_epoch=self.partition_epoch,
            in_sync=change.in_sync,
        )
        self.answered.append(change)
        self._advance()

    @precondition(lambda self: self.leader.pending is not None)
    @rule(error=st.sampled_from([IneligibleReplica, FencedLeaderEpoch, NetworkException]))
    def controller_refuses(self, error: type[KafkaError]) -> None:
        change = self.leader.pending
        assert change is not None
        before = self.leader.in_sync
        is_sent_again = self.leader.isr_refused(change, error.code)
        assert is_sent_again == (error is NetworkException)
        assert self.leader.in_sync == before
        self._advance()

    @precondition(lambda self: bool(self.answered))
    @rule(data=st.data())
    def an_old_answer_comes_again(self, data: st.DataObject) -> None:
        change = data.draw(st.sampled_from(self.answered))
        before = (self.leader.in_sync, self.leader.maximal_in_sync, self.leader.pending)
        assert not self.leader.isr_changed(
            change, leader_epoch=self.epoch, partition_epoch=self.partition_epoch, in_sync=change.in_sync
        )
        assert not self.leader.isr_refused(change, NetworkException.code)
        assert (self.leader.in_sync, self.leader.maximal_in_sync, self.leader.pending) == before

    @invariant()
    def the_isr_is_within_the_maximal_one(self) -> None:
        assert set(self.leader.in_sync) <= set(self.leader.maximal_in_sync)
        if self.leader.pending is None:
            assert self.leader.in_sync == self.leader.maximal_in_sync

    @invariant()
    def the_high_watermark_is_within_the_log(self) -> None:
        assert 0 <= self.high_watermark <= self.log_end_offset


TestLeaderMachine = LeaderMachine.TestCase
TestLeaderMachine.settings = settings(max_examples=cases(60, fast=20), stateful_step_count=30, deadline=None)
