"""The result of `send`: the future of a record, which looks up the result in the record's batch on demand.

A future is three words: the batch, the record's position in it, its timestamp. A record needs no other object, and no
work when the batch is acknowledged, unless a thread waits or there is a callback. The methods are those of
`concurrent.futures.Future`; `await` works too, on any loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from functools import partial
from time import monotonic
from typing import Any

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from barnabas.client.producer.batches import ProducerBatch
from barnabas.client.producer.records import RecordMetadata
from barnabas.errors import InvalidRecord, KafkaError
from barnabas.model import NO_OFFSET, NO_TIMESTAMP

log = logging.getLogger(__name__)

OnDelivery = Callable[[RecordMetadata | None, KafkaError | None], object]


class SendFuture:
    """The fate of one record."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    _batch: ProducerBatch
    _index: i64
    _timestamp_ms: i64

    def __init__(self, batch: ProducerBatch, index: i64, timestamp_ms: i64) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Whether the record was acknowledged or failed."""
        self._locate()
        return self._batch.is_done

    def running(self) -> bool:
        """Whether the outcome is still open."""
        return not self.done()

    def cancelled(self) -> bool:
        """False: what was sent cannot be called back."""
        return False

    def cancel(self) -> bool:
        """A record that was handed in cannot be taken back."""
        return False

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record has gone; raises why it has not, or TimeoutError if that is open after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._metadata()

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """The error, or None; waits as `result` does."""
        deadline_s = None if timeout is None else monotonic() + timeout
        while not self.done():
            left_s = None if deadline_s is None else max(deadline_s - monotonic(), 0.0)
            if not wait_for(self._batch, left_s) and not self.done():
                raise TimeoutError(f"the record was not acknowledged within {timeout:g} s")
        return self._error()

    def add_done_callback(self, function: Callable[[SendFuture], object]) -> None:
        """Calls the function with this future when it is done: at once if it is done already, else on the client's
        thread.
        """
        self.when_done(partial(function, self))

    def when_done(self, call: Callable[[], object]) -> None:
        """Calls a function without arguments when the outcome is known."""
        while not self.done():
            if self._leave(call):
                return
        run_callback(call)

    def _leave(self, call: Callable[[], object]) -> bool:
        """Registers a function with the batch; False if the batch is done or was split in the meantime."""
        batch = self._batch
        lock = batch.queue.lock
        lock.acquire()
        try:
            is_open = not batch.is_done and batch.parts is None
            if is_open:
                if batch.callbacks is None:
                    batch.callbacks = []
                batch.callbacks.append((self._index, call))
        finally:
            lock.release()
        return is_open

    def deliver(self, on_delivery: OnDelivery) -> None:
        """Calls a function of two arguments with the result of the record."""
        error = self._error()
        if error is None:
            on_delivery(self._metadata(), None)
        else:
            on_delivery(None, error)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self._wait().__await__()

    async def _wait(self) -> RecordMetadata:
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self.when_done(partial(_wake, loop, waiter))
            await waiter
        return self.result(0.0)

    def _locate(self) -> None:
        """Follows the record into the batch that it was put in when its batch was split."""
        while self._batch.parts is not None:
            for part in self._batch.parts:
                if self._index < part.record_count:
                    self._batch = part
                    break
                self._index -= part.record_count

    def _error(self) -> KafkaError | None:
        return error_of(self._batch, self._index)

    def _metadata(self) -> RecordMetadata:
        return metadata_of(self._batch, self._index, self._timestamp_ms)

    def __repr__(self) -> str:
        return f"<SendFuture of {self._batch.queue.tp}, {'done' if self.done() else 'pending'}>"


class Run:
    """Records of one `send_many` that stand side by side in one batch."""

    __slots__ = ("batch", "count", "first", "number")

    batch: ProducerBatch
    first: i64
    count: i64
    number: i64

    def __init__(self, batch: ProducerBatch, first: i64, count: i64, number: i64) -> None:
        self.batch = batch
        self.first = first
        self.count = count
        self.number = number


class SendManyFuture:
    """The fate of all records of one `send_many`, in their order; `result` is a list."""

    __slots__ = ("_order", "_runs", "_timestamp_ms", "_timestamps", "count")

    count: i64
    _timestamp_ms: i64

    def __init__(self) -> None:
        self._runs: list[Run] = []
        # Of all records, if they were handed in run by run. Else each has its own, and the number of its run.
        self._timestamp_ms = NO_TIMESTAMP
        self._timestamps = BytesWriter()
        self._order = BytesWriter()
        self.count = 0

    def add(self, batch: ProducerBatch, first: i64, count: i64, timestamp_ms: i64) -> None:
        """Takes note of records that follow those known so far; all of a future have one timestamp."""
        self.count += count
        self._timestamp_ms = timestamp_ms
        self._runs.append(Run(batch, first, count, len(self._runs)))

    def add_one(self, batch: ProducerBatch, index: i64, timestamp_ms: i64, last: Run | None) -> Run:
        """Notes the next record. Returns its run: the partition's last run if the record continues it."""
        run = last
        if run is None or run.batch is not batch or run.first + run.count != index:
            run = Run(batch, index, 0, len(self._runs))
            self._runs.append(run)
        run.count += 1
        self.count += 1
        write_i32_le(self._order, i32(run.number))
        write_i64_le(self._timestamps, timestamp_ms)
        return run

    def __len__(self) -> int:
        return self.count

    def done(self) -> bool:
        """Whether the records were acknowledged or failed."""
        return self._first_pending(0) == len(self._runs)

    def running(self) -> bool:
        """Whether the outcome is still open."""
        return not self.done()

    def cancelled(self) -> bool:
        """False: what was sent cannot be called back."""
        return False

    def cancel(self) -> bool:
        """False: what was sent cannot be called back."""
        return False

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Where each record has gone. If any was not delivered, the first reason is raised, after all are done."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        places = [self._places(run) for run in self._runs]
        if len(self._order) == 0:
            return [
                metadata_of(batch, index, self._timestamp_ms) for of_run in places for batch, index in of_run
            ]
        order = self._order.getvalue()
        timestamps = self._timestamps.getvalue()
        left = [iter(of_run) for of_run in places]
        found: list[RecordMetadata] = []
        for position in range(self.count):
            batch, index = next(left[read_i32_le(order, 4 * position)])
            found.append(metadata_of(batch, index, read_i64_le(timestamps, 8 * position)))
        return found

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """The error, or None; waits as `result` does."""
        deadline_s = None if timeout is None else monotonic() + timeout
        number = 0
        while True:
            number = self._first_pending(number)
            if number == len(self._runs):
                return self._first_error()
            left_s = None if deadline_s is None else max(deadline_s - monotonic(), 0.0)
            if not wait_for(self._pending_leaf(number), left_s):
                raise TimeoutError(f"the records were not acknowledged within {timeout:g} s")

    def add_done_callback(self, function: Callable[[SendManyFuture], object]) -> None:
        """Calls the function with this future when all records are done."""
        number = self._first_pending(0)
        if number == len(self._runs):
            run_callback(partial(function, self))
        else:
            pending = SendFuture(self._pending_leaf(number), 0, NO_TIMESTAMP)
            pending.when_done(partial(self.add_done_callback, function))

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        return self._wait().__await__()

    async def _wait(self) -> list[RecordMetadata]:
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self.add_done_callback(partial(_wake_with, loop, waiter))
            await waiter
        return self.result(0.0)

    def _first_pending(self, number: int) -> int:
        """The first run from there on that has a batch which is not done; the number of runs if there is none."""
        while number < len(self._runs) and _is_done(self._runs[number].batch):
            number += 1
        return number

    def _pending_leaf(self, number: int) -> ProducerBatch:
        batch = self._runs[number].batch
        while batch.parts is not None:
            batch = next((part for part in batch.parts if not _is_done(part)), batch.parts[0])
        return batch

    def _places(self, run: Run) -> list[tuple[ProducerBatch, int]]:
        """Where each record of a run is now: its batch and its place there, which changes if the batch is split."""
        if run.batch.parts is None:
            return [(run.batch, index) for index in range(run.first, run.first + run.count)]
        found: list[tuple[ProducerBatch, int]] = []
        for index in range(run.first, run.first + run.count):
            record = SendFuture(run.batch, index, NO_TIMESTAMP)
            record._locate()
            found.append((record._batch, record._index))
        return found

    def _first_error(self) -> KafkaError | None:
        for run in self._runs:
            if run.batch.parts is None and run.batch.error is None:
                continue
            for batch, index in self._places(run):
                error = error_of(batch, index)
                if error is not None:
                    return error
        return None


