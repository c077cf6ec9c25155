"""A member of a classic group: join, be assigned, send heartbeats, join again when the group changes.

The leader among the members divides the partitions (`assignors`). With eager assignors (range, roundrobin, sticky) a
member gives up everything before it joins again; with a cooperative one it keeps what it has, gives up afterwards what
the assignment took from it, and joins once more so that others can have that. Cooperative it is if all configured
assignors are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from barnabas.client.groups.assignors import make_assignors
from barnabas.client.groups.assignors.base import NO_GENERATION, Assignor
from barnabas.client.groups.handover import Change
from barnabas.client.groups.member import GroupMember, MemberParts
from barnabas.client.groups.messages import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)
from barnabas.errors import (
    NONE,
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    error_for_code,
)
from barnabas.model import TopicPartition
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.heartbeat_response import HeartbeatResponse
from barnabas.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.join_group_response import JoinGroupResponse
from barnabas.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.messages.sync_group_response import SyncGroupResponse

log = logging.getLogger(__name__)

# A coordinator answers a join when all members have joined or the rebalance time-out is over; and a bit for the way.
JOIN_MARGIN_MS: Final = 5_000
LEAVE_TIMEOUT_MS: Final = 5_000
LEAVE_GROUP: Final = api_for_name("LeaveGroup")
FIRST_LEAVE_VERSION_WITH_MEMBERS: Final = 3

_REMEDIES: Final[dict[int, str]] = {
    InconsistentGroupProtocol.code: "the group's other members have no assignor or protocol in common with this one:"
    " use the same partition.assignment.strategy in all of them",
    FencedInstanceId.code: "another consumer uses the same group.instance.id: each needs its own",
}


class ClassicMember(GroupMember):
    def __init__(self, parts: MemberParts) -> None:
        super().__init__(parts)
        self._assignors = make_assignors(parts.settings.partition_assignment_strategy)
        self._is_cooperative = all(assignor.cooperative for assignor in self._assignors)
        self._needs_join = asyncio.Event()
        self._is_joining = False
        # The assigned partitions may belong to others by now: they are lost, not revoked.
        self._is_lost = False
        self._fenced_by: FencedInstanceId | None = None
        # On the leader of the group: the partition counts on which the assignment is based.
        self._assigned_counts: dict[str, int] | None = None

    def start(self) -> None:
        if not self.is_started:
            self._needs_join.set()
            self._begin(self._run, self._send_heartbeats)

    def subscription_changed(self) -> None:
        self._needs_join.set()

    def has_overtaken(self, generation: int) -> bool:
        # A cooperative member keeps its partitions while it joins; any other has given them up before.
        return self._is_cooperative and generation > 0 and (self._is_joining or generation < self.generation)

    def _on_metadata(self) -> None:
        super()._on_metadata()
        counts = self._assigned_counts
        if counts is not None and counts != self._partition_counts(counts):
            self._needs_join.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._needs_join.wait()
            try:
                await self._give_up_before_join()
                if self._fenced_by is not None:
                    # To join again would fence the other in turn, and so on without end.
                    raise self._fenced_by
                self._needs_join.clear()
                await self._take(await self._join())
                failures = 0
            except KafkaError as error:
                self._needs_join.set()
                if await self._recover(error):
                    failures = 0
                else:
                    await self._back_off(failures)
                    failures += 1

    async def _recover(self, error: KafkaError) -> bool:
        """Makes ready to join again after an error; whether that may be at once."""
        self._coordinator.forget_if_moved(error)
        if isinstance(error, RebalanceInProgress | MemberIdRequired):
            return True
        if isinstance(error, UnknownMemberId | IllegalGeneration):
            self._lose(error)
            return True
        if error.retriable:
            log.debug("group %s cannot be joined yet: %s", self._group_id, error)
            return False
        if isinstance(error, FencedInstanceId):
            self._fenced_by = error
        remedy = _REMEDIES.get(error.code)
        if remedy is not None:
            error = error_for_code(error.code, f"group {self._group_id}: {remedy}")
        await self._handover.fail(error)
        return False

    def _lose(self, error: KafkaError) -> None:
        log.info("Group %s continues without this member: %s", self._group_id, error.name)
        self._is_lost = bool(self._subscription.partitions)
        self._handover.lose()
        self.generation = NO_GENERATION
        if not isinstance(error, IllegalGeneration):
            self.member_id = ""
        self._needs_join.set()

    async def _give_up_before_join(self) -> None:
        owned = set(self._subscription.partitions)
        if self._is_lost:
            self._is_lost = False
            await self._ask(Change.LOST, owned)
        elif self._is_poll_overdue():
            # A consumer that does not poll is not a member: it rejoins with the next poll.
            await self._ask(Change.LOST, owned)
        elif not self._is_cooperative:
            if owned:
                await self._ask(Change.REVOKED, owned)
        else:
            topics = self._subscription.topics
            unwanted = {partition for partition in owned if partition.topic not in topics}
            if unwanted:
                await self._ask(Change.REVOKED, unwanted)

    async def _join(self) -> list[TopicPartition]:
        """Joins and is assigned: the partitions of this member in the new generation."""
        settings = self._settings
        node = await self._coordinator.find()
        self._assigned_counts = None
        topics = self._subscription.topics
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=assignor.name,
                    metadata=encode_subscription(
                        topics,
                        assignor,
                        self._subscription.partitions,
                        self.generation,
                        settings.client_rack,
                    ),
                )
                for assignor in self._assignors
            ],
        )
        self._is_joining = True
        try:
            joined: JoinGroupResponse = await self._brokers.request(
                node, request, timeout_ms=settings.max_poll_interval_ms + JOIN_MARGIN_MS
            )
            if joined.error_code == MemberIdRequired.code:
                self.member_id = joined.member_id
            if joined.error_code != NONE:
                raise error_for_code(joined.error_code)
            self.member_id = joined.member_id
            assignor = self._assignor(joined.protocol_name)
            assignments: dict[str, list[TopicPartition]] = {}
            if joined.leader == joined.member_id and not joined.skip_assignment:
                assignments = await self._assign(assignor, joined)
            else:
                self.watched_topics = frozenset()
            sync = SyncGroupRequest(
                group_id=self._group_id,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=settings.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=joined.protocol_name,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
                    for member_id, partitions in assignments.items()
                ],
            )
            synced: SyncGroupResponse = await self._brokers.request(
                node, sync, timeout_ms=settings.max_poll_interval_ms + JOIN_MARGIN_MS
            )
            if synced.error_code != NONE:
                raise error_for_code(synced.error_code)
        except asyncio.CancelledError:
            # The coordinator reads nothing more from a connection before the join on it is answered.
            link = self._brokers.link_of(node)
            if link is not None:
                link.requester.close()
            raise
        finally:
            self._is_joining = False
        self.generation = joined.generation_id
        partitions = decode_assignment(synced.assignment)
        assignor.on_assignment(partitions, self.generation)
        log.debug("group %s, generation %d: %s", self._group_id, self.generation, partitions)
        return partitions

    def _assignor(self, name: str | None) -> Assignor:
        for assignor in self._assignors:
            if assignor.name == name:
                return assignor
        raise InconsistentGroupProtocol(f"the coordinator chose the assignor {name!r}, which was not offered")

    async def _assign(self, assignor: Assignor, joined: JoinGroupResponse) -> dict[str, list[TopicPartition]]:
        members = [
            decode_member(each.member_id, each.group_instance_id, each.metadata) for each in joined.members
        ]
        topics = frozenset(topic for member in members for topic in member.topics)
        self.watched_topics = topics
        unknown = [topic for topic in topics if self._cluster.partition_count(topic) is None]
        for topic in topics:
            self._cluster.track(topic)
        if unknown:
            await self._cluster.refresh()
        counts = self._partition_counts(topics)
        existing = {topic: count for topic, count in counts.items() if count}
        racks = self._racks(existing) if any(member.rack_id for member in members) else None
        assignments = assignor.assign(existing, members, racks)
        self._assigned_counts = counts
        return assignments

    def _racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """The racks of the replicas of each partition; the metadata of the cluster has the nodes."""
        found: dict[TopicPartition, frozenset[str]] = {}
        for topic in topics:
            info = self._cluster.topic(topic)
            for each in () if info is None else info.partitions:
                racks = (self._cluster.rack_of(node) for node in each.replicas)
                found[TopicPartition(topic, each.partition)] = frozenset(rack for rack in racks if rack)
        return found

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: self._cluster.partition_count(topic) or 0 for topic in topics}

    async def _take(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._cluster.track(partition.topic)
        owned = set(self._subscription.partitions)
        revoked = owned.difference(partitions)
        if revoked:
            await self._ask(Change.REVOKED, revoked)
            if self._is_cooperative:
                self._needs_join.set()
        await self._ask(Change.ASSIGNED, set(partitions) - owned)

    async def _send_heartbeats(self) -> None:
        failed_s = 0.0
        while True:
            await asyncio.sleep(self._settings.heartbeat_interval_ms / 1000)
            if self.generation == NO_GENERATION or self._is_joining:
                continue
            if self._is_poll_overdue():
                self._warn_of_poll()
                member_id = self.member_id
                self._lose(UnknownMemberId())
                await self._leave_as(member_id)
                continue
            try:
                await self._send_heartbeat()
                failed_s = 0.0
            except KafkaError as error:
                self._coordinator.forget_if_moved(error)
                if isinstance(error, RebalanceInProgress):
                    self._needs_join.set()
                elif isinstance(error, UnknownMemberId | IllegalGeneration | FencedInstanceId):
                    if isinstance(error, FencedInstanceId):
                        self._fenced_by = error
                    self._lose(error)
                else:
                    log.debug("a heartbeat to group %s failed: %s", self._group_id, error)
                    # The coordinator has removed the member by now, wherever it is.
                    failed_s = failed_s or self._loop.time()
                    if self._loop.time() - failed_s > self._settings.session_timeout_ms / 1000:
                        self._coordinator.forget()

    async def _send_heartbeat(self) -> None:
        node = await self._coordinator.find()
        generation = self.generation
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self._settings.group_instance_id,
        )
        if self._is_joining or generation == NO_GENERATION:
            return
        answer: HeartbeatResponse = await self._brokers.request(
            node, request, timeout_ms=self._settings.session_timeout_ms
        )
        # A response that was overtaken by a join says nothing about that join.
        if answer.error_code != NONE and generation == self.generation and not self._is_joining:
            raise error_for_code(answer.error_code)

    async def _send_leave(self) -> None:
        await self._leave_as(self.member_id)

    async def _leave_as(self, member_id: str) -> None:
        if not member_id or self._settings.group_instance_id is not None:
            return
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                node = await self._coordinator.find()
                link = await self._brokers.link(node)
                request = LeaveGroupRequest(group_id=self._group_id)
                if link.version_of(LEAVE_GROUP) >= FIRST_LEAVE_VERSION_WITH_MEMBERS:
                    request.members = [MemberIdentity(member_id=member_id)]
                else:
                    request.member_id = member_id
                await self._brokers.request(node, request, timeout_ms=LEAVE_TIMEOUT_MS)
        except (KafkaError, TimeoutError) as error:
            log.debug("The member could not leave group %s: %s", self._group_id, error)

    def _forget_membership(self) -> None:
        super()._forget_membership()
        self._is_lost = False
        self._fenced_by = None
        self._assigned_counts = None
        self._needs_join.clear()
