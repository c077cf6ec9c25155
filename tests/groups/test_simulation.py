"""Groups under random members: they join, sync, commit, leave, crash, stall and come back; the coordinator fails over.

Each history comes from a seed, and each step is checked: nobody waits without a timer or an answer to come, no
partition has two owners in one generation, no acknowledged commit is lost, and what is shown is what is committed, also
when commits come late and the leadership is lost before them. In the end those who are left agree, and when nobody is
left, nothing is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from barnabas.errors import (
    NONE,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    NotCoordinator,
    NotEnoughReplicas,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from barnabas.groups.caller import Caller
from barnabas.groups.classic_group import ClassicGroup
from barnabas.groups.coordinator import CLEANUP
from barnabas.groups.rebalance import join_timer, session_timer, sync_timer
from barnabas.groups.settings import GroupSettings
from barnabas.groups.states import GroupState
from barnabas.protocol.messages.join_group_response import JoinGroupResponse
from barnabas.protocol.messages.sync_group_response import SyncGroupResponse
from tests.groups.requests import (
    commit,
    commit_code,
    fetch,
    fetch_all,
    send_leave,
    send_txn_commit,
    sync,
    try_heartbeat,
)
from tests.groups.shell import Shell, subscription
from tests.sampling import seeds

GROUP_IDS: Final = ("group-0", "group-1")
PARTITIONS: Final = range(6)
CLIENTS_MAX: Final = 8
STEPS: Final = 300
TWIN_STEPS: Final = 30
SETTLING_ROUNDS_MAX: Final = 1_000
ROUND_MS: Final = 500
DAY_MS: Final = 24 * 60 * 60 * 1_000

RETRIED: Final = {
    RebalanceInProgress.code,
    IllegalGeneration.code,
    CoordinatorNotAvailable.code,
    NotCoordinator.code,
}
FATAL: Final = {FencedInstanceId.code, GroupMaxSizeReached.code, InconsistentGroupProtocol.code}


class Written(NamedTuple):
    """An offset that a transaction has committed for a group and a partition."""

    place: tuple[str, int]
    offset: int
    # Where its record ends in the log.
    end_offset: int


class End(NamedTuple):
    producer_id: int
    written: list[Written]
    is_committed: bool
    # Where its marker ends in the log.
    end_offset: int


class Client:
    """A consumer as far as a coordinator sees it: one request at a time, and what it believes."""

    def __init__(self, world: World, number: int, group_id: str, instance_id: str | None) -> None:
        self.world = world
        self.group_id = group_id
        self.instance_id = instance_id
        self.name = instance_id or f"client-{number}"
        # Static members came with version 5.
        self.version = world.random.choice([5, 7, 9]) if instance_id else world.random.choice([0, 3, 4, 9])
        self.member_id = ""
        self.generation_id = -1
        self.owned: frozenset[int] | None = None
        self.waiting: Caller | None = None
        self.is_dead = False

    @property
    def shell(self) -> Shell:
        return self.world.shell

    def step(self) -> None:
        if self.waiting is not None:
            response = self.shell.replies.get(self.waiting)
            if isinstance(response, JoinGroupResponse):
                self.waiting = None
                self.on_joined(response)
            elif isinstance(response, SyncGroupResponse):
                self.waiting = None
                self.on_synced(response)
        elif self.owned is None:
            self.join()
        else:
            self.on_error(
                try_heartbeat(
                    self.shell,
                    self.member_id,
                    self.generation_id,
                    instance_id=self.instance_id,
                    group_id=self.group_id,
                )
            )

    def join(self) -> None:
        protocols = {"range": subscription("topic")}
        if self.world.random.random() < 0.3:
            protocols = {"sticky": subscription("topic", "other"), **protocols}
        self.waiting = self.shell.join(
            self.member_id,
            version=self.version,
            group_id=self.group_id,
            instance_id=self.instance_id,
            protocols=protocols,
            client_id=self.name,
        )

    def on_joined(self, response: JoinGroupResponse) -> None:
        if response.error_code == MemberIdRequired.code:
            self.member_id = response.member_id
        elif response.error_code != NONE:
            self.on_error(response.error_code)
        else:
            self.member_id = response.member_id
            self.generation_id = response.generation_id
            assignments: dict[str, bytes] = {}
            if response.leader == self.member_id and not response.skip_assignment:
                shuffled = list(PARTITIONS)
                self.world.random.shuffle(shuffled)
                for index, each in enumerate(response.members):
                    assignments[each.member_id] = bytes(shuffled[index :: len(response.members)])
            self.waiting = sync(
                self.shell,
                self.member_id,
                self.generation_id,
                assignments,
                instance_id=self.instance_id,
                group_id=self.group_id,
            )

    def on_synced(self, response: SyncGroupResponse) -> None:
        if response.error_code != NONE:
            self.on_error(response.error_code)
            return
        self.owned = frozenset(response.assignment)
        for partition in self.owned:
            place = (self.group_id, self.generation_id, partition)
            assert self.world.owners.setdefault(place, self.name) == self.name, place

    def on_error(self, code: int | None) -> None:
        if code in (None, NONE):
            return
        self.owned = None
        if code == UnknownMemberId.code:
            self.member_id = ""
        elif code in FATAL:
            self.is_dead = True
        else:
            assert code in RETRIED, code

    def commit(self) -> None:
        if not self.owned:
            return
        partition = self.world.random.choice(sorted(self.owned))
        self.world.last_offset += 1
        caller = commit(
            self.shell,
            self.world.last_offset,
            partition=partition,
            member_id=self.member_id,
            generation_id=self.generation_id,
            instance_id=self.instance_id,
            group_id=self.group_id,
        )
        self.world.commits[caller] = (self.group_id, partition, self.world.last_offset)

    def leave(self) -> None:
        self.is_dead = True
        if self.member_id:
            send_leave(self.shell, (self.member_id, self.instance_id), group_id=self.group_id)


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shell = Shell(GroupSettings(group_max_size=self.random.choice([3, 100])))
        self.clients: list[Client] = []
        self.client_count = 0
        self.owners: dict[tuple[str, int, int], str] = {}
        self.last_offset = 0
        self.commits: dict[Caller, tuple[str, int, int]] = {}
        self.acknowledged: dict[tuple[str, int], int] = {}
        # What open transactions have written, and all that must not be seen: theirs, and that of aborted ones.
        self.transactions: dict[int, list[Written]] = {}
        self.hidden: set[int] = set()
        # Ends of transactions whose markers are not committed.
        self.ends: list[End] = []

    def step(self) -> None:
        roll = self.random.random()
        client = self.random.choice(self.clients) if self.clients else None
        if client is None or (roll < 0.06 and len(self.clients) < CLIENTS_MAX):
            self.start_client()
        elif roll < 0.60:
            client.step()
        elif roll < 0.72:
            client.commit()
        elif roll < 0.75:
            self.transact()
        elif roll < 0.765:
            client.leave()
        elif roll < 0.78:
            client.is_dead = True
        elif roll < 0.93:
            self.shell.advance_ms(self.random.choice([10, 500, 500, 3_000, 3_000, 12_000]))
        elif roll < 0.95:
            self.shell.append_error = NotEnoughReplicas()
        elif roll < 0.97:
            self.shell.holds_commits = True
        elif roll < 0.995:
            self.heal()
        else:
            self.fail_over()
        self.note_commits()
        self.note_ends()
        self.clients = [each for each in self.clients if not each.is_dead]

    def heal(self) -> None:
        self.shell.append_error = None
        self.shell.holds_commits = self.random.random() < 0.2
        if self.shell.uncommitted and self.random.random() < 0.3:
            self.shell.commit_next(self.random.choice([None, RequestTimedOut()]))
        else:
            self.shell.commit(self.random.choice([None, None, RequestTimedOut()]))
        # After a time-out the replicas come back sooner or later.
        if not self.shell.holds_commits:
            self.shell.commit()

    def transact(self) -> None:
        producer_id = self.random.randrange(3)
        if self.random.random() < 0.4:
            self.end_transaction(producer_id, is_committed=self.random.random() < 0.5)
            return
        place = (self.random.choice(GROUP_IDS), self.random.choice(PARTITIONS))
        self.last_offset += 1
        is_stored = self.shell.append_error is None
        # Such a commit says nothing of a member, so any state of the group will do.
        caller = send_txn_commit(
            self.shell, self.last_offset, producer_id, group_id=place[0], partition=place[1]
        )
        assert self.shell.holds_commits or caller in self.shell.replies
        if is_stored:
            written = Written(place, self.last_offset, self.shell.next_offset)
            self.transactions.setdefault(producer_id, []).append(written)
            self.hidden.add(self.last_offset)

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        self.shell.end_transaction(producer_id, is_committed=is_committed)
        written = self.transactions.pop(producer_id, [])
        self.ends.append(End(producer_id, written, is_committed, self.shell.next_offset))

    def note_ends(self) -> None:
        while self.ends and self.ends[0].end_offset <= self.shell.high_watermark:
            end = self.ends.pop(0)
            if end.is_committed:
                # Of two offsets for one partition the later takes effect.
                last = {written.place: written.offset for written in end.written}
                for place, offset in last.items():
                    self.hidden.discard(offset)
                    self.acknowledged[place] = max(offset, self.acknowledged.get(place, 0))

    def lose_uncommitted(self) -> None:
        """What the replicas do not have has never been."""
        high_watermark = self.shell.high_watermark
        for end in reversed(self.ends):
            self.transactions[end.producer_id] = end.written + self.transactions.get(end.producer_id, [])
        self.ends.clear()
        self.transactions = {
            producer_id: [each for each in written if each.end_offset <= high_watermark]
            for producer_id, written in self.transactions.items()
        }

    def start_client(self) -> None:
        self.client_count += 1
        instance_id = self.random.choice([None, None, "static-0", "static-1"])
        self.clients.append(Client(self, self.client_count, self.random.choice(GROUP_IDS), instance_id))

    def fail_over(self) -> None:
        old = self.shell
        parked = {each.waiting for each in self.clients if each.waiting and each.waiting not in old.replies}
        shown = {group_id: fetch_all(old, group_id) for group_id in GROUP_IDS}
        old.unload()
        assert parked <= old.replies.keys()
        assert not old.timers
        self.note_commits()
        is_lost = self.random.random() < 0.5
        if is_lost:
            self.lose_uncommitted()
        has_more = not is_lost and old.high_watermark < old.next_offset
        self.shell = old.reloaded(loses_uncommitted=is_lost)
        for group_id in GROUP_IDS:
            assert has_more or fetch_all(self.shell, group_id) == shown[group_id]
        for client in self.clients:
            client.waiting = None

    def note_commits(self) -> None:
        for caller in [each for each in self.commits if each in self.shell.replies]:
            group_id, partition, offset = self.commits.pop(caller)
            code = commit_code(self.shell, caller)
            assert code in {NONE, UnknownMemberId.code, FencedInstanceId.code, *RETRIED}
            if code == NONE:
                place = (group_id, partition)
                self.acknowledged[place] = max(offset, self.acknowledged.get(place, 0))

    def check(self) -> None:
        parked: set[Caller | None] = {*self.shell.kept()}
        for group in self.shell.coordinator._groups.classic.values():
            self.check_group(group)
            for member in group.members.values():
                parked |= {member.awaiting_join, member.awaiting_sync}
        for client in self.clients:
            assert client.waiting is None or client.waiting in self.shell.replies or client.waiting in parked
        in_flight = self.shell.in_flight()
        for (group_id, partition), offset in self.acknowledged.items():
            _, committed, _ = fetch(self.shell, partition=partition, group_id=group_id)
            assert committed >= offset
            assert committed not in self.hidden
            code, _, _ = fetch(self.shell, partition=partition, group_id=group_id, stable=True)
            place = (group_id, partition)
            is_open = place in in_flight or any(place == each.place for each in self.pending())
            assert code == (UnstableOffsetCommit.code if is_open else NONE)

    def pending(self) -> Iterator[Written]:
        """What transactions have written that are open as far as is committed."""
        for written in self.transactions.values():
            yield from written
        for end in self.ends:
            yield from end.written

    def check_committed(self) -> None:
        """What the coordinator shows is what another one shows that loads what is committed."""
        twin = self.shell.reloaded(loses_uncommitted=True)
        for group_id in GROUP_IDS:
            assert fetch_all(self.shell, group_id) == fetch_all(twin, group_id)
        # A group that had nothing but offsets of an aborted transaction is left out when it is loaded.
        implied = {each for each in GROUP_IDS if not fetch_all(self.shell, each)}
        assert _group_ids(twin) <= _group_ids(self.shell) <= _group_ids(twin) | implied

    def check_group(self, group: ClassicGroup) -> None:
        timers = self.shell.timers
        members = group.members.values()
        assert group.awaiting_join_count == sum(each.awaiting_join is not None for each in members)
        assert set(group.static_members.values()) == {each.member_id for each in members if each.is_static}
        assert not group.members.keys() & group.pending_join_members.keys()
        assert group.leader_id in group.members or not group.members
        max_size = self.shell.settings.group_max_size
        assert group.awaiting_join_count <= max_size
        if group.state is not GroupState.PREPARING_REBALANCE:
            # Static members that were away are kept, whoever has come meanwhile.
            assert len(members) <= max_size + len(group.static_members)
        for member in members:
            assert member.has_satisfied_heartbeat or session_timer(group, member.member_id) in timers
            assert member.awaiting_sync is None or group.state is GroupState.COMPLETING_REBALANCE
            if group.state is GroupState.STABLE:
                assert group.protocol_name in member.protocols
        for member_id in group.pending_join_members:
            assert session_timer(group, member_id) in timers
        if group.state is GroupState.PREPARING_REBALANCE:
            assert join_timer(group) in timers
        else:
            assert join_timer(group) not in timers
        if group.pending_sync_members:
            assert group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
            assert sync_timer(group) in timers
        if group.state is GroupState.EMPTY:
            assert not group.members

    def is_settled(self) -> bool:
        for client in self.clients:
            group = self.shell.coordinator._groups.classic[client.group_id]
            is_current = group.generation_id == client.generation_id and group.state is GroupState.STABLE
            if client.owned is None or not is_current or client.member_id not in group.members:
                return False
        return True

    def settle(self) -> None:
        self.shell.append_error = None
        self.shell.holds_commits = False
        self.shell.commit()
        for producer_id in list(self.transactions):
            self.end_transaction(producer_id, is_committed=True)
        self.note_ends()
        for _ in range(SETTLING_ROUNDS_MAX):
            for client in self.clients:
                client.step()
            self.clients = [each for each in self.clients if not each.is_dead]
            self.shell.advance_ms(ROUND_MS)
            self.check()
            if self.is_settled():
                return
        raise AssertionError("the members do not come to an agreement")

    def forsake(self) -> None:
        """All clients are gone at once."""
        self.clients.clear()
        self.shell.advance_ms(30 * 60 * 1_000)
        for group in self.shell.coordinator._groups.classic.values():
            assert group.state is GroupState.EMPTY
        self.shell.advance_ms(8 * DAY_MS)
        assert not self.shell.coordinator.list_groups()
        assert not self.shell.coordinator._store.group_ids()
        assert self.shell.timers.keys() == {CLEANUP}
        assert not self.shell.reloaded().coordinator.list_groups()


def _group_ids(shell: Shell) -> set[str]:
    return {group.group_id for group in shell.coordinator.list_groups()}


def run_history(seed: int) -> None:
    world = World(seed)
    for number in range(STEPS):
        world.step()
        world.check()
        if number % TWIN_STEPS == 0 or world.shell.high_watermark < world.shell.next_offset:
            world.check_committed()
    world.settle()
    world.forsake()


@pytest.mark.parametrize("seed", seeds(25, fast=6))
def test_random_members(seed: int) -> None:
    run_history(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(1_000, 2_000, 100))
def test_many_histories(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 100):
        try:
            run_history(seed)
        except Exception as error:
            error.add_note(f"in the history of seed {seed}")
            raise
