"""The partitions of this broker, and the requests that wait for something to happen to one of them.

The controller's images say which partitions there are; their logs are made and opened by the log manager, off the
event loop. A partition that is not open yet, or whose directory has failed, is there all the same and says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from typing import Final

from barnabas.broker.replication.delayed import DelayedOperations
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.topic_metrics import BrokerTopicMetrics
from barnabas.coordination.metadata.image import MetadataImage, TopicImage
from barnabas.errors import KafkaError, UnknownTopicOrPartition
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition

log = logging.getLogger(__name__)

# Creates or opens the log of a partition with a topic id. It may wait for the disk.
OpenLog = Callable[[TopicPartition, bytes], PartitionLog]

LOGS_OPENED_AT_ONCE: Final = 32


class ReplicaManager:
    def __init__(
        self,
        broker_id: BrokerId,
        loop: asyncio.AbstractEventLoop,
        delayed: DelayedOperations,
        open_log: OpenLog,
        make_log: OpenLog,
        executor: Executor,
    ) -> None:
        self.broker_id = broker_id
        self.delayed = delayed
        self.topic_metrics = BrokerTopicMetrics()
        self._loop = loop
        self._open_log = open_log
        self._make_log = make_log
        self._executor = executor
        self._opening: dict[TopicPartition, asyncio.Future[None]] = {}
        # By topic and index: a plain tuple is made faster than a TopicPartition, and finds the same.
        self._partitions: dict[tuple[str, int], Partition] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def partition(self, topic: str, index: int) -> Partition:
        found = self._partitions.get((topic, index))
        if found is None:
            raise UnknownTopicOrPartition(f"this broker has no partition {index} of a topic {topic!r}")
        return found

    def find(self, topic_partition: TopicPartition) -> Partition | None:
        return self._partitions.get(topic_partition)

    def apply(self, topics: Iterable[TopicImage], *, may_be_new: bool = False) -> None:
        """Takes over what the controller has decided. Logs of new partitions are opened by and by: see `opened`.

        A partition that is seen for the first time and may be new has no log anywhere, not even in a directory that
        is offline: its log is made in one that is not.
        """
        unopened: list[Partition] = []
        unmade: list[Partition] = []
        for topic in topics:
            for index, image in enumerate(topic.partitions):
                if self.broker_id not in image.replicas:
                    continue
                key = TopicPartition(topic.name, index)
                partition = self._partitions.get(key)
                is_new = partition is None or partition.topic_id != topic.id
                if partition is None or is_new:
                    metrics = self.topic_metrics.of(topic.name)
                    partition = Partition(key, topic.id, self.broker_id, self.delayed, metrics)
                    self._partitions[key] = partition
                partition.apply(image)
                if partition.log is None and key not in self._opening:
                    (unmade if is_new and may_be_new else unopened).append(partition)
        for partitions, open_log in ((unopened, self._open_log), (unmade, self._make_log)):
            for start in range(0, len(partitions), LOGS_OPENED_AT_ONCE):
                self._begin_opening(partitions[start : start + LOGS_OPENED_AT_ONCE], open_log)

    def exchange_log(self, partition: Partition, open_log: OpenLog) -> asyncio.Future[None]:
        """Has another log take the place of a partition's, which nobody can use until that is open."""
        assert partition.topic_partition not in self._opening, partition.topic_partition
        partition.log = None
        return self._begin_opening([partition], open_log)

    def is_opening(self, topics: Iterable[str]) -> bool:
        """Whether a log of these topics is still being made or opened."""
        names = set(topics)
        return any(key.topic in names for key in self._opening)

    async def opened(self, topics: Iterable[str], timeout_s: float | None = None) -> None:
        """Returns when no log of these topics is still being made or opened, whether that went well or not.

        With a time-out it may return before: whoever uses such a partition is told to try again.
        """
        names = set(topics)
        pending = {opening for key, opening in self._opening.items() if key.topic in names}
        if pending:
            await asyncio.wait(pending, timeout=timeout_s)

    def _begin_opening(self, partitions: list[Partition], open_log: OpenLog) -> asyncio.Future[None]:
        roles = [(partition, partition.leads_in_epoch) for partition in partitions]
        opening = self._loop.run_in_executor(self._executor, _open_logs, roles, open_log)

        def done(finished: asyncio.Future[list[PartitionLog | None]]) -> None:
            logs = [None] * len(partitions) if finished.cancelled() else finished.result()
            for partition, opened in zip(partitions, logs, strict=True):
                del self._opening[partition.topic_partition]
                # A partition may have gone while its log was being made.
                if self._partitions.get(partition.topic_partition) is not partition:
                    continue
                if opened is None or not _begin_use(partition, opened):
                    partition.take_offline()
            waiter.set_result(None)

        waiter: asyncio.Future[None] = self._loop.create_future()
        for partition in partitions:
            self._opening[partition.topic_partition] = waiter
        opening.add_done_callback(done)
        return waiter

    def remove(self, topics: Iterable[TopicImage]) -> list[TopicPartition]:
        """Forgets topics that are gone; whoever waits for one of their partitions finds out now."""
        removed = []
        for topic in topics:
            self.topic_metrics.remove(topic.name)
            for index in range(len(topic.partitions)):
                key = TopicPartition(topic.name, index)
                partition = self._partitions.get(key)
                if partition is not None and partition.topic_id == topic.id:
                    del self._partitions[key]
                    partition.is_leader = False
                    removed.append(key)
                    self.delayed.note_change(key)
        return removed

    def take_offline(self, directory: str, partitions: Iterable[TopicPartition]) -> None:
        """The disk under these partitions has failed: they answer with an error until the broker is started anew."""
        for key in partitions:
            partition = self._partitions.get(key)
            if partition is not None:
                partition.take_offline()
                self.delayed.note_change(key)
        log.error("log directory %s has failed, its partitions are offline; the others go on", directory)


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
            log.error("the log of %s cannot be opened: %s", partition.topic_partition, error)
            logs.append(None)
    return logs


def _begin_use(partition: Partition, opened: PartitionLog) -> bool:
    """False if the directory has failed since the log was opened, perhaps by what was opened after it."""
    try:
        partition.open(opened)
    except KafkaError as error:
        log.error("the log of %s cannot be used: %s", partition.topic_partition, error)
        return False
    return True


def changed_topics(before: MetadataImage, after: MetadataImage) -> tuple[list[TopicImage], list[TopicImage]]:
    """Topics that are new or different, and topics that are gone (with a new id, a topic is both)."""
    if before.topics is after.topics:
        return [], []
    changed = [topic for name, topic in after.topics.items() if before.topics.get(name) is not topic]
    gone = [
        topic
        for name, topic in before.topics.items()
        if (now := after.topics.get(name)) is None or now.id != topic.id
    ]
    return changed, gone
