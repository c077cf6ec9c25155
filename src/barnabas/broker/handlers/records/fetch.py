"""Fetch, versions 0 to 18: records of partitions, as slices of their files.

- The response waits until there are `min_bytes` or an error, or until `max_wait_ms` has passed.
- From version 3 on `max_bytes` bounds the whole response, but the first batch is always complete. Before, a batch that
  does not fit is cut. Sessions come with version 7, leader epochs with 9, diverging epochs with 12, topic ids with 13.
- Versions 0 to 3 get records in older formats: v0 below version 2, v1 below version 4.
- A consumer with a rack (version 11) may get a replica to read from in place of records (KIP-392). Followers serve
  consumers of these versions up to their own high watermark.
- read_committed (version 4) ends at the last stable offset and lists the aborted transactions.
- A client needs READ on each topic, a follower CLUSTER_ACTION on the cluster.
- A fetch of many partitions is done in turns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission, denies
from barnabas.broker.handlers.records.fetch_conversion import Unconverted, convert_fetched, convert_small
from barnabas.broker.handlers.records.fetch_waiting import WIDE_WAITING_MAX, DelayedFetch, WideDelayedFetch
from barnabas.broker.quotas.quotas import CONSUMER_BYTE_RATE
from barnabas.broker.replication.delayed import ANY_PARTITION
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.topic_metrics import TopicMetrics
from barnabas.broker.requests.authorization import refusal
from barnabas.broker.requests.exchange import Answer, AnyExchange, Exchange, Parked
from barnabas.broker.requests.fetch_sessions import FetchContext, FetchTarget, replica_id
from barnabas.broker.waiting.purgatory import DelayedOperation
from barnabas.broker.waiting.turns import AT_ONCE, STEP
from barnabas.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicId,
    UnsupportedCompressionType,
)
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation, LogReadResult
from barnabas.model import TopicPartition
from barnabas.protocol.message import ZERO_UUID, Records
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest
from barnabas.protocol.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from barnabas.records.layout import BATCH_HEADER_BYTES, MAGIC_V0, MAGIC_V1
from barnabas.replication.remote_replica import RemoteReplica
from barnabas.security.acls import CLUSTER_ACTION, READ, TOPIC

# The class of `replica.selector.class` that looks at racks (KIP-392).
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

_READ_COMMITTED: Final = 1
_CONSUMER: Final = -1
_FIRST_VERSION_WITH_MAX_BYTES: Final = 3
_FIRST_VERSION_WITH_BATCHES: Final = 4
_FIRST_VERSION_WITH_ZSTD: Final = 10
_FIRST_VERSION_WITH_RACK: Final = 11
_FIRST_VERSION_WITH_LEADER: Final = 12
_FIRST_VERSION_WITH_ENDPOINTS: Final = 16

# A follower waits for each of so many partitions: producers wait for it.
FOLLOWER_WATCHES_MAX: Final = 1_000

Answered = list[tuple[FetchTarget, PartitionData]]


class Fetch:
    """A fetch request that is being answered, perhaps in several attempts."""

    __slots__ = (
        "_answered",
        "_available_bytes",
        "_broker",
        "_context",
        "_found",
        "_has_waited",
        "_isolation",
        "_max_bytes",
        "_next",
        "_only_leader",
        "_permission",
        "_rack",
        "_remaining_bytes",
        "_replica_id",
        "_tells_watermarks",
        "_unconverted",
        "_wait_ms",
        "exchange",
        "is_urgent",
        "min_bytes",
        "size_bytes",
    )

    def __init__(
        self,
        broker: Broker,
        exchange: Exchange[FetchResponse],
        request: FetchRequest,
        context: FetchContext,
    ) -> None:
        self._broker = broker
        self.exchange = exchange
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        if not context.is_follower and broker.quotas.has(CONSUMER_BYTE_RATE):
            # A fetch that asks for more than the quota of a window would never get anything.
            window_bytes = broker.quotas.max_in_window(
                CONSUMER_BYTE_RATE, exchange.session.user, exchange.client_id
            )
            if window_bytes < self._max_bytes:
                self._max_bytes = int(window_bytes)
        self.min_bytes = min(request.min_bytes, self._max_bytes)
        self._context = context
        self._permission = None if broker.authorization is None else _permission(broker, exchange, context)
        self.size_bytes = 0
        # The metrics that count the bytes once they are sent.
        self._found: list[tuple[TopicMetrics, PartitionData]] = []
        # Records that a client of an old version gets in an older format.
        self._unconverted: list[Unconverted] = []
        self._answered: Answered = []
        self._next = 0
        self._remaining_bytes = 0
        self._available_bytes = 0
        # How long to wait if there are too few bytes. A fetch waits once.
        self._wait_ms = request.max_wait_ms
        # An error or a diverging epoch is sent at once, however few bytes there are.
        self.is_urgent = False
        self._has_waited = False
        # The broker that fetches as a follower; -1 for consumers, and smaller for tools.
        self._replica_id = replica_id(request, exchange.version)
        # Consumers of newer versions may read from followers. Tools with other negative ids compare replicas: they
        # read the whole log of any replica.
        is_tool = self._replica_id < _CONSUMER
        self._only_leader = context.is_follower or (
            exchange.version < _FIRST_VERSION_WITH_RACK and not is_tool
        )
        # The rack in which the consumer should read, if the selector looks at racks.
        self._rack = ""
        self._tells_watermarks = False
        if (context.is_follower or request.rack_id) and (
            broker.config.replica_selector_class == RACK_AWARE_SELECTOR
        ):
            self._rack = "" if self._only_leader else request.rack_id
            # Followers serve consumers up to the high watermark, which they should learn soon.
            self._tells_watermarks = context.is_follower and context.is_incremental
        if context.is_follower or is_tool:
            self._isolation = Isolation.LOG_END
        elif request.isolation_level == _READ_COMMITTED:
            self._isolation = Isolation.TXN_COMMITTED
        else:
            self._isolation = Isolation.HIGH_WATERMARK

    @property
    def is_wide(self) -> bool:
        """Whether there are so many partitions that they are processed in turns."""
        return len(self._context.targets) > AT_ONCE

    @property
    def waits_for_any(self) -> bool:
        """Whether there are too many partitions to wait for each of them. A follower's records are waited for."""
        count = len(self._context.targets)
        return count > (FOLLOWER_WATCHES_MAX if self._context.is_follower else AT_ONCE)

    def read(self) -> Answer[FetchResponse]:
        """Reads the records, then answers or waits. Each partition leaves less room for the next ones."""
        self.size_bytes = 0
        self._found = []
        self._unconverted = []
        self._answered = []
        self._next = 0
        self._remaining_bytes = self._max_bytes
        self.is_urgent = False
        if self.is_wide:
            return self._go_on_in_turn(self._read_for_a_turn)
        for target in self._context.targets:
            self._read_target(target)
        return self._after_reading()

    def read_again(self) -> None:
        """Answers the fetch after it has waited."""
        self._has_waited = True
        if not self.exchange.connection.is_closed:
            self.exchange.park().answer_with(self.read)

    def _go_on_in_turn(self, work: Callable[[], Answer[FetchResponse]]) -> Parked[FetchResponse]:
        parked = self.exchange.park()
        self._broker.turns.add(partial(self._take_turn, parked, work))
        return parked

    def _take_turn(self, parked: Parked[FetchResponse], work: Callable[[], Answer[FetchResponse]]) -> None:
        if not self.exchange.connection.is_closed:
            parked.answer_with(work)

    def _read_for_a_turn(self) -> Answer[FetchResponse]:
        targets = self._context.targets
        turns = self._broker.turns
        end_ns = turns.end_ns()
        while self._next < len(targets):
            end = min(self._next + STEP, len(targets))
            while self._next < end:
                self._read_target(targets[self._next])
                self._next += 1
            if turns.is_over(end_ns):
                return self._go_on_in_turn(self._read_for_a_turn)
        return self._after_reading()

    def _after_reading(self) -> Answer[FetchResponse]:
        wait_ms = self._wait_ms
        self._wait_ms = 0
        count = len(self._context.targets)
        if (
            wait_ms <= 0
            or self.is_urgent
            or self.size_bytes >= self.min_bytes
            or count == 0
            or (
                self.waits_for_any
                and count + self._broker.replicas.delayed.wide_fetch_partitions > WIDE_WAITING_MAX
            )
        ):
            return self._answer()
        self._answered = []
        parked = self.exchange.park()
        waiting = self._broker.replicas.delayed.fetches
        delayed: DelayedOperation
        if self.waits_for_any:
            delayed = WideDelayedFetch(wait_ms, self, self._broker)
            is_over = waiting.try_complete_else_watch(delayed, [ANY_PARTITION])
        else:
            delayed = DelayedFetch(wait_ms, self)
            is_over = waiting.try_complete_else_watch(delayed, self.watch_keys())
        if not is_over:
            self.exchange.connection.on_hang_up = delayed.force_complete
        return parked

    def _answer(self) -> Answer[FetchResponse]:
        if self._unconverted:
            return self.exchange.answer_from(self._convert())
        if self.is_wide:
            return self._go_on_in_turn(self._response)
        return self._response()

    async def _convert(self) -> Answer[FetchResponse]:
        await convert_fetched(self._broker, self.exchange, self._unconverted)
        if self.exchange.connection.is_closed:
            # There is no client left to answer.
            return self.exchange.park()
        self.size_bytes = sum(len(answer.records or b"") for _, answer in self._found)
        return self._response()

    def _read_target(self, target: FetchTarget) -> None:
        version = self.exchange.version
        answer = PartitionData(
            partition_index=target.asked.partition,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
        self._answered.append((target, answer))
        try:
            if self._permission is not None and self._topic(target) not in self._permission:
                raise refusal(TOPIC)
            sends_first_whole = version >= _FIRST_VERSION_WITH_MAX_BYTES and self.size_bytes == 0
            max_bytes = max(min(target.asked.partition_max_bytes, self._remaining_bytes), 0)
            found_bytes = self._read_partition(target, answer, max_bytes, sends_first_whole)
        except KafkaError as error:
            self.is_urgent = True
            answer.error_code = error.code
            if version >= _FIRST_VERSION_WITH_LEADER and isinstance(
                error, NotLeaderOrFollower | FencedLeaderEpoch
            ):
                self._tell_leader(target, answer)
            return
        self.size_bytes += found_bytes
        self._remaining_bytes -= found_bytes

    def _read_partition(
        self, target: FetchTarget, answer: PartitionData, max_bytes: int, sends_first_whole: bool
    ) -> int:
        """The number of bytes of records."""
        partition = self._partition(target)
        metrics = partition.metrics
        metrics.total_fetch_requests += 1
        try:
            self._read_log(partition, target.asked, answer, max_bytes, sends_first_whole)
        except KafkaError as error:
            metrics.count_failed_fetch(error)
            raise
        found_bytes = len(answer.records) if answer.records is not None else 0
        if found_bytes:
            self._found.append((metrics, answer))
        return found_bytes

    def _read_log(
        self,
        partition: Partition,
        asked: FetchPartition,
        answer: PartitionData,
        max_bytes: int,
        sends_first_whole: bool,
    ) -> None:
        if self._only_leader:
            log = partition.leader_log(asked.current_leader_epoch)
        else:
            log = partition.readable_log(asked.current_leader_epoch)
            if self._rack and self._sends_elsewhere(partition, log, asked, answer):
                return
        follower = (
            partition.follower(self._replica_id, asked.current_leader_epoch)
            if self._context.is_follower
            else None
        )
        version = self.exchange.version
        if version < _FIRST_VERSION_WITH_ZSTD and log.config.compression_type == "zstd":
            raise UnsupportedCompressionType(f"Fetch version {version} does not know zstd, version 10 does")
        if asked.last_fetched_epoch >= 0 and self._diverges(log, asked, answer):
            return
        if follower is not None and self._is_throttled(partition, follower):
            # Without room for a batch, and without a first batch, there are only offsets.
            max_bytes, sends_first_whole = 0, False
        result = log.read(asked.fetch_offset, max_bytes, self._isolation, sends_first_whole)
        if follower is not None and not self._has_waited:
            partition.note_fetch(follower, asked.fetch_offset, asked.log_start_offset, result.log_end_offset)
        answer.high_watermark = result.high_watermark
        answer.last_stable_offset = result.last_stable_offset
        answer.log_start_offset = result.log_start_offset
        if result.aborted_transactions is not None:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in result.aborted_transactions
            ]
        answer.records = self._records(result, answer, asked.fetch_offset, partition.metrics)

    def _is_throttled(self, partition: Partition, follower: RemoteReplica) -> bool:
        """Whether the follower is one that has to wait, because too much is sent to such followers."""
        throttle = self._broker.replicas.leader_throttle
        return (
            throttle is not None
            and throttle.is_exceeded
            and throttle.covers(partition)
            and not partition.is_in_sync(follower)
        )

    def _sends_elsewhere(
        self, partition: Partition, log: PartitionLog, asked: FetchPartition, answer: PartitionData
    ) -> bool:
        """Whether the consumer should read from a follower. The answer names it and has no records."""
        preferred = partition.preferred_replica(self._rack, asked.fetch_offset)
        if preferred is None:
            return False
        self.is_urgent = True
        answer.preferred_read_replica = preferred
        answer.high_watermark = log.high_watermark
        answer.last_stable_offset = log.last_stable_offset
        answer.log_start_offset = log.log_start_offset
        return True

    def _records(
        self, result: LogReadResult, answer: PartitionData, fetch_offset: int, metrics: TopicMetrics
    ) -> Records:
        if result.records is None:
            return b""
        version = self.exchange.version
        if result.first_entry_is_cut and version >= _FIRST_VERSION_WITH_MAX_BYTES:
            return b""
        if version >= _FIRST_VERSION_WITH_BATCHES:
            return result.records
        if result.first_entry_is_cut:
            return _too_large_message(result.size_bytes)
        to_magic = MAGIC_V0 if version < 2 else MAGIC_V1
        converted = convert_small(result.records, to_magic, fetch_offset)
        if converted is None:
            # The slice is replaced by the converted records when all partitions have been read.
            self._unconverted.append(Unconverted(answer, result.records, to_magic, fetch_offset, metrics))
            return result.records
        metrics.fetch_message_conversions += converted.converted_count
        return converted.data

    def _diverges(self, log: PartitionLog, asked: FetchPartition, answer: PartitionData) -> bool:
        """Whether the client has read records that are gone. The answer says up to where its log and ours agree."""
        end = log.end_offset_for_epoch(asked.last_fetched_epoch)
        if end is None:
            raise OffsetOutOfRange(
                f"epoch {asked.last_fetched_epoch} of {log.topic_partition} is not known any more"
            )
        if end.epoch >= asked.last_fetched_epoch and end.end_offset >= asked.fetch_offset:
            return False
        self.is_urgent = True
        answer.high_watermark = log.high_watermark
        answer.last_stable_offset = log.last_stable_offset
        answer.log_start_offset = log.log_start_offset
        answer.diverging_epoch = EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
        return True

    def _topic(self, target: FetchTarget) -> str:
        if not self._context.uses_topic_ids:
            return target.topic
        name = self._broker.image.topic_names.get(target.topic_id)
        if name is None:
            raise UnknownTopicId("there is no topic with this id")
        return name

    def _partition(self, target: FetchTarget) -> Partition:
        partition = self._broker.replicas.partition(self._topic(target), target.asked.partition)
        # While the protocol level of a cluster is raised, a partition may not have its id yet.
        if self._context.uses_topic_ids and partition.topic_id not in (target.topic_id, ZERO_UUID):
            raise InconsistentTopicId(f"{partition.topic_partition} has another topic id here")
        return partition

    def _tell_leader(self, target: FetchTarget, answer: PartitionData) -> None:
        topic = self._broker.image.topics.get(self._topic(target))
        if topic is not None and 0 <= answer.partition_index < len(topic.partitions):
            image = topic.partitions[answer.partition_index]
            answer.current_leader = LeaderIdAndEpoch(leader_id=image.leader, leader_epoch=image.leader_epoch)

    def watch_keys(self) -> list[TopicPartition]:
        """The partitions whose changes may end the waiting. A topic that is gone by now has none."""
        targets = self._context.targets
        try:
            return [TopicPartition(self._topic(target), target.asked.partition) for target in targets]
        except UnknownTopicId:
            known = self._broker.image.topic_names
            return [
                TopicPartition(known[target.topic_id], target.asked.partition)
                for target in targets
                if target.topic_id in known
            ]

    def has_enough(self) -> bool:
        """Whether there is enough to read again. Looks at offsets first, which is cheap, then at sizes."""
        self._available_bytes = 0
        return any(self._ends_waiting(target) for target in self._context.targets)

    def look_through(self, start: int, end_ns: int) -> tuple[bool, int]:
        """The same for one turn, from a partition on: the result, and where to continue if it is False."""
        if start == 0:
            self._available_bytes = 0
        targets = self._context.targets
        turns = self._broker.turns
        while start < len(targets):
            end = min(start + STEP, len(targets))
            while start < end:
                if self._ends_waiting(targets[start]):
                    return True, start
                start += 1
            if turns.is_over(end_ns):
                break
        return False, start

    @property
    def target_count(self) -> int:
        return len(self._context.targets)

    def _ends_waiting(self, target: FetchTarget) -> bool:
        try:
            partition = self._partition(target)
            if self._only_leader:
                log = partition.leader_log(target.asked.current_leader_epoch)
            else:
                log = partition.readable_log(target.asked.current_leader_epoch)
        except KafkaError:
            return True
        if self._context.is_follower and self._has_to_wait(partition, target.asked.current_leader_epoch):
            return False
        if self._tells_watermarks and log.high_watermark > target.told_high_watermark:
            return True
        offset = target.asked.fetch_offset
        if self._isolation is Isolation.HIGH_WATERMARK:
            limit = log.high_watermark
        elif self._isolation is Isolation.TXN_COMMITTED:
            limit = log.last_stable_offset
        else:
            limit = log.log_end_offset
        if offset < log.log_start_offset or offset > log.log_end_offset:
            return True
        if offset >= limit:
            return False
        if self.min_bytes <= 1:
            return True
        try:
            self._available_bytes += log.read(
                offset, target.asked.partition_max_bytes, self._isolation
            ).size_bytes
        except KafkaError:
            return True
        return self._available_bytes >= self.min_bytes

    def _has_to_wait(self, partition: Partition, current_leader_epoch: int) -> bool:
        throttle = self._broker.replicas.leader_throttle
        if throttle is None or not throttle.is_exceeded:
            return False
        try:
            follower = partition.follower(self._replica_id, current_leader_epoch)
        except KafkaError:
            return False
        return self._is_throttled(partition, follower)

    def _response(self) -> FetchResponse:
        answered = self._answered
        self._answered = []
        exchange = self.exchange
        broker = self._broker
        session = exchange.session
        now_ms = broker.now_ms
        if self._context.is_follower:
            self._count_replication(answered)
            return self._response_of(answered, now_ms)
        throttle_ms = broker.quotas.record(
            CONSUMER_BYTE_RATE, session.user, exchange.client_id, self.size_bytes, now_ms
        )
        if throttle_ms > 0:
            # The client gets no records now, and asks again after the throttle time.
            broker.quotas.take_back(
                CONSUMER_BYTE_RATE, session.user, exchange.client_id, self.size_bytes, now_ms
            )
            exchange.throttle(throttle_ms)
            return FetchResponse(session_id=self._context.known_session_id)
        for metrics, answer in self._found:
            metrics.bytes_out += len(answer.records or b"")
        return self._response_of(answered, now_ms)

    def _count_replication(self, answered: Answered) -> None:
        throttle = self._broker.replicas.leader_throttle
        for target, answer in answered:
            size_bytes = len(answer.records or b"")
            if size_bytes:
                try:
                    partition = self._partition(target)
                except KafkaError:
                    # It has been deleted since it was read.
                    continue
                partition.metrics.replication_bytes_out += size_bytes
                if throttle is not None:
                    throttle.record(partition, size_bytes)

    def _response_of(self, answered: Answered, now_ms: int) -> FetchResponse:
        response = FetchResponse(
            session_id=self._context.session_id(answered, now_ms), responses=_by_topic(answered)
        )
        if self.exchange.version >= _FIRST_VERSION_WITH_ENDPOINTS:
            response.node_endpoints = self._leaders(answered)
        return response

    def _leaders(self, answered: Answered) -> list[NodeEndpoint]:
        leaders = {answer.current_leader.leader_id for _, answer in answered}
        return [
            NodeEndpoint(node_id=node.id, host=endpoint.host, port=endpoint.port, rack=node.rack)
            for node in self._broker.image.brokers.values()
            if node.id in leaders and (endpoint := node.endpoint(self.exchange.session.listener)) is not None
        ]


