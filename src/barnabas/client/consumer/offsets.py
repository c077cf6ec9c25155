"""Offsets that a consumer asks brokers for: of times, beginnings and ends, of leader epochs; and where to begin.

`Lookup` asks the leaders of partitions and asks again while that may help. `Positions` finds a position for every
assigned partition that has none: the committed offset, else what auto.offset.reset says; and checks positions when a
new leader may have cut the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from barnabas.client.connections.brokers import Brokers, backoff_ms_after, retrying
from barnabas.client.connections.cluster import Cluster
from barnabas.client.partition_state import PartitionState
from barnabas.client.reset_policy import LATEST, ResetPolicy
from barnabas.client.settings import ConsumerSettings
from barnabas.client.subscription import (
    LogTruncation,
    NoOffsetForPartition,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Subscription,
)
from barnabas.clock import Clock
from barnabas.errors import (
    NONE,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_for_code,
)
from barnabas.model import TopicPartition
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.list_offsets_response import ListOffsetsResponse
from barnabas.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse

log = logging.getLogger(__name__)

CONSUMER_REPLICA: Final = -1
UNKNOWN: Final = -1
# The youngest version that the answers' single offset is known from; the older ones list several.
LIST_OFFSETS_VERSION_MIN: Final = 1

FetchCommitted = Callable[[Iterable[TopicPartition]], Awaitable[dict[TopicPartition, OffsetAndMetadata]]]


class Lookup:
    """Questions to the leaders of partitions."""

    def __init__(self, settings: ConsumerSettings, brokers: Brokers, cluster: Cluster) -> None:
        self._settings = settings
        self._brokers = brokers
        self._cluster = cluster
        self._isolation_level = int(settings.isolation_level == "read_committed")

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at each time (or EARLIEST, LATEST); None where no record is that late."""
        left = dict(timestamps)
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}

        asked_s = asyncio.get_running_loop().time()

        async def attempt() -> KafkaError | None:
            answers = await self.offsets_once(left)
            failure: KafkaError | None = None
            for partition, answer in answers.items():
                if isinstance(answer, KafkaError):
                    if self.is_missing(partition, answer, asked_s):
                        return answer
                    failure = answer if failure is None or failure.retriable else failure
                else:
                    found[partition] = answer
                    left.pop(partition, None)
            if failure is not None:
                raise failure
            return None

        names = ", ".join(sorted({partition.topic for partition in timestamps}))
        missing = await retrying(
            attempt, settings=self._settings, timeout_ms=timeout_ms, what=f"looking up offsets of {names}"
        )
        if missing is not None:
            raise missing
        return {partition: found[partition] for partition in timestamps}

    def is_missing(self, partition: TopicPartition, error: KafkaError, asked_s: float) -> bool:
        """Whether a question of that time may be answered with the error: the partition does not exist."""
        return isinstance(error, UnknownTopicOrPartition) and self._cluster.is_missing(partition, asked_s)

    async def offsets_once(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError | None]:
        """The same with one request: known results do not wait for partitions with errors."""
        return await self._ask_leaders(timestamps, self._list_offsets)

    async def end_of_epoch(self, partition: TopicPartition, epoch: int) -> tuple[int, int]:
        """The largest epoch at or below the one given in the leader's log and the offset where it ends."""
        answers = await self._ask_leaders({partition: epoch}, self._end_of_epochs)
        answer: tuple[int, int] | KafkaError = answers[partition]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    async def _ask_leaders(
        self,
        questions: Mapping[TopicPartition, int],
        ask: Callable[[int, dict[TopicPartition, int]], Awaitable[dict[TopicPartition, Any]]],
    ) -> dict[TopicPartition, Any]:
        """The answers of all leaders, errors among them by partition."""
        by_node: dict[int, dict[TopicPartition, int]] = {}
        answers: dict[TopicPartition, Any] = {}
        unknown = {partition.topic for partition in questions if self._cluster.leader_of(partition) is None}
        if unknown:
            with self._cluster.awaiting(unknown):
                await self._cluster.refresh()
        for partition, question in questions.items():
            node = self._cluster.leader_of(partition)
            if node is None:
                answers[partition] = self._no_leader(partition)
            else:
                by_node.setdefault(node, {})[partition] = question
        for node, asked in by_node.items():
            try:
                answers.update(await ask(node, asked))
            except KafkaError as error:
                answers.update(dict.fromkeys(asked, error))
        for partition, answer in answers.items():
            if isinstance(answer, KafkaError) and not isinstance(answer, UnsupportedVersion):
                self._cluster.invalidate(partition)
        return answers

    def _no_leader(self, partition: TopicPartition) -> KafkaError:
        return (
            self._cluster.missing(partition)
            or self._cluster.topic_error(partition.topic)
            or LeaderNotAvailable(f"{partition} has no leader now")
        )

    async def _list_offsets(
        self, node: int, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError | None]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for partition, timestamp in timestamps.items():
            topics.setdefault(partition.topic, []).append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=self._cluster.leader_epoch_of(partition),
                    timestamp=timestamp,
                )
            )
        request = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA,
            isolation_level=self._isolation_level,
            topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        response: ListOffsetsResponse = await self._brokers.request(node, request)
        answers: dict[TopicPartition, OffsetAndTimestamp | KafkaError | None] = {}
        for topic in response.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if each.error_code != NONE:
                    answers[partition] = error_for_code(each.error_code, f"{partition} at broker {node}")
                elif each.offset == UNKNOWN:
                    answers[partition] = None
                else:
                    answers[partition] = OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch)
        return _complete(answers, timestamps)

    async def _end_of_epochs(
        self, node: int, epochs: dict[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | KafkaError]:
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        for partition, epoch in epochs.items():
            topics.setdefault(partition.topic, []).append(
                OffsetForLeaderPartition(
                    partition=partition.partition,
                    current_leader_epoch=self._cluster.leader_epoch_of(partition),
                    leader_epoch=epoch,
                )
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA,
            topics=[OffsetForLeaderTopic(topic=name, partitions=each) for name, each in topics.items()],
        )
        response: OffsetForLeaderEpochResponse = await self._brokers.request(node, request)
        answers: dict[TopicPartition, tuple[int, int] | KafkaError] = {}
        for topic in response.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.topic, each.partition)
                if each.error_code != NONE:
                    answers[partition] = error_for_code(each.error_code, f"{partition} at broker {node}")
                else:
                    answers[partition] = each.leader_epoch, each.end_offset
        return _complete(answers, epochs)


