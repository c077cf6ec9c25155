"""Where reading begins and whether it may go on, with brokers that answer as told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

import pytest

from barnabas.client.connections.brokers import Brokers
from barnabas.client.connections.cluster import Cluster
from barnabas.client.consumer.offsets import Lookup, Positions
from barnabas.client.partition_state import PartitionState
from barnabas.client.reset_policy import EARLIEST, LATEST
from barnabas.client.settings import ConsumerSettings
from barnabas.client.subscription import (
    LogTruncation,
    NoOffsetForPartition,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Subscription,
)
from barnabas.clock import ManualClock
from barnabas.errors import KafkaError, NotLeaderOrFollower, UnsupportedVersion
from barnabas.model import TopicPartition
from barnabas.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T0 = TopicPartition("t", 0)


class ToldLookup(Lookup):
    """Answers with what the test has laid out, one after the other."""

    def __init__(self, settings: ConsumerSettings, brokers: Brokers, cluster: Cluster) -> None:
        super().__init__(settings, brokers, cluster)
        self.asked: list[object] = []
        self.ends_of_epochs: list[tuple[int, int] | KafkaError] = []
        self.offsets: list[OffsetAndTimestamp | KafkaError | None] = []

    async def end_of_epoch(self, partition: TopicPartition, epoch: int) -> tuple[int, int]:
        self.asked.append(epoch)
        answer = self.ends_of_epochs.pop(0)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    async def offsets_once(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError | None]:
        self.asked += timestamps.values()
        return {partition: self.offsets.pop(0) for partition in timestamps}


class Finding:
    def __init__(
        self, policy: str = "earliest", committed: dict[TopicPartition, OffsetAndMetadata] | None = None
    ) -> None:
        settings = ConsumerSettings(
            bootstrap_servers="127.0.0.1:1",
            auto_offset_reset=policy,
            retry_backoff_ms=1,
            retry_backoff_max_ms=1,
        )
        brokers = Brokers(settings)
        self.cluster = Cluster(settings, brokers)
        self.cluster.track("t")
        self.lookup = ToldLookup(settings, brokers, self.cluster)
        self.subscription = Subscription()
        self.subscription.assign([T0])
        self.failures: list[KafkaError] = []
        self.changed = asyncio.Event()

        async def fetch_committed(
            partitions: Iterable[TopicPartition],
        ) -> dict[TopicPartition, OffsetAndMetadata]:
            return committed or {}

        self.positions = Positions(
            settings,
            self.lookup,
            self.cluster,
            self.subscription,
            ManualClock(10_000),
            fetch_committed=fetch_committed,
            on_found=self.changed.set,
            on_failed=self._failed,
        )

    def _failed(self, state: PartitionState, error: KafkaError) -> None:
        state.retry_s = float("inf")
        self.failures.append(error)
        self.changed.set()

    @property
    def state(self) -> PartitionState:
        return self.subscription.state_of(T0)

    def lead(self, leader_epoch: int) -> None:
        """The partition has a leader of that epoch."""
        partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=leader_epoch)
        self.cluster._take(
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=1)],
                topics=[MetadataResponseTopic(name="t", partitions=[partition])],
            ),
            is_complete=False,
        )

    async def wait(self) -> None:
        async with asyncio.timeout(60):
            await self.changed.wait()
        self.changed.clear()


def on_a_loop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_the_committed_offset_comes_first() -> None:
    async def work() -> None:
        finding = Finding(committed={T0: OffsetAndMetadata(7, leader_epoch=2)})
        finding.positions.wake()
        await finding.wait()
        assert (finding.state.position, finding.state.fetch_offset, finding.state.fetch_epoch) == (7, 7, 2)
        assert finding.lookup.asked == []
        await finding.positions.close()

    on_a_loop(work)


@pytest.mark.parametrize(
    ("policy", "offsets", "asked", "position"),
    [
        ("earliest", [OffsetAndTimestamp(3, -1)], [EARLIEST], 3),
        ("latest", [OffsetAndTimestamp(9, -1)], [LATEST], 9),
        ("by_duration:PT4S", [OffsetAndTimestamp(5, 6_500)], [6_000], 5),
        # Nothing is that young: the end it is.
        ("by_duration:PT4S", [None, OffsetAndTimestamp(9, -1)], [6_000, LATEST], 9),
    ],
)
def test_without_one_the_policy_tells(
    policy: str, offsets: list[OffsetAndTimestamp | None], asked: list[int], position: int
) -> None:
    async def work() -> None:
        finding = Finding(policy)
        finding.lookup.offsets = list(offsets)
        finding.positions.wake()
        await finding.wait()
        assert finding.state.position == position
        assert finding.lookup.asked == asked
        await finding.positions.close()

    on_a_loop(work)


def test_one_that_has_no_leader_keeps_nobody_else_waiting() -> None:
    async def work() -> None:
        finding = Finding()
        other = TopicPartition("t", 1)
        finding.subscription.assign([T0, other])
        finding.lookup.offsets = [NotLeaderOrFollower(), OffsetAndTimestamp(3, -1), OffsetAndTimestamp(5, -1)]
        finding.positions.wake()
        await finding.wait()
        assert (finding.state.position, finding.subscription.state_of(other).position) == (None, 3)
        await finding.wait()
        assert (finding.state.position, finding.lookup.asked) == (5, [EARLIEST] * 3)
        await finding.positions.close()

    on_a_loop(work)


def test_none_is_an_error_that_is_told_once() -> None:
    async def work() -> None:
        finding = Finding("none")
        for _ in range(2):
            finding.positions.wake()
            await finding.wait()
            finding.changed.set()
        assert [type(error) for error in finding.failures] == [NoOffsetForPartition]
        await finding.positions.close()

    on_a_loop(work)


def test_a_position_is_validated_when_a_new_leader_comes() -> None:
    async def work() -> None:
        finding = Finding()
        needs_validation = finding.positions.needs_validation
        state = finding.state
        finding.lead(3)
        # Of a position without an epoch nothing can be told.
        state.settle(10)
        assert not needs_validation(state)
        # A record of the leader's own epoch is in its log.
        state.settle(10, 3)
        assert not needs_validation(state)
        assert finding.lookup.asked == []
        finding.lead(4)
        finding.lookup.ends_of_epochs = [NotLeaderOrFollower(), (3, 12)]
        assert needs_validation(state)
        assert needs_validation(state)
        await finding.wait()
        assert finding.lookup.asked == [3]
        assert needs_validation(state)
        await finding.wait()
        assert not needs_validation(state)
        assert finding.failures == []
        # A broker that is too old to know.
        finding.lead(5)
        finding.lookup.ends_of_epochs = [UnsupportedVersion()]
        assert needs_validation(state)
        await finding.wait()
        assert not needs_validation(state)
        # The log was cut below the position.
        finding.lead(6)
        finding.lookup.ends_of_epochs = [(2, 8)]
        assert needs_validation(state)
        await finding.wait()
        [failure] = finding.failures
        assert isinstance(failure, LogTruncation)
        assert failure.divergent_offset == 8
        await finding.positions.close()

    on_a_loop(work)
