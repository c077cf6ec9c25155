"""The consumer for asyncio: the same parts on the caller's loop, without a thread.

async with barnabas.aio.Consumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
    consumer.subscribe(["orders"])
    async for record in consumer:
        print(record.offset, record.value)
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from barnabas.client.connections.cluster import PartitionInfo, TopicInfo
from barnabas.client.consumer.consumer import CLOSE_TIMEOUT_MS, WAIT_S_MAX
from barnabas.client.consumer.core import ConsumerCore
from barnabas.client.consumer.front import POLL_TIMEOUT_MS, ConsumerFront, Offsets, OnCommit
from barnabas.client.consumer.intake import ColumnRun, RawBatch
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.failures import ClientClosed
from barnabas.client.groups.handover import Change, Rebalance
from barnabas.client.reset_policy import EARLIEST, LATEST
from barnabas.client.settings import ConsumerSettings
from barnabas.client.subscription import OffsetAndMetadata, OffsetAndTimestamp, as_partition
from barnabas.client.timeouts import timeouts_in_ms
from barnabas.errors import KafkaError, RequestTimedOut
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

T = TypeVar("T")


@timeouts_in_ms
class AsyncConsumer(ConsumerFront):
    """The consumer for asyncio; use it on the loop on which it was created."""

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        super().__init__(ConsumerSettings(settings, **keywords))
        self._loop = asyncio.get_running_loop()
        self._signal = asyncio.Event()
        self._commits: set[asyncio.Task[None]] = set()
        self._is_serving = False
        self._is_closing = False
        self._attach(ConsumerCore(self._settings, self._subscription, self._signal.set))

    async def poll(
        self, timeout_ms: float = POLL_TIMEOUT_MS, *, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Returns records as soon as there are any; at most max.poll.records. None after the time-out.

        Records of earlier polls count as processed: with enable.auto.commit their offsets are committed at intervals.
        """
        limit = self._limit(max_records)
        records: list[ConsumerRecord] = await self._poll(partial(self._intake.take, limit), timeout_ms) or []
        return self._intercept(records) if self._interceptors and records else records

    async def poll_batches(self, timeout_ms: float = POLL_TIMEOUT_MS) -> list[RawBatch]:
        """Whole batches as in the log, compressed if they are; omits those of aborted transactions."""
        batches: list[RawBatch] = await self._poll(self._intake.take_batches, timeout_ms) or []
        return batches

    async def poll_arrow(self, timeout_ms: float = POLL_TIMEOUT_MS) -> pa.RecordBatch:
        """All that has been fetched as one Arrow record batch; an empty one after the time-out."""
        from barnabas.client.consumer.arrow import to_record_batch

        run: ColumnRun | None = await self._poll(self._intake.take_columns, timeout_ms)
        return to_record_batch(run)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record, waited for as long as it takes, or for consumer.timeout.ms: then the iteration ends."""
        if (
            0 < self._iterated < self._settings.max_poll_records
            and not self._interceptors
            and not self._is_woken
            and not self._core.handover.rebalances
            and not self._is_closed
        ):
            record = self._intake.next_record()
            if record is not None:
                self._iterated += 1
                return record
        timeout_ms = self._settings.consumer_timeout_ms
        while True:
            records = await self.poll(WAIT_S_MAX * 1000 if timeout_ms is None else timeout_ms, max_records=1)
            if records:
                self._iterated = 1
                return records[0]
            if timeout_ms is not None:
                raise StopAsyncIteration

    def wakeup(self) -> None:
        """From any thread: the poll under way, or else the next one, raises ConsumerWakeup and takes no records."""
        self._check_open()
        self._is_woken = True
        self._loop.call_soon_threadsafe(self._signal.set)

    async def commit(self, offsets: Offsets | None = None, *, timeout_ms: float | None = None) -> None:
        """Commits how far was read, or these offsets; returns when they are committed, or raises why not."""
        wanted = self._offsets(offsets)
        self._run_callbacks()
        await self._core.commit(wanted, self._timeout_ms(timeout_ms))
        self._tell_interceptors(wanted)

    def commit_async(
        self, offsets: Offsets | None = None, callback: OnCommit | None = None
    ) -> asyncio.Task[None]:
        """Commits without waiting. The callback gets offsets and an error or None, in a later poll, commit or close."""
        wanted = self._offsets(offsets)
        task = self._loop.create_task(self._core.commit(wanted, self._settings.default_api_timeout_ms))
        self._commits.add(task)

        task.add_done_callback(self._commits.discard)
        task.add_done_callback(lambda ended: self._note_commit(ended, wanted, callback))
        return task

    async def committed(
        self, *partitions: TopicPartition | tuple[str, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offset of each partition, of all assigned ones if none is named; None where there is none."""
        wanted = self._named(partitions)
        found = await self._core.committed(wanted, self._timeout_ms(timeout_ms))
        return {partition: found.get(partition) for partition in wanted}

    async def position(
        self, partition: TopicPartition | tuple[str, int], *, timeout_ms: float | None = None
    ) -> int:
        """The offset of the next record that a poll will give."""
        self._check_open()
        state = self._subscription.state_of(as_partition(partition))
        return await self._core.position(state, self._timeout_ms(timeout_ms))

    async def lag(
        self, partition: TopicPartition | tuple[str, int], *, timeout_ms: float | None = None
    ) -> int:
        """How many offsets lie between the position and the partition's end."""
        self._check_open()
        state = self._subscription.state_of(as_partition(partition))
        lag = self._lag(state)
        if lag is not None:
            return lag
        position = await self.position(partition, timeout_ms=timeout_ms)
        end_offsets = await self.end_offsets(partition, timeout_ms=timeout_ms)
        return max(0, end_offsets[state.partition] - position)

    async def beginning_offsets(
        self, *partitions: TopicPartition | tuple[str, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition, of all assigned ones if none is named."""
        return await self._ends(partitions, EARLIEST, timeout_ms)

    async def end_offsets(
        self, *partitions: TopicPartition | tuple[str, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record that can be read (with read_committed, before open transactions)."""
        return await self._ends(partitions, LATEST, timeout_ms)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at each time (in ms since 1970) or later; None where there is none."""
        wanted = self._times(timestamps)
        return await self._core.offsets_for_times(wanted, self._timeout_ms(timeout_ms))

    async def partitions_for(
        self, topic: str, *, timeout_ms: float | None = None
    ) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic, with their leaders and replicas."""
        self._check_open()
        return await self._core.partitions_for(topic, self._timeout_ms(timeout_ms))

    async def topics(self, *, timeout_ms: float | None = None) -> dict[str, TopicInfo]:
        """All topics of the cluster, by name."""
        self._check_open()
        return await self._core.topics(self._timeout_ms(timeout_ms))

    async def unsubscribe(self) -> None:
        """Revokes the assigned partitions and leaves the group."""
        self._check_open()
        await self._give_up(self._settings.default_api_timeout_ms)
        await self._core.leave()
        self._subscription.unsubscribe()
        self._has_joined = False
        self._core.subscribed()

    async def close(self, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        """Commits (with enable.auto.commit) and leaves the group."""
        if self._is_closed or self._is_closing:
            return
        self._is_closing = True
        # Another task may wait in a poll: it is woken.
        self._signal.set()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                try:
                    if not self._is_serving:
                        await self._give_up(timeout_ms)
                finally:
                    # An exception of a listener does not prevent leaving the group.
                    self._is_closed = True
                    await asyncio.gather(*self._commits, return_exceptions=True)
                    await self._core.finish_commits()
                    await self._core.leave(is_closing=True)
        except TimeoutError:
            raise RequestTimedOut(f"the consumer was not closed in order within {timeout_ms:g} ms") from None
        finally:
            await self._core.close()
            self._run_callbacks()
            self._close_interceptors()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _poll(self, take: Callable[[], T], timeout_ms: float) -> T | None:
        """Returns data as soon as there is some; in the meantime partitions may be assigned and revoked."""
        handover = self._core.handover
        self._begin_poll()
        try:
            deadline_s = self._loop.time() + max(timeout_ms, 0.0) / 1000
            # A task that polls in a loop yields to others, such as the fetcher. Not after `take`: a poll that is
            # cancelled there would lose what it has taken.
            await asyncio.sleep(0)
            while True:
                self._signal.clear()
                if self._is_closing:
                    raise ClientClosed("this consumer was closed while a poll was under way")
                if handover.rebalances:
                    await self._serve_rebalances()
                    if self._is_closing:
                        return None
                if handover.failures:
                    self._raise_failure()
                if self._is_woken:
                    self._raise_wakeup()
                taken = take()
                if taken:
                    return taken
                left_s = deadline_s - self._loop.time()
                if left_s <= 0:
                    return None
                try:
                    async with asyncio.timeout(min(left_s, WAIT_S_MAX)):
                        await self._signal.wait()
                except TimeoutError:
                    continue
        finally:
            self._end_poll()

    async def _serve_rebalances(self) -> None:
        handover = self._core.handover
        self._is_serving = True
        try:
            while handover.rebalances:
                rebalance = handover.rebalances.popleft()
                try:
                    await self._serve(rebalance)
                except Exception:
                    self._finish(rebalance)
                    raise
                except BaseException:
                    # A poll that is cancelled here has not done it: the next one does.
                    handover.rebalances.appendleft(rebalance)
                    raise
                self._finish(rebalance)
        finally:
            self._is_serving = False

    async def _serve(self, rebalance: Rebalance) -> None:
        if rebalance.change is Change.REVOKED:
            await self._commit_before(rebalance.partitions, self._settings.default_api_timeout_ms)
        listener = self._prepare(rebalance)
        if listener is not None:
            called = listener(list(rebalance.partitions))
            if inspect.isawaitable(called):
                await called

    async def _commit_before(self, partitions: Iterable[TopicPartition], timeout_ms: float) -> None:
        """If commits are automatic, commits the offsets of revoked partitions first; otherwise the caller does so."""
        positions = self._positions_of(partitions)
        if self._settings.enable_auto_commit and positions:
            try:
                await self._core.commit(positions, timeout_ms)
                self._tell_interceptors(positions)
            except KafkaError as error:
                log.warning("offsets were not committed before their partitions went: %s", error)

    async def _give_up(self, timeout_ms: float) -> None:
        partitions = sorted(self._subscription.partitions)
        if not partitions:
            return
        await self._commit_before(partitions, timeout_ms)
        if self._listener is not None and self._subscription.is_subscribed:
            called = self._listener.on_partitions_revoked(partitions)
            if inspect.isawaitable(called):
                await called
        self._subscription.remove(partitions)

    async def _ends(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timestamp: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(self._named(partitions), timestamp)
        found = await self._core.offsets_for_times(wanted, self._timeout_ms(timeout_ms))
        return {partition: 0 if offset is None else offset.offset for partition, offset in found.items()}

    def _post(self, function: Callable[..., object], *arguments: object) -> None:
        function(*arguments)