def _permission(broker: Broker, exchange: AnyExchange, context: FetchContext) -> Container[str] | None:
    """The topics that the client may read, None for all of them. A follower may read all or none."""
    if not context.is_follower:
        return Permission(broker, exchange, READ)
    return () if denies(broker, exchange, CLUSTER_ACTION) else None


def handle(broker: Broker, exchange: Exchange[FetchResponse], request: FetchRequest) -> Answer[FetchResponse]:
    try:
        context = broker.fetch_sessions.context(request, exchange.version, broker.now_ms)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    return Fetch(broker, exchange, request, context).read()


HANDLER: Final = Handler(FetchRequest, FetchResponse, handle)


def _too_large_message(size_bytes: int) -> bytes:
    """The beginning of a message that does not fit, which makes an old client ask again with more room."""
    length = max(size_bytes + 1, BATCH_HEADER_BYTES)
    return struct.pack(">qi", -1, length).ljust(size_bytes, b"\0")


def _by_topic(answered: Sequence[tuple[FetchTarget, PartitionData]]) -> list[FetchableTopicResponse]:
    """Adjacent partitions of a topic together, in the order in which they were read."""
    topics: list[FetchableTopicResponse] = []
    last: tuple[str, bytes] | None = None
    for target, answer in answered:
        key = (target.topic, target.topic_id)
        if key != last:
            topics.append(FetchableTopicResponse(topic=target.topic, topic_id=target.topic_id))
            last = key
        topics[-1].partitions.append(answer)
    return topics
