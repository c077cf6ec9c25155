"""What comes in the moment in which a task of replication ends is not forgotten."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from barnabas.broker.replication import replica_fetcher
from barnabas.broker.replication.fetchers import ReplicaFetchers
from barnabas.broker.replication.isr_changes import IsrChanges
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_fetcher import FetcherContext
from barnabas.broker.replication.replica_manager import IsrMetrics
from barnabas.clock import SystemClock
from barnabas.errors import NetworkException
from barnabas.model import BrokerId
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_request import AlterPartitionRequest
from barnabas.protocol.messages.alter_partition_response import (
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)
from barnabas.replication.fetcher import FetcherSettings
from tests.broker.replication.roles import OTHER, TOPIC_ID, US, OnePartition, role
from tests.net.on_loop import on_loop
from tests.waiting import wait_until_async


class Controller:
    """Agrees to every proposal, when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[AlterPartitionRequest] = []
        self.may_answer: list[asyncio.Future[None]] = []

    async def ask(
        self, api_name: str, request: Message, *, timeout_ms: float, version: int | None = None
    ) -> Any:
        assert isinstance(request, AlterPartitionRequest)
        self.asked.append(request)
        self.may_answer.append(asyncio.get_running_loop().create_future())
        await self.may_answer[-1]
        [topic] = request.topics
        [proposed] = topic.partitions
        answer = PartitionData(
            partition_index=0,
            leader_epoch=proposed.leader_epoch,
            isr=[each.broker_id for each in proposed.new_isr_with_epochs],
            partition_epoch=proposed.partition_epoch + 1,
        )
        return AlterPartitionResponse(topics=[TopicData(topic_id=TOPIC_ID, partitions=[answer])])


@on_loop
async def test_a_change_of_in_sync_replicas_behind_the_last_answer() -> None:
    controller = Controller()
    loop = asyncio.get_running_loop()
    changes = IsrChanges(loop, controller, US, lambda: 1, IsrMetrics())
    partition = await OnePartition().became(role(US, 0, isr=[US]))
    leadership = partition.leadership
    assert leadership is not None
    follower = leadership.find(OTHER)
    assert follower is not None

    def joins() -> None:
        follower.log_end_offset = 0
        change = leadership.propose_expansion(follower, high_watermark=0, live={US, OTHER})
        assert change is not None
        changes.propose(partition, change)

    def leaves_and_joins() -> None:
        """The controller's answer is there, and the task that has sent the proposal has done its last step."""
        assert leadership.in_sync == (US, OTHER)
        follower.log_end_offset = -1
        change = leadership.propose_shrink(log_end_offset=0, now_ms=1 << 40)
        assert change is not None
        changes.propose(partition, change)

    joins()
    await wait_until_async(lambda: controller.may_answer)
    controller.may_answer[0].set_result(None)
    loop.call_soon(leaves_and_joins)
    await wait_until_async(lambda: len(controller.asked) == 2)
    controller.may_answer[1].set_result(None)
    await wait_until_async(lambda: leadership.in_sync == (US,))
    await changes.close()


@on_loop
async def test_a_controller_that_answers_nonsense_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.replication.isr_changes.FAILURE_RETRY_S", 0.01)
    controller = Controller()
    changes = IsrChanges(asyncio.get_running_loop(), controller, US, lambda: 1, IsrMetrics())
    partition = await OnePartition().became(role(US, 0, isr=[US]))
    leadership = partition.leadership
    assert leadership is not None
    follower = leadership.find(OTHER)
    assert follower is not None
    follower.log_end_offset = 0
    change = leadership.propose_expansion(follower, high_watermark=0, live={US, OTHER})
    assert change is not None
    changes.propose(partition, change)
    await wait_until_async(lambda: controller.may_answer)
    controller.may_answer[0].set_exception(ValueError("not an answer"))
    await wait_until_async(lambda: len(controller.asked) == 2)
    controller.may_answer[1].set_result(None)
    await wait_until_async(lambda: leadership.in_sync == (US, OTHER))
    await changes.close()


class Leaders:
    """No leader answers, and the requests are counted."""

    def __init__(self) -> None:
        self.asked = 0

    def link(self, broker_id: BrokerId, purpose: str) -> Leaders:
        return self

    async def ask(
        self, api_name: str, request: Message, *, version: int | None = None, timeout_ms: float
    ) -> Any:
        self.asked += 1
        raise NetworkException("nobody is there")


@on_loop
async def test_a_partition_that_comes_when_its_fetcher_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_fetcher, "IDLE_S", 0.01)
    loop = asyncio.get_running_loop()
    leaders = Leaders()
    context = FetcherContext(
        loop=loop,
        clock=SystemClock(),
        links=leaders,
        writes=cast(Any, None),
        executor=ThreadPoolExecutor(1),
        timeout_ms=1_000,
        written=lambda *_: None,
    )
    fetchers = ReplicaFetchers(context, lambda: FetcherSettings(replica_id=US, backoff_ms=10), lambda: 1)
    partition = await OnePartition().became(role(OTHER, 0))
    fetchers.follow(partition)
    await wait_until_async(lambda: leaders.asked)
    fetchers.leave(partition.topic_partition)
    [task] = fetchers._tasks
    came = loop.create_future()

    def come(partition: Partition) -> None:
        if not task.done():
            loop.call_soon(come, partition)
            return
        # Nobody has been told of the end of the task yet.
        assert len(fetchers) == 1
        fetchers.follow(partition)
        came.set_result(leaders.asked)

    come(partition)
    asked_before = await came
    await wait_until_async(lambda: leaders.asked > asked_before)
    await fetchers.close()
