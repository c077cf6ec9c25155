"""Which fetcher a partition belongs to, and what becomes of it when the fetcher ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from barnabas.broker.replication import replica_fetcher
from barnabas.broker.replication.fetchers import ReplicaFetchers, fetcher_number
from barnabas.broker.replication.follower_writes import Failed
from barnabas.broker.replication.replica_fetcher import FetcherContext
from barnabas.clock import SystemClock
from barnabas.errors import CorruptMessage, InvalidRecord, KafkaError, KafkaStorageError
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.message import Message
from barnabas.replication.fetcher import Append, FetcherSettings, Step, TruncateTo
from tests.broker.replication.roles import OTHER, US, OnePartition, role
from tests.net.on_loop import on_loop
from tests.waiting import wait_until_async

BACKOFF_MS = 200


@pytest.mark.parametrize(
    ("topic", "partition", "count", "expected"),
    [
        # "a".hashCode() is 97: 31 * 97 + partition.
        ("a", 0, 10, 7),
        ("a", 5, 10, 2),
        ("a", 5, 1, 0),
        ("", 3, 2, 1),
        # Its hashCode() is the least int, and so is 31 times it. Java's int has no absolute value of that.
        ("polygenelubricants", 0, 7, 0),
        # One more is -2147483647.
        ("polygenelubricants", 1, 10, 7),
    ],
)
def test_the_number_of_a_fetcher_is_kafkas(topic: str, partition: int, count: int, expected: int) -> None:
    assert fetcher_number(TopicPartition(topic, partition), count) == expected


class Leader:
    """The first request meets a bug, and the others no answer."""

    def __init__(self) -> None:
        self.asked_at_s: list[float] = []

    def link(self, broker_id: BrokerId, purpose: str) -> Leader:
        return self

    async def ask(
        self, api_name: str, request: Message, *, version: int | None = None, timeout_ms: float
    ) -> Any:
        loop = asyncio.get_running_loop()
        self.asked_at_s.append(loop.time())
        if len(self.asked_at_s) == 1:
            raise ZeroDivisionError("a bug")
        await loop.create_future()


class BrokenDisk:
    def carry_out(self, steps: Iterable[Step]) -> list[Failed]:
        return [Failed(step, KafkaStorageError("The disk is broken.")) for step in steps]


def fetchers_of(leader: Leader, backoff_ms: int = BACKOFF_MS) -> ReplicaFetchers:
    context = FetcherContext(
        loop=asyncio.get_running_loop(),
        clock=SystemClock(),
        links=leader,
        writes=cast(Any, BrokenDisk()),
        executor=ThreadPoolExecutor(1),
        timeout_ms=1_000,
        written=lambda *_: None,
    )
    return ReplicaFetchers(context, lambda: FetcherSettings(replica_id=US, backoff_ms=backoff_ms), lambda: 1)


@on_loop
async def test_partitions_of_a_fetcher_that_has_failed_are_followed_after_the_backoff() -> None:
    leader = Leader()
    fetchers = fetchers_of(leader)
    fetchers.follow(await OnePartition().became(role(OTHER, 0)))
    await wait_until_async(lambda: len(leader.asked_at_s) == 2)
    first_s, second_s = leader.asked_at_s
    assert second_s - first_s >= BACKOFF_MS / 1_000
    await fetchers.close()


@on_loop
async def test_a_fetcher_that_has_failed_does_not_bring_an_earlier_role_back() -> None:
    leader = Leader()
    fetchers = fetchers_of(leader, backoff_ms=3_600_000)
    replica = OnePartition()
    partition = await replica.became(role(OTHER, 0))
    earlier_epoch = partition.leader_epoch
    fetchers.follow(partition)
    await wait_until_async(lambda: leader.asked_at_s and not fetchers)
    # The log is the same one, so there is nothing to wait for.
    assert replica.become(role(US, 1)) == 0
    # As the timer of the back-off does.
    fetchers._follow_again([(partition, earlier_epoch)])
    assert (len(fetchers), len(leader.asked_at_s)) == (0, 1)
    await fetchers.close()


@on_loop
async def test_a_partition_whose_log_has_failed_waits_for_its_next_role(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_fetcher, "IDLE_S", 0.01)
    fetchers = fetchers_of(Leader())
    replica = OnePartition()
    partition = await replica.became(role(OTHER, 0))
    fetchers.follow(partition)
    [fetcher] = fetchers._fetchers.values()
    fetcher._report(BrokenDisk().carry_out([TruncateTo(partition.topic_partition, 0)]))
    assert fetchers.failed_count() == 1
    await wait_until_async(lambda: not fetchers)
    assert fetchers.failed_count() == 1
    fetchers.leave(partition.topic_partition)
    assert fetchers.failed_count() == 0
    await fetchers.close()


@pytest.mark.parametrize("error", [CorruptMessage("bad checksum"), InvalidRecord("a marker is too short")])
@on_loop
async def test_records_that_cannot_be_read_are_asked_for_again(error: KafkaError) -> None:
    fetchers = fetchers_of(Leader())
    partition = await OnePartition().became(role(OTHER, 0))
    fetchers.follow(partition)
    [fetcher] = fetchers._fetchers.values()
    fetcher._report([Failed(Append(partition.topic_partition, b"records", 0, 0), error)])
    assert fetchers.failed_count() == 0
    assert fetcher.machine.wakes_at_ms() is not None
    await fetchers.close()
