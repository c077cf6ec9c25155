"""One fetcher at work: asks its leader, and has what comes back written to logs. `replication/fetcher.py` decides.

A few records are written on the event loop, as a leader writes them. Many, and every truncation, are written in a
thread. While a thread writes to the log of a partition, `writing` names the partition, and `written` is done when the
thread is: before that, nothing else may write to this log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from typing import Any, Final, Protocol, TypeAlias

from barnabas.broker.replication.follower_writes import Done, Failed, FollowerWrites, Outcome
from barnabas.clock import Clock
from barnabas.errors import CorruptMessage, InvalidRecord, KafkaError, KafkaStorageError
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.message import Message
from barnabas.protocol.messages.fetch_request import FetchRequest
from barnabas.protocol.messages.fetch_response import FetchResponse
from barnabas.protocol.messages.list_offsets_request import ListOffsetsRequest
from barnabas.replication.fetcher import Append, Fail, Fetcher, FetcherSettings, Request, Step

log = logging.getLogger(__name__)

# More bytes than that are written in a thread: it takes about as long as handing them over.
WRITTEN_AT_ONCE_BYTES: Final = 128 * 1024
STEPS_AT_ONCE: Final = 32
# A fetcher without partitions ends after this time.
IDLE_S: Final = 10.0
# Later versions name topics by ids.
LAST_FETCH_WITH_NAMES: Final = 12

# Called with the partition, the bytes of records, and whether consumers can read further than before.
Written: TypeAlias = Callable[[TopicPartition, int, bool], None]

_NOTHING: Final[frozenset[TopicPartition]] = frozenset()


class Link(Protocol):
    async def ask(
        self, api_name: str, request: Message, *, version: int | None = None, timeout_ms: float
    ) -> Any: ...


class Links(Protocol):
    def link(self, broker_id: BrokerId, purpose: str) -> Link: ...


class Throttle(Protocol):
    """The bound of `follower.replication.throttled.rate`."""

    def record(self, key: TopicPartition, size_bytes: int) -> None:
        """Counts the bytes if the replica is one of those that are throttled."""

    def held_back(self, fetcher: Fetcher) -> Collection[TopicPartition]:
        """The partitions that are not to be fetched for now."""


class FetcherContext:
    """What the fetchers of a broker share. `written` is called after each write to the log of a partition."""

    __slots__ = ("clock", "executor", "links", "loop", "throttle", "timeout_ms", "writes", "written")

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        links: Links,
        writes: FollowerWrites,
        executor: Executor,
        timeout_ms: int,
        written: Written,
        throttle: Throttle | None = None,
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.links = links
        self.writes = writes
        self.executor = executor
        self.timeout_ms = timeout_ms
        self.written = written
        self.throttle = throttle

    def now_ms(self) -> int:
        return self.clock.monotonic_ns() // 1_000_000


class ReplicaFetcher:
    def __init__(
        self, leader: BrokerId, number: int, context: FetcherContext, settings: FetcherSettings
    ) -> None:
        self.leader = leader
        self.number = number
        self.machine = Fetcher(settings)
        # Partitions that only the next LeaderAndIsr request can help.
        self.failed: set[TopicPartition] = set()
        self.writing: frozenset[TopicPartition] = _NOTHING
        self.written: asyncio.Future[None] | None = None
        self.bytes_received = 0
        self.requests_sent = 0
        self._context = context
        self._purpose = f"fetcher-{number}"
        self._steps: list[Step] = []
        self._wakes = asyncio.Event()
        self._is_reachable = True

    def add(self, steps: Sequence[Step]) -> None:
        """The machine has new partitions, which may need steps before they are asked for."""
        self._steps += steps
        self._wakes.set()

    async def run(self) -> None:
        """Ends when there has been no partition for a while."""
        while True:
            if self._steps:
                steps, self._steps = self._steps, []
                await self._carry_out(steps)
                continue
            self._hold_back()
            request = self.machine.next_request(self._context.now_ms())
            if request is not None:
                await self._ask(request)
            elif not await self._wait() and not len(self.machine):
                return

    async def _wait(self) -> bool:
        """Waits for a partition whose back-off is over, or a new one; False after the longest time to wait."""
        wakes_at_ms = self.machine.wakes_at_ms()
        wait_s = IDLE_S
        if wakes_at_ms is not None:
            wait_s = max((wakes_at_ms - self._context.now_ms()) / 1_000, 0.0)
        self._wakes.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._wakes.wait()
        except TimeoutError:
            return False
        return True

    def _hold_back(self) -> None:
        throttle = self._context.throttle
        if throttle is not None:
            now_ms = self._context.now_ms()
            for key in throttle.held_back(self.machine):
                self.machine.hold_back(key, now_ms)

    async def _ask(self, request: Request) -> None:
        context = self._context
        version = None
        if isinstance(request, FetchRequest):
            api_name = "Fetch"
            self.requests_sent += 1
            if self.machine.names_topics_at_new_level:
                version = LAST_FETCH_WITH_NAMES
        else:
            api_name = "ListOffsets" if isinstance(request, ListOffsetsRequest) else "OffsetForLeaderEpoch"
        try:
            link = context.links.link(self.leader, self._purpose)
            answer = await link.ask(api_name, request, version=version, timeout_ms=context.timeout_ms)
        except (KafkaError, OSError) as error:
            if self._is_reachable:
                self._is_reachable = False
                log.warning("Broker %d does not answer fetcher %d: %s", self.leader, self.number, error)
            self.machine.failed(context.now_ms())
            return
        if not self._is_reachable:
            self._is_reachable = True
            log.info("Broker %d answers fetcher %d again", self.leader, self.number)
        now_ms = context.now_ms()
        if isinstance(answer, FetchResponse):
            steps = self.machine.fetched(answer, now_ms)
        elif api_name == "ListOffsets":
            steps = self.machine.offsets_told(answer, now_ms)
        else:
            steps = self.machine.epochs_told(answer, now_ms)
        await self._carry_out(steps)

    async def _carry_out(self, steps: Sequence[Step]) -> None:
        context = self._context
        size_bytes = 0
        is_brief = len(steps) <= STEPS_AT_ONCE
        todo: list[Step] = []
        for step in steps:
            if isinstance(step, Append):
                size_bytes += len(step.records)
            elif isinstance(step, Fail):
                log.warning("%s is not copied from broker %d: %s", step.key, self.leader, step.reason)
                self.failed.add(step.key)
                continue
            else:
                is_brief = False
            todo.append(step)
        if not todo:
            return
        self.bytes_received += size_bytes
        if is_brief and size_bytes <= WRITTEN_AT_ONCE_BYTES:
            self._report(context.writes.carry_out(todo))
            return
        self.writing = frozenset(step.key for step in todo)
        self.written = context.loop.create_future()
        work = context.loop.run_in_executor(context.executor, context.writes.carry_out, todo)
        try:
            # A thread cannot be cancelled, and the logs are closed after this.
            outcomes = await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise
        else:
            self._report(outcomes)
        finally:
            self.writing = _NOTHING
            self.written.set_result(None)

    def _report(self, outcomes: Sequence[Outcome]) -> None:
        context = self._context
        machine = self.machine
        for outcome in outcomes:
            key = outcome.step.key
            if isinstance(outcome, Failed):
                self._on_failure(outcome)
            elif isinstance(outcome.step, Append):
                machine.start_offset_changed(key, outcome.log_start_offset)
                machine.appended(key, log_end_offset=outcome.log_end_offset, last_epoch=outcome.last_epoch)
                size_bytes = len(outcome.step.records)
                if context.throttle is not None:
                    context.throttle.record(key, size_bytes)
                if size_bytes or outcome.has_new_watermark:
                    context.written(key, size_bytes, outcome.has_new_watermark)
            else:
                self._on_truncation(outcome)

    def _on_truncation(self, done: Done) -> None:
        key = done.step.key
        self.machine.truncated(
            key,
            log_end_offset=done.log_end_offset,
            last_epoch=done.last_epoch,
            is_complete=done.is_complete,
        )
        self.machine.start_offset_changed(key, done.log_start_offset)
        self._context.written(key, 0, True)

    def _on_failure(self, failed: Failed) -> None:
        key, error = failed.step.key, failed.error
        if isinstance(failed.step, Append) and isinstance(error, (CorruptMessage, InvalidRecord)):
            # As in Apache Kafka. The records may arrive whole the next time.
            log.error("Records of %s from broker %d are damaged: %s", key, self.leader, error)
            self.machine.step_failed(key, self._context.now_ms())
            return
        if not isinstance(error, KafkaStorageError):
            log.error("%s is not copied from broker %d: %s", key, self.leader, error)
        self.machine.unfollow([key])
        self.failed.add(key)
