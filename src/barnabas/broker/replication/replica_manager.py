"""The partitions of this broker and their roles.

Roles come from the controller as LeaderAndIsr and StopReplica requests, and from nowhere else. A controller that has
been replaced is refused by its epoch; a role that has been replaced, by its leader epoch. The logs of new partitions
and of new leaders are opened off the event loop: see log_opening.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from barnabas.broker.replication.log_opening import LogOpening, OpenLog
from barnabas.broker.replication.partition import Partition, PartitionContext, Proposals
from barnabas.broker.replication.topic_metrics import BrokerTopicMetrics
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    StaleControllerEpoch,
    UnknownTopicOrPartition,
)
from barnabas.model import NO_LEADER_EPOCH, BrokerId, TopicPartition
from barnabas.protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.leader_and_isr_response import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.messages.stop_replica_request import StopReplicaPartitionState, StopReplicaRequest
from barnabas.protocol.messages.stop_replica_response import StopReplicaPartitionError, StopReplicaResponse

log = logging.getLogger(__name__)

# Leader epochs of StopReplica that stop any role: that of a sender without epochs, and that of a topic's deletion.
NO_EPOCH: Final = -1
EPOCH_DURING_DELETE: Final = -2

_NONE: Final = 0

# Called with the topics of which partitions have other roles now, or are gone.
RolesListener: TypeAlias = Callable[[Collection[str]], None]


class IsrMetrics:
    """Changes of in-sync replicas of the partitions that this broker leads."""

    __slots__ = ("expands", "failures", "shrinks")

    def __init__(self) -> None:
        self.expands = 0
        self.shrinks = 0
        self.failures = 0


class Lag(NamedTuple):
    """A replica here, and how many records it is behind its leader."""

    topic_partition: TopicPartition
    leader: BrokerId
    fetcher: int
    lag: int


class FetcherTraffic(NamedTuple):
    """What a fetcher has asked its leader for, and got, since it has begun."""

    leader: BrokerId
    fetcher: int
    requests: int
    received_bytes: int


class LeaderThrottle(Protocol):
    """The bound of `leader.replication.throttled.rate`."""

    @property
    def is_exceeded(self) -> bool: ...

    def covers(self, partition: Partition) -> bool:
        """Whether the partition is one of those whose bytes count."""

    def record(self, partition: Partition, size_bytes: int) -> None: ...


class Followers(Protocol):
    """The fetchers of this broker, which copy the partitions that it follows."""

    def follow(self, partition: Partition) -> None: ...

    def leave(self, key: TopicPartition) -> None: ...

    def released(self, keys: Iterable[TopicPartition]) -> asyncio.Future[Any] | None:
        """Done when no thread writes to the logs of these partitions, which have been left; None if none does."""

    def lags(self) -> Iterable[Lag]: ...

    def failed_count(self) -> int:
        """How many partitions cannot be copied."""

    def traffic(self) -> Iterable[FetcherTraffic]: ...


class ReplicaManager:
    """`make_log` creates the log of a new partition: it has no log anywhere, not even in an offline directory."""

    def __init__(
        self,
        context: PartitionContext,
        loop: asyncio.AbstractEventLoop,
        open_log: OpenLog,
        make_log: OpenLog,
        executor: Executor,
    ) -> None:
        self.broker_id = context.broker_id
        self.delayed = context.delayed
        self.topic_metrics = BrokerTopicMetrics()
        self.isr_metrics = IsrMetrics()
        # The highest controller epoch seen. LeaderAndIsr, StopReplica and UpdateMetadata share it.
        self.controller_epoch = 0
        self._context = context
        self._open_log = open_log
        self._make_log = make_log
        self._opening = LogOpening(loop, executor, self._has, self._begin_following, self._note_offline)
        # None on a broker that is alone.
        self._followers: Followers | None = None
        self.leader_throttle: LeaderThrottle | None = None
        # Called when partitions have gone offline by themselves. None on a broker that is alone.
        self.on_offline: Callable[[], None] | None = None
        # By topic and index: a plain tuple is made faster than a TopicPartition, and finds the same.
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._roles_listeners: list[RolesListener] = []
        # Partitions whose roles are from before this broker was away, or whose topic was deleted.
        self._unconfirmed: set[TopicPartition] = set()

    async def note_absence(self) -> None:
        """The broker's registration was gone for a while: topics may have been deleted and made again meanwhile."""
        self._unconfirmed = {partition.topic_partition for partition in self}

    def follow_brokers(self, before: MetadataImage, after: MetadataImage) -> None:
        """A broker that is gone holds up no high watermark and no low watermark."""
        if before.brokers is after.brokers:
            return
        gone = before.brokers.keys() - after.brokers.keys()
        if gone:
            for partition in self:
                if not gone.isdisjoint(partition.replicas):
                    partition.recheck()

    def follow_topics(self, before: MetadataImage, after: MetadataImage) -> None:
        """A topic of the same name is another one from now on.

        A controller that fails may leave a replica behind that it has removed from a partition: nobody deletes it.
        """
        # A deletion comes alone. Other changes, which are frequent, do not look at all topics.
        if len(after.topics) < len(before.topics):
            deleted = before.topics.keys() - after.topics.keys()
            self._unconfirmed.update(
                partition.topic_partition
                for partition in self
                if partition.topic_partition.topic in deleted
                and before.topics[partition.topic_partition.topic].id == partition.topic_id
            )

    def on_roles(self, listener: RolesListener) -> None:
        """Calls the listener after each change of roles, on the event loop. A new leader's log may still be opened."""
        self._roles_listeners.append(listener)

    def _note_roles(self, topics: Collection[str]) -> None:
        for listener in self._roles_listeners:
            try:
                listener(topics)
            except Exception:
                # The controller waits for the answer to its request.
                log.exception("A listener for roles failed")

    def begin_replication(
        self, followers: Followers, isr_changes: Proposals, leader_throttle: LeaderThrottle
    ) -> None:
        """From now on, partitions are copied from their leaders, and change their in-sync replicas."""
        self._followers = followers
        self.leader_throttle = leader_throttle
        self._context.isr_changes = isr_changes

    def lags(self) -> Iterable[Lag]:
        return () if self._followers is None else self._followers.lags()

    def failed_count(self) -> int:
        return 0 if self._followers is None else self._followers.failed_count()

    def fetcher_traffic(self) -> Iterable[FetcherTraffic]:
        return () if self._followers is None else self._followers.traffic()

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def partition(self, topic: str, index: int) -> Partition:
        found = self._partitions.get((topic, index))
        if found is None:
            raise self._absence(topic, index)
        return found

    def _absence(self, topic: str, index: int) -> KafkaError:
        known = self._context.metadata.image.topics.get(topic)
        if known is not None and 0 <= index < len(known.partitions):
            return NotLeaderOrFollower(f"This broker has no replica of partition {index} of topic {topic!r}.")
        return UnknownTopicOrPartition(f"There is no partition {index} of a topic {topic!r}.")

    def find(self, topic_partition: TopicPartition) -> Partition | None:
        return self._partitions.get(topic_partition)

    def _has(self, partition: Partition) -> bool:
        return self._partitions.get(partition.topic_partition) is partition

    def admit_controller(self, controller_epoch: int) -> bool:
        """Whether the epoch is that of the latest controller known, which it may become."""
        if controller_epoch < self.controller_epoch:
            log.warning(
                "Ignoring a request of a controller with epoch %d: the latest epoch is %d",
                controller_epoch,
                self.controller_epoch,
            )
            return False
        self.controller_epoch = controller_epoch
        return True

    def become(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Takes over roles, of version 5 and later. A new leader serves when its log is open: see `opened`."""
        is_admitted = self.admit_controller(request.controller_epoch)
        response = LeaderAndIsrResponse(error_code=_NONE if is_admitted else StaleControllerEpoch.code)
        unopened: list[Partition] = []
        unmade: list[Partition] = []
        for topic in request.topic_states:
            errors = LeaderAndIsrTopicError(topic_id=topic.topic_id)
            response.topics.append(errors)
            for state in topic.partition_states:
                code = response.error_code
                if is_admitted:
                    code = self._become(topic, state, unopened, unmade)
                errors.partition_errors.append(
                    LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code)
                )
        self._opening.begin(unopened, self._open_log, self._released(unopened))
        self._opening.begin(unmade, self._make_log)
        if is_admitted:
            self._note_roles({topic.topic_name for topic in request.topic_states})
        return response

    def _released(self, partitions: Iterable[Partition]) -> asyncio.Future[Any] | None:
        followers = self._followers
        return None if followers is None else followers.released(each.topic_partition for each in partitions)

    def _begin_following(self, partition: Partition) -> None:
        if self._followers is not None and partition.is_follower and partition.log is not None:
            self._followers.follow(partition)

    def _end_following(self, key: TopicPartition) -> None:
        if self._followers is not None:
            self._followers.leave(key)

    def _become(
        self,
        topic: LeaderAndIsrTopicState,
        state: LeaderAndIsrPartitionState,
        unopened: list[Partition],
        unmade: list[Partition],
    ) -> int:
        """Gives a partition its role; Kafka's code of the error if it stays as it is."""
        key = TopicPartition(topic.topic_name, state.partition_index)
        partition = self._partitions.get(key)
        is_known = partition is not None
        if partition is not None and self._is_replaced(partition, topic.topic_id):
            log.warning(
                "%s is one of a new topic of this name: this broker has a replica of an earlier one", key
            )
            self._end_following(key)
            partition.stop()
            partition = None
        if partition is not None and self._lacks_id(partition, topic.topic_id, state):
            code = self._take_id(partition, topic.topic_id)
            if code != _NONE or state.leader_epoch == partition.leader_epoch:
                # As in Apache Kafka, nothing else is taken over from a role that is known.
                return code
        code = self._refusal(key, partition, topic.topic_id, state)
        if code != _NONE:
            return code
        if partition is None:
            partition = Partition(key, topic.topic_id, self._context, self.topic_metrics.of(key.topic))
            self._partitions[key] = partition
        self._unconfirmed.discard(key)
        self._end_following(key)
        try:
            self._give_role(partition, state)
        except KafkaError as error:
            log.error("%s cannot be led: %s", key, error)
            partition.take_offline()
            return KafkaStorageError.code
        is_new_leader = partition.is_leader and partition.leadership is None
        if key in self._opening:
            # The role begins when the log is open.
            return _NONE
        if partition.log is None or is_new_leader:
            (unmade if state.is_new and not is_known else unopened).append(partition)
        else:
            self._begin_following(partition)
        return _NONE

    def _is_replaced(self, partition: Partition, topic_id: bytes) -> bool:
        key = partition.topic_partition
        return (
            key in self._unconfirmed
            and key not in self._opening
            and partition.topic_id != topic_id
            and any(topic_id)
            and any(partition.topic_id)
        )

    def _lacks_id(self, partition: Partition, topic_id: bytes, state: LeaderAndIsrPartitionState) -> bool:
        """Whether the topic gets its id now: the protocol level of the cluster has been raised."""
        return (
            any(topic_id)
            and not any(partition.topic_id)
            and not partition.is_offline
            and state.leader_epoch >= partition.leader_epoch
        )

    def _take_id(self, partition: Partition, topic_id: bytes) -> int:
        try:
            partition.take_topic_id(topic_id)
        except KafkaError as error:
            log.error("%s cannot take over its topic id: %s", partition.topic_partition, error)
            return error.code
        if partition.is_follower:
            self._end_following(partition.topic_partition)
            self._begin_following(partition)
        return _NONE

    def _refusal(
        self,
        key: TopicPartition,
        partition: Partition | None,
        topic_id: bytes,
        state: LeaderAndIsrPartitionState,
    ) -> int:
        if partition is not None:
            if partition.is_offline:
                return KafkaStorageError.code
            # Zeros are the id of a topic without one, as before protocol level 2.8.
            if partition.topic_id != topic_id and any(topic_id) and any(partition.topic_id):
                log.error("Ignoring a role of %s: its topic has another id here", key)
                return InconsistentTopicId.code
        if state.leader_epoch <= (NO_LEADER_EPOCH if partition is None else partition.leader_epoch):
            log.info("Ignoring a role of %s in leader epoch %d, which is over", key, state.leader_epoch)
            return StaleControllerEpoch.code
        if self.broker_id not in state.replicas:
            log.warning("Ignoring a role of %s: its replicas are on brokers %s", key, state.replicas)
            return UnknownTopicOrPartition.code
        return _NONE

    def _give_role(self, partition: Partition, state: LeaderAndIsrPartitionState) -> None:
        if state.leader == self.broker_id:
            partition.become_leader(state)
        elif BrokerId(state.leader) in self._context.live_brokers:
            partition.become_follower(state)
        else:
            # There is no leader to follow. The epoch is not updated: the same role may come again when its leader is
            # known to be alive.
            partition.stop()

    def stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Ends roles, of version 3 and later, and forgets partitions that are to be deleted.

        Their directories are for the caller to delete, before anybody is answered.
        """
        is_admitted = self.admit_controller(request.controller_epoch)
        response = StopReplicaResponse(error_code=_NONE if is_admitted else StaleControllerEpoch.code)
        deleted: set[str] = set()
        for topic in request.topic_states:
            for state in topic.partition_states:
                code = response.error_code
                if is_admitted:
                    code = self._stop(TopicPartition(topic.topic_name, state.partition_index), state)
                    if state.delete_partition:
                        deleted.add(topic.topic_name)
                response.partition_errors.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                    )
                )
        for name in deleted.difference(key[0] for key in self._partitions):
            self.topic_metrics.remove(name)
        if is_admitted:
            self._note_roles({topic.topic_name for topic in request.topic_states})
        return response

    def _stop(self, key: TopicPartition, state: StopReplicaPartitionState) -> int:
        partition = self._partitions.get(key)
        if partition is None:
            return _NONE
        if state.leader_epoch not in (NO_EPOCH, EPOCH_DURING_DELETE) and (
            state.leader_epoch < partition.leader_epoch
        ):
            log.info("Not stopping %s, which is at leader epoch %d", key, partition.leader_epoch)
            return FencedLeaderEpoch.code
        self._end_following(key)
        if state.delete_partition:
            del self._partitions[key]
            self._unconfirmed.discard(key)
        partition.stop()
        return KafkaStorageError.code if partition.is_offline else _NONE

    def can_exchange_log(self, partition: Partition) -> bool:
        """Not while the log is being opened, or read by a coordinator that begins."""
        return partition.topic_partition not in self._opening and not partition.readers

    def exchange_log(self, partition: Partition, open_log: OpenLog) -> asyncio.Future[None]:
        """Replaces the log of a partition, which is unavailable until the other log is open."""
        self._end_following(partition.topic_partition)
        partition.log = None
        return self._opening.begin_one(partition, open_log, self._released([partition]))

    def is_opening(self, topics: Iterable[str]) -> bool:
        """Whether a log of these topics is still being opened."""
        return self._opening.is_running(topics)

    async def opened(self, topics: Iterable[str], timeout_s: float | None = None) -> None:
        """Returns when no log of these topics is still being opened: see `LogOpening.ended`."""
        await self._opening.ended(topics, timeout_s)

    async def released(self, partitions: Iterable[TopicPartition]) -> None:
        """Returns when no fetcher writes to the logs of these partitions, which are no longer followed."""
        if self._followers is not None and (busy := self._followers.released(partitions)) is not None:
            await asyncio.wait([busy])

    def take_offline(self, directory: str, partitions: Iterable[TopicPartition]) -> None:
        """The disk under these partitions has failed. They answer with an error until the broker is started again."""
        topics = set()
        for key in partitions:
            partition = self._partitions.get(key)
            if partition is not None:
                self._end_following(key)
                partition.take_offline()
                topics.add(key.topic)
        self._note_roles(topics)
        self._note_offline()
        log.error("Partitions in %s have failed and are offline; the others continue", directory)

    def _note_offline(self) -> None:
        if self.on_offline is not None:
            self.on_offline()
