"""A member of a group of KIP-848 (group.protocol=consumer): one request, the heartbeat, does everything.

The heartbeat tells the coordinator the member's subscription and partitions, and returns an epoch and a target
assignment, which the coordinator computes. The member moves towards the target on its own: it revokes partitions that
are not in it, then takes the new ones, and reports this with the next heartbeat; no member waits for another. A
heartbeat names only what has changed since the last one; after an error it names everything.

    epoch 0 joins, -1 leaves, -2 leaves for a while (a static member that will be back)
"""

from __future__ import annotations

import asyncio
import base64
import logging
import uuid
from typing import Final

from barnabas.client.groups.handover import Change
from barnabas.client.groups.member import GroupMember, MemberParts
from barnabas.errors import (
    NONE,
    FencedMemberEpoch,
    KafkaError,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedVersion,
    error_for_code,
)
from barnabas.model import TopicPartition
from barnabas.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.protocol.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
)

log = logging.getLogger(__name__)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
FIRST_HEARTBEAT_INTERVAL_MS: Final = 3_000
LEAVE_TIMEOUT_MS: Final = 5_000


class ConsumerMember(GroupMember):
    def __init__(self, parts: MemberParts) -> None:
        super().__init__(parts)
        self._interval_ms = FIRST_HEARTBEAT_INTERVAL_MS
        self._soon = asyncio.Event()
        # The target assignment from the coordinator, by topic id; None until there is one.
        self._target: dict[bytes, list[int]] | None = None
        self._target_changed = asyncio.Event()
        self._is_new_target = False
        self._names_timer: asyncio.TimerHandle | None = None
        # The contents of the last heartbeat; None where the next one has to repeat it.
        self._told_subscription: tuple[frozenset[str], str | None] | None = None
        self._told_partitions: frozenset[TopicPartition] | None = None
        # The partitions of the target as they were taken, so that heartbeats name no more than that.
        self._owned: frozenset[TopicPartition] = frozenset()

    def start(self) -> None:
        if not self.is_started:
            self._begin_membership()
            self._begin(self._send_heartbeats, self._reconcile)

    def subscription_changed(self) -> None:
        self._soon.set()

    def _begin_membership(self) -> None:
        # A member keeps its id for life: the coordinator may have heard a join whose answer was lost.
        self.member_id = self.member_id or base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        self.generation = JOIN_EPOCH
        self._target = None
        self._tell_everything()
        self._soon.set()

    def _tell_everything(self) -> None:
        self._told_subscription = None
        self._told_partitions = None

    def _on_metadata(self) -> None:
        super()._on_metadata()
        if self._target is not None:
            # A topic of the target may have become known.
            self._target_changed.set()

    async def _send_heartbeats(self) -> None:
        failures = 0
        while True:
            try:
                async with asyncio.timeout(self._interval_ms / 1000):
                    await self._soon.wait()
            except TimeoutError:
                pass
            self._soon.clear()
            if self._is_poll_overdue():
                await self._leave_until_polled()
                continue
            try:
                await self._send_heartbeat()
                failures = 0
            except KafkaError as error:
                self._tell_everything()
                self._coordinator.forget_if_moved(error)
                if isinstance(error, UnknownMemberId | FencedMemberEpoch):
                    await self._lose(error)
                elif error.retriable:
                    log.debug("a heartbeat to group %s failed: %s", self._group_id, error)
                    await self._back_off(failures)
                    failures += 1
                    self._soon.set()
                else:
                    await self._handover.fail(_explained(error))
                    self._begin_membership()

    async def _leave_until_polled(self) -> None:
        self._warn_of_poll()
        await self._send_leave()
        await self._lose(UnknownMemberId())

    async def _lose(self, error: KafkaError) -> None:
        log.info("Group %s continues without this member: %s", self._group_id, error.name)
        self._target = None
        self._target_changed.clear()
        self.generation = JOIN_EPOCH
        self._handover.lose()
        # This waits for a poll; a reconciliation under way has been asked before and ends before.
        await self._ask(Change.LOST, self._subscription.partitions)
        self._owned = frozenset()
        self._begin_membership()

    async def _send_heartbeat(self) -> None:
        node = await self._coordinator.find()
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=self.generation
        )
        subscription = self._wanted_subscription()
        owned = self._owned
        if subscription != self._told_subscription:
            names, pattern = subscription
            request.subscribed_topic_names = sorted(names)
            if pattern is not None or (self._told_subscription and self._told_subscription[1] is not None):
                request.subscribed_topic_regex = pattern or ""
        if self._told_subscription is None:
            settings = self._settings
            request.instance_id = settings.group_instance_id
            request.rack_id = settings.client_rack or None
            request.rebalance_timeout_ms = settings.max_poll_interval_ms
            request.server_assignor = settings.group_remote_assignor
        if owned != self._told_partitions:
            request.topic_partitions = self._by_topic_id(owned)
        epoch = self.generation
        answer: ConsumerGroupHeartbeatResponse = await self._brokers.request(node, request)
        if answer.error_code != NONE:
            raise error_for_code(answer.error_code, answer.error_message or "")
        self._told_subscription = subscription
        self._told_partitions = owned
        if answer.member_id:
            self.member_id = answer.member_id
        self._interval_ms = max(answer.heartbeat_interval_ms, 1)
        if epoch == self.generation:
            self.generation = answer.member_epoch
        if answer.assignment is not None:
            self._take_target(answer.assignment)

    def _wanted_subscription(self) -> tuple[frozenset[str], str | None]:
        pattern = self._subscription.pattern
        return self._subscription.topics, pattern if isinstance(pattern, str) else None

    def _by_topic_id(self, partitions: frozenset[TopicPartition]) -> list[TopicPartitions]:
        by_id: dict[bytes, list[int]] = {}
        for partition in sorted(partitions):
            topic_id = self._cluster.topic_id(partition.topic)
            # A deleted topic is in no assignment.
            if topic_id is not None:
                by_id.setdefault(topic_id, []).append(partition.partition)
        return [TopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in by_id.items()]

    def _take_target(self, assignment: Assignment) -> None:
        self._target = {each.topic_id: list(each.partitions) for each in assignment.topic_partitions}
        self._is_new_target = True
        self._target_changed.set()

    async def _reconcile(self) -> None:
        """Moves towards the target, step by step, as it changes."""
        while True:
            await self._target_changed.wait()
            self._target_changed.clear()
            target = self._target
            if target is None:
                continue
            wanted: set[TopicPartition] = set()
            for topic_id, numbers in target.items():
                name = self._cluster.topic_name(topic_id)
                if name is None:
                    self._ask_for_names()
                    continue
                wanted.update(TopicPartition(name, number) for number in numbers)
            owned = set(self._subscription.partitions)
            if revoked := owned - wanted:
                await self._ask(Change.REVOKED, revoked)
                self._owned = frozenset(self._subscription.partitions)
                self._soon.set()
            if (added := wanted - owned) and self._target is not None:
                for partition in added:
                    self._cluster.track(partition.topic)
                await self._ask(Change.ASSIGNED, added)
            if wanted != owned:
                self._owned = frozenset(self._subscription.partitions)
                self._soon.set()

    def _ask_for_names(self) -> None:
        """Metadata brings the name of a topic that was assigned by its id: asked for at once, then now and then."""
        if self._names_timer is None:
            delay_ms = 0 if self._is_new_target else self._settings.retry_backoff_max_ms
            self._is_new_target = False
            self._names_timer = self._loop.call_later(delay_ms / 1000, self._refresh_names)

    def _refresh_names(self) -> None:
        self._names_timer = None
        self._cluster.want_refresh()

    async def _send_leave(self) -> None:
        if self.generation < JOIN_EPOCH or not self.member_id:
            return
        is_static = self._settings.group_instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH,
            instance_id=self._settings.group_instance_id,
        )
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                node = await self._coordinator.find()
                await self._brokers.request(node, request, timeout_ms=LEAVE_TIMEOUT_MS)
        except (KafkaError, TimeoutError) as error:
            log.debug("The member could not leave group %s: %s", self._group_id, error)

    def _forget_membership(self) -> None:
        super()._forget_membership()
        if self._names_timer is not None:
            self._names_timer.cancel()
            self._names_timer = None
        self._target = None
        self._owned = frozenset()
        self._tell_everything()


def _explained(error: KafkaError) -> KafkaError:
    if isinstance(error, UnsupportedVersion):
        return UnsupportedVersion(
            f"the broker does not offer group.protocol=consumer: {error}. Use group.protocol=classic"
        )
    if isinstance(error, UnreleasedInstanceId):
        return UnreleasedInstanceId("another consumer uses the same group.instance.id: each needs its own")
    return error