def _complete(
    answers: dict[TopicPartition, Any], asked: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Any]:
    """Exactly the requested items; items that a broker has omitted may be requested again."""
    missing = NetworkException("the broker left a partition out of its answer")
    return {partition: answers.get(partition, missing) for partition in asked}


class Positions:
    """Finds positions for assigned partitions without one; runs as a task on the loop."""

    def __init__(
        self,
        settings: ConsumerSettings,
        lookup: Lookup,
        cluster: Cluster,
        subscription: Subscription,
        clock: Clock,
        *,
        fetch_committed: FetchCommitted | None,
        on_found: Callable[[], None],
        on_failed: Callable[[PartitionState, KafkaError], object],
    ) -> None:
        """`fetch_committed` is None for a consumer without a group. `on_failed` is for errors that do not pass."""
        policy = ResetPolicy.parse(settings.auto_offset_reset)
        assert policy is not None, "the setting was checked"
        self._policy = policy
        self._settings = settings
        self._lookup = lookup
        self._cluster = cluster
        self._subscription = subscription
        self._clock = clock
        self._fetch_committed = fetch_committed
        self._on_found = on_found
        self._on_failed = on_failed
        self._random = random.Random()
        self._wanted = asyncio.Event()
        self._validating: dict[TopicPartition, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = asyncio.get_running_loop().create_task(self._run())

    @property
    def policy(self) -> ResetPolicy:
        return self._policy

    def wake(self) -> None:
        """A partition may lack a position."""
        self._wanted.set()

    async def close(self) -> None:
        tasks = [*self._validating.values(), *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def reset_timestamp(self) -> int | None:
        """The ListOffsets timestamp of auto.offset.reset; None for `none`."""
        return self._policy.timestamp_at(self._clock.now_ms())

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            states = self._lacking()
            if not states:
                continue
            try:
                await self.find(states)
                failures = 0
            except KafkaError as error:
                if not error.retriable:
                    for state in states:
                        if state.position is None:
                            self._on_failed(state, error)
                    continue
                log.debug("positions are not known yet: %s", error)
                backoff_ms = backoff_ms_after(
                    failures,
                    first_ms=self._settings.retry_backoff_ms,
                    max_ms=self._settings.retry_backoff_max_ms,
                    chooser=self._random,
                )
                failures += 1
                await self._back_off(backoff_ms, set(states))
                self._wanted.set()

    def _lacking(self) -> list[PartitionState]:
        return [
            state
            for state in self._subscription.partitions.values()
            if state.position is None and not state.is_awaiting_callback and state.retry_s != math.inf
        ]

    async def _back_off(self, backoff_ms: float, tried: set[PartitionState]) -> None:
        """Waits, but not with a partition that has not been tried."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(backoff_ms / 1000):
                while tried.issuperset(self._lacking()):
                    self._wanted.clear()
                    await self._wanted.wait()

    async def find(self, states: list[PartitionState]) -> None:
        """Finds a position for each, or calls `on_failed`; raises errors after the others have a position."""
        await self._settle_committed([state for state in states if state.reset_timestamp is None])
        timestamps: dict[TopicPartition, int] = {}
        for state in states:
            if state.position is None and state.reset_timestamp is not None:
                timestamps[state.partition] = state.reset_timestamp
        failure: KafkaError | None = None
        if timestamps:
            found = await self._lookup.offsets_once(timestamps)
            # A time that no record has reached is the end of the log.
            late = [partition for partition, offset in found.items() if offset is None]
            if late:
                found.update(await self._lookup.offsets_once(dict.fromkeys(late, LATEST)))
            for state in states:
                offset = found.get(state.partition)
                if isinstance(offset, KafkaError):
                    failure = offset if failure is None or failure.retriable else failure
                elif state.position is None and offset is not None:
                    state.settle(offset.offset, offset.leader_epoch)
        self._on_found()
        if failure is not None:
            raise failure

    async def _settle_committed(self, states: list[PartitionState]) -> None:
        if not states:
            return
        committed: dict[TopicPartition, OffsetAndMetadata] = {}
        if self._fetch_committed is not None:
            committed = await self._fetch_committed([state.partition for state in states])
        for state in states:
            offset = committed.get(state.partition)
            if offset is not None:
                state.settle(offset.offset, offset.leader_epoch)
                continue
            timestamp = self.reset_timestamp()
            if timestamp is not None:
                state.reset_timestamp = timestamp
            else:
                self._on_failed(
                    state,
                    NoOffsetForPartition(
                        f"{state.partition} has no committed offset and auto.offset.reset=none: seek() to where"
                        " reading is to begin"
                    ),
                )

    def needs_validation(self, state: PartitionState) -> bool:
        """Whether the partition has had a new leader since its position was known to be good; then that is asked."""
        epoch = self._cluster.leader_epoch_of(state.partition)
        if state.fetch_epoch < 0 or epoch <= state.validated_epoch:
            return False
        if epoch == state.fetch_epoch:
            # A record of the leader's own epoch is in its log.
            state.validated_epoch = epoch
            return False
        if state.partition not in self._validating:
            task = asyncio.get_running_loop().create_task(self._validate(state, epoch))
            self._validating[state.partition] = task
        return True

    async def _validate(self, state: PartitionState, epoch: int) -> None:
        try:
            assert state.fetch_offset is not None
            offset = state.fetch_offset
            try:
                _, end_offset = await self._lookup.end_of_epoch(state.partition, state.fetch_epoch)
            except UnsupportedVersion:
                end_offset = offset
            except KafkaError as error:
                log.debug("the position of %s is not validated yet: %s", state.partition, error)
                await asyncio.sleep(self._settings.retry_backoff_ms / 1000)
                return
            if end_offset == UNKNOWN or end_offset >= offset:
                state.validated_epoch = epoch
            else:
                truncation = LogTruncation(
                    f"{state.partition} was read up to offset {offset}, and its leader's log parts from that at"
                    f" {end_offset}: seek() to continue"
                )
                truncation.divergent_offset = end_offset
                self._on_failed(state, truncation)
        finally:
            del self._validating[state.partition]
            self._on_found()