def _is_done(batch: ProducerBatch) -> bool:
    parts = batch.parts
    return batch.is_done if parts is None else all(_is_done(part) for part in parts)


def wait_for(batch: ProducerBatch, timeout_s: float | None, *, until_told: bool = False) -> bool:
    """Waits until the batch is done (and all callbacks have run) or split; False if neither is so in time."""
    lock = batch.queue.lock
    lock.acquire()
    try:
        if batch.is_told or batch.parts is not None or (batch.is_done and not until_told):
            return True
        event = batch.event
        if event is None:
            event = threading.Event()
            batch.event = event
    finally:
        lock.release()
    return event.wait(timeout_s)


def error_of(batch: ProducerBatch, index: i64) -> KafkaError | None:
    error = batch.error
    errors = batch.record_errors
    if error is None or errors is None:
        return error
    found = errors.get(index)
    if found is not None:
        return found
    return InvalidRecord(f"the record was not written because others of its batch are invalid: {error}")


def metadata_of(batch: ProducerBatch, index: i64, timestamp_ms: i64) -> RecordMetadata:
    queue = batch.queue
    offset = batch.base_offset + index if batch.base_offset != NO_OFFSET else batch.base_offset
    appended_ms = batch.log_append_time_ms
    return RecordMetadata(
        queue.tp.topic, queue.partition, offset, timestamp_ms if appended_ms == NO_TIMESTAMP else appended_ms
    )


def run_callback(call: Callable[[], object]) -> None:
    """Calls a function of the user: logs its errors, which affect no other callback."""
    try:
        call()
    except Exception:
        log.exception("a callback of a producer failed")


def _wake(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(_set, waiter)


def _wake_with(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None], _: SendManyFuture) -> None:
    _wake(loop, waiter)


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
