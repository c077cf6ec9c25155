"""Shells of coordinators on a real partition whose high watermark a test moves by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from barnabas.broker.coordinators.group_shell import GroupShell
from barnabas.broker.coordinators.transaction_shell import TransactionShell
from barnabas.broker.replication.partition import Partition
from barnabas.broker.waiting.background import Background
from barnabas.groups.caller import Caller
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.settings import GroupSettings
from barnabas.model import ProducerId
from barnabas.primitives.decision import Decision
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas.records.layout import CompressionType
from barnabas.transactions.coordinator import TransactionCoordinator
from barnabas.transactions.markers import Markers
from barnabas.transactions.settings import TransactionSettings
from tests.broker.replication.roles import OTHER, US, OnePartition, role
from tests.groups.topics import Image

GROUP = "group"
TOPIC = "topic"
TIMEOUT_MS = 5_000


class LatePartition:
    """Broker 1 leads, and broker 2 is in sync: nothing is committed before `commit`."""

    def __init__(self) -> None:
        self.replica = OnePartition()
        self.epoch = 0
        self._timer_ms = 0
        self._executor = ThreadPoolExecutor(1)
        self.background = Background(asyncio.get_running_loop(), self._executor)

    async def lead(self) -> Partition:
        self.epoch += 1
        return await self.replica.became(role(US, self.epoch))

    async def resign(self) -> None:
        """Broker 2 leads, and this one drops what broker 2 does not have."""
        self.epoch += 1
        log = self.replica.log
        assert self.replica.become(role(OTHER, self.epoch)) == 0
        log.truncate_to(log.high_watermark)
        await self.settle()

    async def commit(self, end_offset: int | None = None) -> None:
        log = self.replica.log
        log.advance_high_watermark(log.log_end_offset if end_offset is None else end_offset)
        self.replica.partition.delayed.note_change(self.replica.partition.topic_partition)
        await self.settle()

    async def time_out(self) -> None:
        self._timer_ms += TIMEOUT_MS + 100
        self.replica.timer.advance(self._timer_ms)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    @property
    def now_ms(self) -> int:
        return self.replica.disk.clock.now_ms()

    async def group_shell(self) -> GroupShell:
        coordinator = GroupCoordinator(GroupSettings(), iter(map(str, range(1_000))).__next__)
        coordinator.topics_changed(Image(), (), has_new=True)
        shell = GroupShell(
            await self.lead(),
            coordinator,
            timer=self.replica.timer,
            clock=self.replica.disk.clock,
            commit_timeout_ms=TIMEOUT_MS,
            compression=CompressionType.NONE,
        )
        await shell.load(1 << 20, self.background)
        return shell

    async def transaction_shell(self, markers: list[Markers]) -> TransactionShell:
        ids = iter(range(1_000))
        shell = TransactionShell(
            await self.lead(),
            TransactionCoordinator(TransactionSettings(), lambda: ProducerId(next(ids))),
            lambda sent, epoch, then: markers.append(sent),
            timer=self.replica.timer,
            clock=self.replica.disk.clock,
        )
        await shell.load(1 << 20, self.background)
        return shell


class Replies:
    """What one client has been told."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def caller(self, version: int = 9) -> Caller:
        return Caller(version=version, client_id="client", answer=self.all.append)

    def one(self) -> Any:
        [reply] = self.all
        self.all.clear()
        return reply


def ask(shell: GroupShell, decide: Callable[[Caller], Decision], version: int = 9) -> Replies:
    replies = Replies()
    shell.check_ready()
    shell.carry_out(decide(replies.caller(version)))
    return replies


def commit_offset(shell: GroupShell, offset: int, partition: int = 0, now_ms: int = 0) -> Replies:
    asked = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=GROUP, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[asked])]
    )
    return ask(shell, lambda caller: shell.coordinator.offsets.commit(caller, request, now_ms))


def commit_code(replies: Replies) -> int:
    [topic] = replies.one().topics
    [partition] = topic.partitions
    return int(partition.error_code)


def fetch(shell: GroupShell, partition: int = 0, *, stable: bool = False) -> tuple[int, int]:
    """The error code and the offset."""
    shell.check_ready()
    request = OffsetFetchRequestGroup(
        group_id=GROUP, topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[partition])]
    )
    [topic] = shell.coordinator.offsets.fetch(request, require_stable=stable).topics
    [found] = topic.partitions
    return found.error_code, found.committed_offset


def listed(shell: GroupShell) -> list[str]:
    shell.check_ready()
    return [group.group_id for group in shell.coordinator.list_groups()]
