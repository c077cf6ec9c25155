"""Moves partitions between the log directories of this broker, while they are in use.

A thread creates a second log, the future one, in the other directory and copies to it one slice at a time. When the
copy is complete, the partition is unavailable while the last records are copied and two directories are renamed:
clients get NOT_LEADER_OR_FOLLOWER and retry. One partition moves at a time;
`replica.alter.log.dirs.io.max.bytes.per.second`, set at run time, bounds the speed. A move that was interrupted by a
shutdown continues at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.waiting.scheduling import Scheduling
from barnabas.errors import (
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    ReplicaNotAvailable,
)
from barnabas.log import names
from barnabas.log.manager.manager import LogManager
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")

PACE_INTERVAL_S: Final = 0.25
_UNIQUE_ID_LENGTH: Final = 32


class LogDirMover:
    """`bytes_per_second` is asked after every slice."""

    def __init__(
        self,
        manager: LogManager,
        replicas: ReplicaManager,
        scheduling: Scheduling,
        bytes_per_second: Callable[[], int],
    ) -> None:
        self._manager = manager
        self._replicas = replicas
        self._tasks = scheduling.tasks
        self._background = scheduling.background
        self._bytes_per_second = bytes_per_second
        self._moving: dict[TopicPartition, None] = {}
        # Held while a future log is created, copied to, swapped or deleted.
        self._lock = asyncio.Lock()
        self._is_running = False

    async def resume(self) -> None:
        """Resumes moves of the last run; must be called before any append.

        After a crash a log may have lost records that its copy has: they were not acknowledged for good, and others
        would take their offsets.
        """
        for each in self._manager.logs():
            at = each.topic_partition
            if self._manager.log(at, is_future=True) is not each:
                continue
            partition = self._replicas.find(at)
            if partition is None or each.topic_id not in (None, partition.topic_id):
                await self._drop_stale(each)
                continue
            current = self._manager.log(at)
            if current is None:
                log.warning(
                    "%s is a copy of a missing partition. The broker does not touch it", each.directory
                )
                continue
            end_offset = current.log_end_offset
            if each.log_end_offset > end_offset:
                await self._in_thread(partial(self._manager.truncate_to, at, end_offset, is_future=True))
            self._begin(at)

    async def move(self, at: TopicPartition, directory: str) -> None:
        """Starts a move, or ends one if the partition is already in the directory.

        Raises an error if a move is impossible.
        """
        name = names.marked_partition_dir(at, "0" * _UNIQUE_ID_LENGTH, names.FUTURE_DIR_SUFFIX)
        if len(name) > names.NAME_LENGTH_MAX:
            raise InvalidTopicException("The topic name is too long.")
        target = self._manager.directory(directory)
        if target.is_offline:
            raise KafkaStorageError(f"Log directory {directory} is offline")
        async with self._lock:
            partition = self._replicas.find(at)
            if partition is not None and partition.is_offline:
                raise KafkaStorageError(f"Partition {at} is offline")
            current = self._manager.log(at)
            if partition is None or current is None:
                raise ReplicaNotAvailable(f"this broker has no replica of {at}")
            future = self._manager.log(at, is_future=True)
            if future is not None and self._manager.directory_of(future) is not target:
                await self._drop(at)
            if self._manager.directory_of(current) is target:
                return
            # A directory that cannot be read may have its own copy, and would come back with it.
            if len(self._manager.live_directories()) < len(self._manager.directories):
                raise KafkaStorageError("partitions are not moved while a log directory is offline")
            await self._in_thread(partial(self._manager.create_future, at, directory))
            self._begin(at)

    async def cancel(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends moves whose partitions are about to be deleted."""
        async with self._lock:
            for at in partitions:
                if self._manager.log(at, is_future=True) is not None:
                    await self._drop(at)

    async def _drop_stale(self, future: PartitionLog) -> None:
        """Deletes a copy whose topic was deleted while its directory was out of reach; there may be one of its name."""
        log.warning("%s is a copy of a deleted partition. The broker deletes it", future.directory)
        try:
            await self._drop(future.topic_partition)
        except KafkaError as error:
            log.error("%s cannot be deleted: %s", future.directory, error)

    async def _drop(self, at: TopicPartition) -> None:
        self._moving.pop(at, None)
        await self._in_thread(partial(self._manager.delete, at, is_future=True))

    def _begin(self, at: TopicPartition) -> None:
        self._moving[at] = None
        if not self._is_running:
            self._is_running = True
            self._tasks.start(self._run())

    async def _run(self) -> None:
        try:
            while self._moving:
                at = next(iter(self._moving))
                try:
                    copied_bytes = await self._advance(at)
                except KafkaError as error:
                    self._moving.pop(at, None)
                    log.error("the move of %s to another log directory has ended: %s", at, error)
                    continue
                if at in self._moving and not copied_bytes:
                    # All is copied, and somebody reads the log.
                    await asyncio.sleep(PACE_INTERVAL_S)
                await self._pace(copied_bytes)
        finally:
            self._is_running = False

    async def _pace(self, copied_bytes: float) -> None:
        """Waits as long as the bytes may take; the bound may change in the meantime."""
        while copied_bytes > 0:
            rate = self._bytes_per_second()
            wait_s = min(copied_bytes / rate, PACE_INTERVAL_S) if rate > 0 else PACE_INTERVAL_S
            await asyncio.sleep(wait_s)
            copied_bytes -= rate * wait_s

    async def _advance(self, at: TopicPartition) -> int:
        """Copies the next slice, and swaps the logs if it was the last and nobody reads them; its size."""
        async with self._lock:
            if at not in self._moving:
                return 0
            copied_bytes, has_all = await self._in_thread(partial(self._copy, at))
            if has_all:
                partition = self._replicas.find(at)
                if partition is None or partition.log is None:
                    raise KafkaStorageError("the partition is not in use")
                if not self._replicas.can_exchange_log(partition):
                    return 0
                await _to_its_end(self._replicas.exchange_log(partition, self._swap))
                self._moving.pop(at, None)
            return copied_bytes

    def _copy(self, at: TopicPartition) -> tuple[int, bool]:
        future = self._manager.log(at, is_future=True)
        if future is None:
            raise KafkaStorageError("its copy no longer exists")
        before_bytes, before_offset = future.size_bytes, future.log_end_offset
        has_all = self._manager.copy_to_future(at)
        if not has_all and future.log_end_offset == before_offset:
            raise KafkaStorageError(f"nothing can be read at offset {before_offset}")
        return max(future.size_bytes - before_bytes, 0), has_all

    def _swap(self, at: TopicPartition, topic_id: bytes) -> PartitionLog:
        """Nothing appends to the partition now. A log that cannot be replaced stays in use."""
        current, future = self._manager.log(at), self._manager.log(at, is_future=True)
        if current is None or future is None:
            raise KafkaStorageError("a log directory has failed")
        try:
            has_all = False
            while not has_all:
                _, has_all = self._copy(at)
            # Records may have been deleted since they were copied.
            future.advance_log_start_offset(current.log_start_offset)
            moved = self._manager.replace_with_future(at)
            log.info("%s has moved to %s", at, moved.directory)
            return moved
        except KafkaError as error:
            usable = self._manager.log(at)
            if usable is None:
                raise
            log.error("%s stays in %s: %s", at, usable.directory, error)
            return usable

    async def _in_thread(self, action: Callable[[], T]) -> T:
        return await _to_its_end(self._background.run(action))


async def _to_its_end(running: asyncio.Future[T]) -> T:
    """Waits for work in progress even when the broker stops: the logs are closed next."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled() and (error := running.exception()) is not None:
            log.error("a move of a partition has ended: %s", error)
        raise
