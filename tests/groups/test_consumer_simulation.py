"""Groups under random members of both protocols: they join, follow, commit, leave, crash, stall and come back.

Answers get lost, records cannot be written, topics come, grow and go, the coordinator fails over. Each history comes
from a seed, and each step is checked: no partition of a consumer group has two owners, nobody owns more than the
coordinator knows of, members of one generation of a classic group own different partitions, no acknowledged commit is
lost. When things calm down, those who are left own everything, each partition once.
"""

from __future__ import annotations

import os
import random
from abc import ABC, abstractmethod
from typing import Final

import pytest

from barnabas.errors import (
    NONE,
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    MemberIdRequired,
    NotEnoughReplicas,
    RebalanceInProgress,
    RequestTimedOut,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from barnabas.groups.caller import Caller
from barnabas.groups.consumer_protocol import build_assignment, parse_assignment, parse_subscription
from barnabas.groups.settings import GroupSettings
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.consumer_group_describe_response import DescribedGroup
from barnabas.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from barnabas.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from barnabas.protocol.messages.join_group_response import JoinGroupResponse
from barnabas.protocol.messages.sync_group_response import SyncGroupResponse
from tests.groups.requests import (
    commit,
    commit_code,
    fetch,
    send_heartbeat,
    send_leave,
    sync,
    try_heartbeat,
)
from tests.groups.shell import Shell
from tests.groups.topics import Image, Topic, topic_id
from tests.sampling import seeds

GROUP_IDS: Final = ("group-0", "group-1")
TOPICS: Final = ("t-0", "t-1", "t-2")
CLIENTS_MAX: Final = 6
STEPS: Final = 200
ROUND_MS: Final = 1_000
SETTLING_ROUNDS_MAX: Final = 600
HISTORIES: Final = 4_000 if os.environ.get("BARNABAS_SOAK") == "1" else 80

Partition = tuple[str, int]
BACK_TO_START: Final = {UnknownMemberId.code, FencedMemberEpoch.code, IllegalGeneration.code}
TRIED_AGAIN: Final = {CoordinatorNotAvailable.code, RebalanceInProgress.code, UnreleasedInstanceId.code}


class Client(ABC):
    """What both kinds have in common: a group, perhaps an instance, and what the client believes to own."""

    def __init__(self, world: World, group_id: str, instance_id: str | None) -> None:
        self.world = world
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.is_gone = False

    @property
    def shell(self) -> Shell:
        return self.world.shell

    @abstractmethod
    def step(self) -> None: ...

    @abstractmethod
    def leave(self) -> None: ...

    @abstractmethod
    def subscribed(self) -> set[str]: ...

    def commit(self) -> None:
        if not self.owned:
            return
        topic, partition = self.world.random.choice(sorted(self.owned))
        self.world.commit(self, topic, partition)

    def owned_by_id(self) -> dict[bytes, list[int]]:
        owned: dict[bytes, list[int]] = {}
        for topic, partition in sorted(self.owned):
            if topic in self.world.topics:
                owned.setdefault(self.world.topics[topic].id, []).append(partition)
        return owned


class ConsumerClient(Client):
    """Of the new protocol: what it gets it first makes room for, and what it owns it reports."""

    def __init__(self, world: World, group_id: str, instance_id: str | None) -> None:
        super().__init__(world, group_id, instance_id)
        self.member_id = world.new_id()
        self.has_regex = world.random.random() < 0.3
        self.topics = tuple(world.random.sample(TOPICS, world.random.randint(1, 3)))
        self.assignor = world.random.choice([None, "range", "uniform"])
        # The last answer was lost, or there was none: everything is said again.
        self.says_all = True

    def subscribed(self) -> set[str]:
        return set(TOPICS if self.has_regex else self.topics)

    def step(self) -> None:
        says_all = self.says_all or self.epoch == 0
        caller = send_heartbeat(
            self.shell,
            self.member_id,
            self.epoch,
            group_id=self.group_id,
            instance_id=self.instance_id,
            rebalance_timeout_ms=20_000 if says_all else -1,
            topics=(() if self.has_regex else self.topics) if says_all else None,
            regex=("t-.*" if self.has_regex else "") if says_all else None,
            assignor=self.assignor if says_all else None,
            owned=({} if self.epoch == 0 else self.owned_by_id()) if says_all else self._report(),
        )
        self.says_all = False
        response = self.shell.replies.get(caller)
        if response is None or self.world.is_lost():
            self.says_all = True
            return
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        # While replies wait for a commit its session may end, and those who are left may make a classic group.
        if response.error_code in BACK_TO_START | {GroupIdNotFound.code}:
            self.epoch = 0
            self.owned.clear()
        elif response.error_code != NONE:
            assert response.error_code in TRIED_AGAIN | {GroupMaxSizeReached.code}, response
            self.says_all = True
        else:
            self._answered(response)

    def _report(self) -> dict[bytes, list[int]] | None:
        return self.owned_by_id() if self.world.random.random() < 0.7 else None

    def _answered(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if self.epoch == 0:
            self.owned.clear()
        self.epoch = response.member_epoch
        if response.assignment is not None:
            names = self.world.image.topic_names
            self.owned = {
                (names[each.topic_id], partition)
                for each in response.assignment.topic_partitions
                if each.topic_id in names
                for partition in each.partitions
            }
            # What was given up is told with the next heartbeat.
            self.says_all = True

    def leave(self) -> None:
        is_for_a_while = self.instance_id is not None and self.world.random.random() < 0.7
        send_heartbeat(
            self.shell,
            self.member_id,
            -2 if is_for_a_while else -1,
            group_id=self.group_id,
            instance_id=self.instance_id,
        )


class ClassicClient(Client):
    """Of the classic protocol, giving up everything before it joins, or only what it must."""

    def __init__(self, world: World, group_id: str, instance_id: str | None) -> None:
        super().__init__(world, group_id, instance_id)
        self.topics = tuple(sorted(world.random.sample(TOPICS, world.random.randint(1, 3))))
        self.waiting: Caller | None = None
        self.is_joined = False
        # As a leader: the topics that it has assigned.
        self.assigned_topics: dict[str, Topic] | None = None

    def subscribed(self) -> set[str]:
        return set(self.topics)

    def step(self) -> None:
        if self.is_joined and self.assigned_topics not in (None, self.world.topics):
            self.is_joined = False
        if self.waiting is not None:
            response = self.shell.replies.get(self.waiting)
            if isinstance(response, JoinGroupResponse):
                self.waiting = None
                self._joined(response)
            elif isinstance(response, SyncGroupResponse):
                self.waiting = None
                self._synced(response)
            elif self.world.random.random() < 0.05:
                self.waiting = None
            return
        if not self.is_joined:
            self._join()
            return
        code = try_heartbeat(
            self.shell, self.member_id, self.epoch, instance_id=self.instance_id, group_id=self.group_id
        )
        if code is not None:
            self._failed(code)

    def _join(self) -> None:
        if not self.world.is_cooperative:
            self.owned.clear()
        owned: dict[str, list[int]] = {}
        for topic, partition in sorted(self.owned):
            owned.setdefault(topic, []).append(partition)
        message = ConsumerProtocolSubscription(
            topics=list(self.topics),
            user_data=None,
            owned_partitions=[
                TopicPartition(topic=topic, partitions=partitions) for topic, partitions in owned.items()
            ],
        )
        self.waiting = self.shell.join(
            self.member_id,
            version=9,
            group_id=self.group_id,
            instance_id=self.instance_id,
            protocols={"protocol": b"\x00\x01" + encode(message, 1)},
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
        )

    def _joined(self, response: JoinGroupResponse) -> None:
        if response.error_code == MemberIdRequired.code:
            self.member_id = response.member_id
        elif response.error_code != NONE:
            self._failed(response.error_code)
        else:
            self.member_id, self.epoch = response.member_id, response.generation_id
            self.waiting = sync(
                self.shell,
                self.member_id,
                self.epoch,
                self._assign(response),
                instance_id=self.instance_id,
                group_id=self.group_id,
            )

    def _assign(self, response: JoinGroupResponse) -> dict[str, bytes] | None:
        """As a leader: partitions in turn, but what somebody still owns is left with nobody else."""
        if not response.members:
            self.assigned_topics = None
            return None
        # A leader that comes back does not know which topics were assigned.
        self.assigned_topics = {} if response.skip_assignment else dict(self.world.topics)
        subscriptions = {each.member_id: parse_subscription(each.metadata) for each in response.members}
        owners = {
            (topic, partition): member_id
            for member_id, each in subscriptions.items()
            for topic, partitions in each.owned.items()
            for partition in partitions
        }
        shares: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in subscriptions}
        for topic, found in self.world.topics.items():
            readers = [each for each in sorted(subscriptions) if topic in subscriptions[each].topics]
            for partition in found.partitions:
                if readers:
                    reader = readers[partition % len(readers)]
                    if owners.get((topic, partition), reader) == reader:
                        shares[reader].setdefault(topic, []).append(partition)
        return {member_id: build_assignment(share, 1) for member_id, share in shares.items()}

    def _synced(self, response: SyncGroupResponse) -> None:
        if response.error_code != NONE:
            self._failed(response.error_code)
            return
        assignment = parse_assignment(response.assignment)
        after = {(topic, each) for topic, partitions in assignment.items() for each in partitions}
        has_given_up = bool(self.owned - after)
        self.owned = after
        # Who has given something up joins again, so that another can get it.
        self.is_joined = not has_given_up

    def _failed(self, code: int) -> None:
        if code == NONE:
            return
        self.is_joined = False
        if code in (UnknownMemberId.code, IllegalGeneration.code):
            self.owned.clear()
        if code == UnknownMemberId.code:
            self.member_id = ""
        elif code == FencedInstanceId.code:
            self.is_gone = True
        else:
            assert code in TRIED_AGAIN | {IllegalGeneration.code, GroupMaxSizeReached.code}, code

    def leave(self) -> None:
        if self.instance_id is None and self.member_id:
            send_leave(self.shell, (self.member_id, None), group_id=self.group_id)


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.settings = GroupSettings(
            group_initial_rebalance_delay_ms=self.random.choice([0, 3_000]),
            consumer_session_timeout_ms=10_000,
            consumer_heartbeat_interval_ms=1_000,
            consumer_assignment_interval_ms=self.random.choice([0, 1_000]),
            consumer_regex_refresh_interval_ms=30_000,
            offsets_retention_ms=10**12,
        )
        self.is_cooperative = self.random.random() < 0.5
        self.is_calm = False
        self.topics = {name: Topic(topic_id(name), range(self.random.randint(1, 4))) for name in TOPICS[:2]}
        self.shell = Shell(self.settings, image=self.image)
        self.clients: list[Client] = []
        self.id_count = 0
        self.incarnations = 0
        self.recreated: set[str] = set()
        # What is acknowledged of each partition, and what may have been written since.
        self.committed: dict[tuple[str, str, int], set[int]] = {}
        self.next_offset = 0

    @property
    def image(self) -> Image:
        return Image(dict(self.topics))

    def new_id(self) -> str:
        self.id_count += 1
        return f"member-{self.id_count}"

    def is_lost(self) -> bool:
        return not self.is_calm and self.random.random() < 0.1

    def commit(self, client: Client, topic: str, partition: int) -> None:
        self.next_offset += 1
        caller = commit(
            self.shell,
            self.next_offset,
            partition=partition,
            topic=topic,
            member_id=client.member_id,
            generation_id=client.epoch,
            instance_id=client.instance_id,
            group_id=client.group_id,
        )
        key = (client.group_id, topic, partition)
        if caller not in self.shell.replies:
            if key in self.committed:
                self.committed[key].add(self.next_offset)
            return
        code = commit_code(self.shell, caller)
        if code == NONE:
            self.committed[key] = {self.next_offset}
        else:
            refused = BACK_TO_START | TRIED_AGAIN | {StaleMemberEpoch.code, FencedInstanceId.code}
            assert code in refused, code

    def disturb(self) -> None:
        what = self.random.random()
        if what < 0.02:
            self._fail_over()
        elif what < 0.04:
            self.shell.append_error = None if self.shell.append_error else NotEnoughReplicas()
        elif what < 0.06:
            self._change_topics()
        elif what < 0.18 and len(self.clients) < CLIENTS_MAX:
            self._add_client()
        elif what < 0.24 and self.clients:
            client = self.random.choice(self.clients)
            self.clients.remove(client)
            if self.random.random() < 0.5:
                client.leave()
        elif what < 0.28:
            self.shell.holds_commits = True
        elif what < 0.36:
            self._commit_some()

    def _commit_some(self) -> None:
        shell = self.shell
        shell.holds_commits = self.random.random() < 0.3
        if shell.holds_commits and shell.uncommitted:
            shell.commit_next(self.random.choice([None, RequestTimedOut()]))
        else:
            shell.commit()

    def _fail_over(self) -> None:
        old = self.shell
        shown = described(old)
        is_lost = self.random.random() < 0.5
        has_more = not is_lost and old.high_watermark < old.next_offset
        self.shell = old.reloaded(loses_uncommitted=is_lost)
        assert has_more or described(self.shell) == shown
        for client in self.clients:
            if isinstance(client, ClassicClient):
                client.waiting = None
            elif isinstance(client, ConsumerClient):
                client.says_all = True

    def _add_client(self) -> None:
        kind = self.random.choice([ConsumerClient, ClassicClient])
        used = {client.instance_id for client in self.clients}
        instance_id = self.random.choice([None, None, "static-0", "static-1"])
        if instance_id in used:
            instance_id = None
        self.clients.append(kind(self, self.random.choice(GROUP_IDS), instance_id))

    def _change_topics(self) -> None:
        name = self.random.choice(TOPICS)
        topic = self.topics.get(name)
        if topic is None:
            self.incarnations += 1
            self.recreated.add(name)
            self.topics[name] = Topic(topic_id(name, self.incarnations), range(2))
        elif self.random.random() < 0.3:
            del self.topics[name]
            for client in self.clients:
                client.owned = {each for each in client.owned if each[0] != name}
                if isinstance(client, ClassicClient) and client.waiting is not None:
                    # An answer on its way may speak of the topic, whose name another may have when it arrives.
                    client.waiting = None
                    client.is_joined = False
        else:
            self.topics[name] = Topic(topic.id, range(min(len(topic.partitions) + 1, 6)))
        self.shell.set_topics(self.image)

    def step(self) -> None:
        for client in list(self.clients):
            if client.is_gone:
                self.clients.remove(client)
            elif self.is_calm or self.random.random() < 0.8:
                client.step()
            if self.random.random() < 0.2:
                client.commit()
            self.check()
        self.shell.advance_ms(ROUND_MS)
        self.check()

    def check(self) -> None:
        table = self.shell.coordinator._groups
        for group in table.consumer.values():
            owners: dict[tuple[bytes, int], str] = {}
            for member in group.members.values():
                for partition in member.owned_partitions():
                    assert partition not in owners, f"{group.group_id}: {partition} has two owners"
                    owners[partition] = member.member_id
        owned_in: dict[tuple[str, int], set[Partition]] = {}
        for client in self.clients:
            consumer_group = table.consumer.get(client.group_id)
            known = None if consumer_group is None else consumer_group.members.get(client.member_id)
            # A member of the classic protocol has joined when it knows what it owns.
            is_joined = not isinstance(client, ClassicClient) or client.is_joined
            if known is not None and known.member_epoch == client.epoch and is_joined:
                names = self.image.topic_names
                held = {
                    (names[topic], partition)
                    for topic, partition in known.owned_partitions()
                    if topic in names
                }
                owned = client.owned
                if isinstance(client, ClassicClient):
                    # It knows topics by name: an old assignment may speak of one that is gone, or made anew.
                    known_names = self.topics.keys() - self.recreated
                    owned = {each for each in owned if each[0] in known_names}
                assert owned <= held, f"{client.member_id} owns what it was not given"
            classic = table.classic.get(client.group_id)
            if (
                isinstance(client, ClassicClient)
                and classic is not None
                and client.member_id in classic.members
                and client.is_joined
                and client.epoch == classic.generation_id
            ):
                taken = owned_in.setdefault((client.group_id, client.epoch), set())
                assert not taken & client.owned, f"{client.group_id}: two owners in one generation"
                taken |= client.owned
        for (group_id, topic, index), offsets in self.committed.items():
            code, offset, _ = fetch(self.shell, partition=index, topic=topic, group_id=group_id)
            assert code == NONE
            assert offset in offsets, f"a commit of {group_id} for {topic}-{index} is lost"

    def check_committed(self) -> None:
        """What the coordinator shows is what another one shows that loads what is committed."""
        shell = self.shell
        twin = shell.reloaded(loses_uncommitted=True)
        assert described(shell) == described(twin)
        assert _types(shell) == _types(twin)

    def is_settled(self) -> bool:
        for group_id in GROUP_IDS:
            clients = [client for client in self.clients if client.group_id == group_id]
            wanted = {
                (name, partition)
                for name, topic in self.topics.items()
                if any(name in client.subscribed() for client in clients)
                for partition in topic.partitions
            }
            owned = [partition for client in clients for partition in client.owned]
            if len(owned) != len(wanted) or set(owned) != wanted:
                return False
        listed = self.shell.coordinator.list_groups()
        return all(group.group_state in ("Stable", "Empty") for group in listed)


def run(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.disturb()
        world.step()
        if world.shell.high_watermark < world.shell.next_offset:
            world.check_committed()
    world.is_calm = True
    world.shell.append_error = None
    world.shell.holds_commits = False
    world.shell.commit()
    for _ in range(SETTLING_ROUNDS_MAX):
        world.step()
        if world.is_settled():
            break
    else:
        raise AssertionError(
            f"seed {seed}: not settled: {[(each.group_id, each.member_id, each.owned) for each in world.clients]}"
        )
    before = described(world.shell)
    world.shell = world.shell.reloaded()
    assert described(world.shell) == before
    world.check()


def _types(shell: Shell) -> dict[str, str]:
    return {group.group_id: group.group_type for group in shell.coordinator.list_groups()}


def described(shell: Shell) -> list[DescribedGroup]:
    """Consumer groups are what their records say, and nothing else."""
    listed = shell.coordinator.list_groups(types=["consumer"])
    groups = [shell.coordinator.describe_consumer_group(group.group_id) for group in listed]
    for group in groups:
        group.members.sort(key=lambda member: member.member_id)
    return sorted(groups, key=lambda group: group.group_id)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(8, fast=2))
def test_histories(seed: int) -> None:
    run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(1_000, 1_000 + HISTORIES, 20))
def test_many_histories(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        try:
            run(seed)
        except Exception as error:
            error.add_note(f"in the history of seed {seed}")
            raise
