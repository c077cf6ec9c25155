"""Opens the logs of partitions off the event loop, and assigns the epoch starts of those that this broker leads.

A partition whose log is not open yet exists, and answers that it cannot serve yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any, Final

from barnabas.broker.replication.partition import Partition
from barnabas.errors import KafkaError
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import LeaderEpoch, TopicPartition

log = logging.getLogger(__name__)

# Creates or opens the log of a partition with a topic id. It may wait for the disk.
OpenLog = Callable[[TopicPartition, bytes], PartitionLog]

# Done when no fetcher writes to the logs any more; None if none does.
Released = asyncio.Future[Any] | None

LOGS_OPENED_AT_ONCE: Final = 32


class LogOpening:
    """`is_current` says whether a partition is still one of the broker's when its log has been opened.

    `opened` is called for each partition that can be used from then on, and `failed` when some cannot be opened.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        is_current: Callable[[Partition], bool],
        opened: Callable[[Partition], None],
        failed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._is_current = is_current
        self._opened = opened
        self._failed = failed
        self._running: dict[TopicPartition, asyncio.Future[None]] = {}

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._running

    def begin(self, partitions: list[Partition], open_log: OpenLog, after: Released = None) -> None:
        """Begins when `after` is done, if it is given."""
        for start in range(0, len(partitions), LOGS_OPENED_AT_ONCE):
            self._begin(partitions[start : start + LOGS_OPENED_AT_ONCE], open_log, after)

    def begin_one(
        self, partition: Partition, open_log: OpenLog, after: Released = None
    ) -> asyncio.Future[None]:
        assert partition.topic_partition not in self._running, partition.topic_partition
        return self._begin([partition], open_log, after)

    def is_running(self, topics: Iterable[str]) -> bool:
        """Whether a log of these topics is still being opened."""
        names = set(topics)
        return any(key.topic in names for key in self._running)

    async def ended(self, topics: Iterable[str], timeout_s: float | None = None) -> None:
        """Returns when no log of these topics is still being opened, whether that succeeded or not.

        With a time-out it may return before: clients of such a partition have to try again.
        """
        names = set(topics)
        pending = {opening for key, opening in self._running.items() if key.topic in names}
        if pending:
            await asyncio.wait(pending, timeout=timeout_s)

    def _begin(self, partitions: list[Partition], open_log: OpenLog, after: Released) -> asyncio.Future[None]:
        roles = [(partition, partition.leads_in_epoch) for partition in partitions]
        opening: asyncio.Future[list[PartitionLog | None]]
        if after is None:
            opening = self._loop.run_in_executor(self._executor, _open_logs, roles, open_log)
        else:
            opening = self._loop.create_task(self._open_after(after, roles, open_log))

        def done(finished: asyncio.Future[list[PartitionLog | None]]) -> None:
            logs = [None] * len(partitions) if finished.cancelled() else finished.result()
            has_failed = False
            for partition, opened in zip(partitions, logs, strict=True):
                del self._running[partition.topic_partition]
                if not self._is_current(partition):
                    continue
                if opened is None or not _begin_use(partition, opened):
                    partition.take_offline()
                    has_failed = not finished.cancelled()
                else:
                    self._opened(partition)
            if has_failed:
                self._failed()
            waiter.set_result(None)

        waiter: asyncio.Future[None] = self._loop.create_future()
        for partition in partitions:
            self._running[partition.topic_partition] = waiter
        opening.add_done_callback(done)
        return waiter

    async def _open_after(
        self,
        after: asyncio.Future[Any],
        roles: list[tuple[Partition, LeaderEpoch | None]],
        open_log: OpenLog,
    ) -> list[PartitionLog | None]:
        await asyncio.wait([after])
        return await self._loop.run_in_executor(self._executor, _open_logs, roles, open_log)


def _open_logs(
    roles: list[tuple[Partition, LeaderEpoch | None]], open_log: OpenLog
) -> list[PartitionLog | None]:
    """Opens the logs of partitions. A partition that this broker leads comes with its leader epoch."""
    logs: list[PartitionLog | None] = []
    for partition, leader_epoch in roles:
        try:
            opened = open_log(partition.topic_partition, partition.topic_id)
            if leader_epoch is not None:
                # Done here because it writes a file, and this thread may wait for the disk.
                opened.assign_epoch_start(leader_epoch)
            logs.append(opened)
        except KafkaError as error:
            log.error("The log of %s cannot be opened: %s", partition.topic_partition, error)
            logs.append(None)
        except Exception:
            # Nobody may wait for the log for ever, and the other partitions are not affected.
            log.exception("The log of %s cannot be opened", partition.topic_partition)
            logs.append(None)
    return logs


def _begin_use(partition: Partition, opened: PartitionLog) -> bool:
    """False if the directory has failed since the log was opened, perhaps because of a log that was opened after it."""
    try:
        partition.open(opened)
    except KafkaError as error:
        log.error("The log of %s cannot be used: %s", partition.topic_partition, error)
        return False
    return True
