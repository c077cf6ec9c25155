"""The blocking consumer: a loop on its own thread receives, the caller's thread decodes.

    with barnabas.Consumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record.offset, record.value)

A consumer is for one thread, like Kafka's own. `poll` returns a list of records, iteration returns one record at a
time, `poll_batches` returns raw batches, and `poll_arrow` returns an Arrow record batch, which is by far the fastest.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from barnabas.client.connections.cluster import PartitionInfo, TopicInfo
from barnabas.client.consumer.core import ConsumerCore
from barnabas.client.consumer.front import (
    POLL_TIMEOUT_MS,
    ConsumerFront,
    Offsets,
    OnCommit,
)
from barnabas.client.consumer.intake import ColumnRun, RawBatch
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.groups.handover import Change
from barnabas.client.loop_thread import LoopThread
from barnabas.client.reset_policy import EARLIEST, LATEST
from barnabas.client.settings import ConsumerSettings
from barnabas.client.subscription import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    as_partition,
)
from barnabas.client.timeouts import timeouts_in_ms
from barnabas.errors import KafkaError, RequestTimedOut
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

T = TypeVar("T")

# How long a wait for records is at most, before it is looked around again.
WAIT_S_MAX: Final = 60.0
CLOSE_TIMEOUT_MS: Final = 30_000.0


@timeouts_in_ms
class Consumer(ConsumerFront):
    """Reads records of topics, in a group (`subscribe`) or by itself (`assign`); for one thread.

    Settings have Kafka's names, as keywords with underscores or a mapping with dots.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        # Wrong settings raise before a thread starts.
        super().__init__(ConsumerSettings(settings, **keywords))
        # Free while there is something to look at: the loop frees it, a poll that waits takes it.
        self._signal = threading.Lock()
        self._signal.acquire()
        self._thread = LoopThread(self._settings.client_id, self._forked)

        async def build() -> ConsumerCore:
            return ConsumerCore(self._settings, self._subscription, self._notify)

        try:
            self._attach(self._thread.call(build()))
        except BaseException:
            self._thread.close()
            raise

    def poll(
        self, timeout_ms: float = POLL_TIMEOUT_MS, *, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Returns records as soon as there are any; at most max.poll.records. None after the time-out.

        Records of earlier polls count as processed: with enable.auto.commit their offsets are committed at intervals.
        """
        limit = self._limit(max_records)
        records: list[ConsumerRecord] = self._poll(partial(self._intake.take, limit), timeout_ms) or []
        return self._intercept(records) if self._interceptors and records else records

    def poll_batches(self, timeout_ms: float = POLL_TIMEOUT_MS) -> list[RawBatch]:
        """Whole batches as in the log, compressed if they are; omits those of aborted transactions."""
        batches: list[RawBatch] = self._poll(self._intake.take_batches, timeout_ms) or []
        return batches

    def poll_arrow(self, timeout_ms: float = POLL_TIMEOUT_MS) -> pa.RecordBatch:
        """All that has been fetched as one Arrow record batch; an empty one after the time-out."""
        from barnabas.client.consumer.arrow import to_record_batch

        run: ColumnRun | None = self._poll(self._intake.take_columns, timeout_ms)
        return to_record_batch(run)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
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
            records = self.poll(WAIT_S_MAX * 1000 if timeout_ms is None else timeout_ms, max_records=1)
            if records:
                self._iterated = 1
                return records[0]
            if timeout_ms is not None:
                raise StopIteration

    def wakeup(self) -> None:
        """From any thread: the poll under way, or else the next one, raises ConsumerWakeup and takes no records."""
        self._check_open()
        self._is_woken = True
        self._post(self._notify)

    def commit(self, offsets: Offsets | None = None, *, timeout_ms: float | None = None) -> None:
        """Commits how far was read, or these offsets; returns when they are committed, or raises why not."""
        wanted = self._offsets(offsets)
        self._run_callbacks()
        self._call(self._core.commit(wanted, self._timeout_ms(timeout_ms)))
        self._tell_interceptors(wanted)

    def commit_async(
        self, offsets: Offsets | None = None, callback: OnCommit | None = None
    ) -> concurrent.futures.Future[None]:
        """Commits without waiting. The callback gets offsets and an error or None, in a later poll, commit or close."""
        wanted = self._offsets(offsets)
        future = self._submit(self._core.commit(wanted, self._settings.default_api_timeout_ms))

        future.add_done_callback(lambda ended: self._note_commit(ended, wanted, callback))
        return future

    def committed(
        self, *partitions: TopicPartition | tuple[str, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offset of each partition, of all assigned ones if none is named; None where there is none."""
        wanted = self._named(partitions)
        found = self._call(self._core.committed(wanted, self._timeout_ms(timeout_ms)))
        return {partition: found.get(partition) for partition in wanted}

    def position(
        self, partition: TopicPartition | tuple[str, int], *, timeout_ms: float | None = None
    ) -> int:
        """The offset of the next record that a poll will give."""
        self._check_open()
        state = self._subscription.state_of(as_partition(partition))
        if state.position is not None:
            return state.position
        return self._call(self._core.position(state, self._timeout_ms(timeout_ms)))

    def lag(self, partition: TopicPartition | tuple[str, int], *, timeout_ms: float | None = None) -> int:
        """How many offsets lie between the position and the partition's end."""
        self._check_open()
        state = self._subscription.state_of(as_partition(partition))
        lag = self._lag(state)
        if lag is not None:
            return lag
        position = self.position(partition, timeout_ms=timeout_ms)
        return max(0, self.end_offsets(partition, timeout_ms=timeout_ms)[state.partition] - position)

    def beginning_offsets(
        self, *partitions: TopicPartition | tuple[str, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition, of all assigned ones if none is named."""
        return self._ends(partitions, EARLIEST, timeout_ms)

    def end_offsets(
        self, *partitions: TopicPartition | tuple[str, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record that can be read (with read_committed, before open transactions)."""
        return self._ends(partitions, LATEST, timeout_ms)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at each time (in ms since 1970) or later; None where there is none."""
        wanted = self._times(timestamps)
        return self._call(self._core.offsets_for_times(wanted, self._timeout_ms(timeout_ms)))

    def partitions_for(self, topic: str, *, timeout_ms: float | None = None) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic, with their leaders and replicas."""
        self._check_open()
        return self._call(self._core.partitions_for(topic, self._timeout_ms(timeout_ms)))

    def topics(self, *, timeout_ms: float | None = None) -> dict[str, TopicInfo]:
        """All topics of the cluster, by name."""
        self._check_open()
        return self._call(self._core.topics(self._timeout_ms(timeout_ms)))

    def unsubscribe(self) -> None:
        """Revokes the assigned partitions and leaves the group."""
        self._check_open()
        self._give_up(self._settings.default_api_timeout_ms)
        self._call(self._core.leave())
        self._subscription.unsubscribe()
        self._has_joined = False
        self._post(self._core.subscribed)

    def close(self, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        """Commits (with enable.auto.commit), leaves the group and ends the thread."""
        if self._is_closed:
            return
        deadline_s = time.monotonic() + timeout_ms / 1000
        try:
            try:
                if not self._core.handover.is_polling:
                    self._give_up(timeout_ms)
            finally:
                # An exception of a listener does not prevent leaving the group.
                self._is_closed = True
                self._thread.call(self._close(deadline_s - time.monotonic(), timeout_ms))
            self._run_callbacks()
        finally:
            self._thread.close()
            self._close_interceptors()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _close(self, left_s: float, timeout_ms: float) -> None:
        try:
            async with asyncio.timeout(left_s):
                await self._core.finish_commits()
                await self._core.leave(is_closing=True)
        except TimeoutError:
            raise RequestTimedOut(f"the consumer was not closed in order within {timeout_ms:g} ms") from None
        finally:
            await self._core.close()

    def _poll(self, take: Callable[[], T], timeout_ms: float) -> T | None:
        """Returns data as soon as there is some; in the meantime partitions may be assigned and revoked."""
        handover = self._core.handover
        self._begin_poll()
        self._intake.begin()
        try:
            deadline_s = -1.0
            while True:
                if handover.rebalances:
                    self._serve_rebalances()
                    if self._is_closed:
                        return None
                if handover.failures:
                    self._raise_failure()
                if self._is_woken:
                    self._raise_wakeup()
                taken = take()
                if taken:
                    return taken
                now_s = time.monotonic()
                if deadline_s < 0:
                    deadline_s = now_s + max(timeout_ms, 0.0) / 1000
                if now_s >= deadline_s:
                    return None
                self._signal.acquire(timeout=min(deadline_s - now_s, WAIT_S_MAX))
        except BaseException:
            # An interrupt may come when records were taken that the caller now never sees.
            self._intake.take_back()
            raise
        finally:
            self._end_poll()

    def _serve_rebalances(self) -> None:
        handover = self._core.handover
        while handover.rebalances:
            rebalance = handover.rebalances.popleft()
            try:
                if rebalance.change is Change.REVOKED:
                    self._commit_before(rebalance.partitions, self._settings.default_api_timeout_ms)
                listener = self._prepare(rebalance)
                if listener is not None:
                    listener(list(rebalance.partitions))
            except Exception:
                self._finish(rebalance)
                raise
            except BaseException:
                # An interrupted poll has not done it: the next poll does.
                handover.rebalances.appendleft(rebalance)
                raise
            self._finish(rebalance)

    def _commit_before(self, partitions: Iterable[TopicPartition], timeout_ms: float) -> None:
        """If commits are automatic, commits the offsets of revoked partitions first; otherwise the caller does so."""
        positions = self._positions_of(partitions)
        if self._settings.enable_auto_commit and positions:
            try:
                self._call(self._core.commit(positions, timeout_ms))
                self._tell_interceptors(positions)
            except KafkaError as error:
                log.warning("offsets were not committed before their partitions went: %s", error)

    def _give_up(self, timeout_ms: float) -> None:
        partitions = sorted(self._subscription.partitions)
        if not partitions:
            return
        self._commit_before(partitions, timeout_ms)
        if self._listener is not None and self._subscription.is_subscribed:
            self._listener.on_partitions_revoked(partitions)
        self._subscription.remove(partitions)

    def _ends(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timestamp: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(self._named(partitions), timestamp)
        found = self._call(self._core.offsets_for_times(wanted, self._timeout_ms(timeout_ms)))
        return {partition: 0 if offset is None else offset.offset for partition, offset in found.items()}

    def _notify(self) -> None:
        """On the loop: there is something for a poll. Only the loop frees the signal, so it frees it once."""
        if self._signal.locked():
            self._signal.release()

    def _post(self, function: Callable[..., object], *arguments: object) -> None:
        if not self._is_closed:
            self._thread.post(function, *arguments)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(work)

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._thread.loop)
