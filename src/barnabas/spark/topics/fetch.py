"""What a task does: fetches raw batches of one range of offsets, the next ones being on their way while these are read.

A worker of Spark runs one task at a time and lives on, and so do its connections: tasks with the same settings share
them. The loop that drives them runs only while a task waits for an answer; there is no other thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from barnabas.client.admin.core import topic_id_text
from barnabas.client.connections.brokers import Brokers, Node
from barnabas.client.consumer.fetched import NONE_ABORTED, AbortedTransactions, Fetched, end_of
from barnabas.client.consumer.fetcher import (
    FETCH,
    FIRST_VERSION_WITH_TOPIC_IDS,
    PASSING,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    STALE_METADATA,
)
from barnabas.client.consumer.fetcher_sessions import FINAL_EPOCH
from barnabas.client.partition_state import PartitionState
from barnabas.client.settings import ConsumerSettings
from barnabas.errors import (
    NONE,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for_code,
)
from barnabas.model import TopicPartition
from barnabas.protocol.message import ZERO_UUID
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.fetch_response import FetchResponse, PartitionData
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.metadata_response import MetadataResponse
from barnabas.spark.topics.directory import report_data_loss
from barnabas.spark.topics.offsets import EARLIEST, LATEST
from barnabas.spark.topics.plan import OffsetRange

log = logging.getLogger(__name__)

# A task reads one partition; more at once costs memory and gives nothing.
FETCH_BYTES: Final = 4 * 1024 * 1024
SETTINGS: Final[Mapping[str, str]] = {
    "fetch.max.bytes": str(FETCH_BYTES),
    "max.partition.fetch.bytes": str(FETCH_BYTES),
}
CLIENTS_MAX: Final = 8
# A new leader may not know at once how far its log is committed, and a broker may not know of a topic yet: after this
# time what they say is so.
SETTLING_S: Final = 2.0
EMPTY_ANSWERS_AT_GAP: Final = 2


class Leader(NamedTuple):
    """Where a partition is fetched from."""

    node: int
    epoch: int
    topic_id: bytes


class TopicClient:
    """The connections of this process for one set of settings."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self.settings = ConsumerSettings({**SETTINGS, **kafka})
        self._loop = asyncio.new_event_loop()
        self._brokers = self._loop.run_until_complete(self._make_brokers())
        self._leaders: dict[TopicPartition, Leader] = {}
        self._isolation_level = (
            READ_COMMITTED if self.settings.isolation_level == "read_committed" else READ_UNCOMMITTED
        )

    async def _make_brokers(self) -> Brokers:
        return Brokers(self.settings)

    def close(self) -> None:
        self._loop.run_until_complete(self._brokers.close())
        self._loop.close()

    def fetch(
        self, wanted: OffsetRange, *, poll_timeout_ms: int, fail_on_data_loss: bool
    ) -> Iterator[Fetched]:
        """What brokers have of the range, in order; the last may reach beyond it."""
        return _RangeFetch(self, wanted, poll_timeout_ms, fail_on_data_loss).run()

    def now_s(self) -> float:
        return self._loop.time()

    def pause(self, duration_s: float) -> None:
        self._loop.run_until_complete(asyncio.sleep(duration_s))

    def back_off(self) -> None:
        self.pause(self.settings.retry_backoff_ms / 1000)

    def forget(self, partition: TopicPartition) -> None:
        self._leaders.pop(partition, None)

    def prefer(self, partition: TopicPartition, node: int) -> None:
        """The leader has told of a replica that is nearer (KIP-392)."""
        self._leaders[partition] = self._leaders[partition]._replace(node=node)

    def leader(self, partition: TopicPartition) -> Leader:
        known = self._leaders.get(partition)
        if known is None:
            known = self._leaders[partition] = self._loop.run_until_complete(self._find_leader(partition))
        return known

    async def _find_leader(self, partition: TopicPartition) -> Leader:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=partition.topic)], allow_auto_topic_creation=False
        )
        answer: MetadataResponse = await self._brokers.request(None, request)
        self._brokers.set_nodes(
            Node(each.node_id, each.host, each.port, each.rack) for each in answer.brokers
        )
        for topic in answer.topics:
            if topic.error_code != NONE:
                raise error_for_code(topic.error_code, f"topic {partition.topic}")
            for each in topic.partitions:
                if each.partition_index == partition.partition:
                    if each.leader_id < 0:
                        raise LeaderNotAvailable(f"{partition} has no leader at the moment")
                    return Leader(each.leader_id, each.leader_epoch, topic.topic_id)
        raise UnknownTopicOrPartition(f"{partition} does not exist")

    def begin(self, partition: TopicPartition, position: int) -> asyncio.Future[FetchResponse]:
        """Sends a fetch; the answer comes while somebody waits for it."""
        leader = self.leader(partition)
        link = self._brokers.link_of(leader.node)
        if link is None:
            link = self._loop.run_until_complete(self._brokers.link(leader.node))
        settings = self.settings
        has_id = leader.topic_id != ZERO_UUID
        version = link.version_of(FETCH, None if has_id else FIRST_VERSION_WITH_TOPIC_IDS - 1)
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=self._isolation_level,
            session_epoch=FINAL_EPOCH,
            topics=[
                FetchTopic(
                    topic=partition.topic if version < FIRST_VERSION_WITH_TOPIC_IDS else "",
                    topic_id=leader.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else ZERO_UUID,
                    partitions=[
                        FetchPartition(
                            partition=partition.partition,
                            current_leader_epoch=leader.epoch,
                            fetch_offset=position,
                            partition_max_bytes=settings.max_partition_fetch_bytes,
                        )
                    ],
                )
            ],
            rack_id=settings.client_rack,
        )
        answer: asyncio.Future[FetchResponse] = self._loop.create_future()

        def done(message: FetchResponse | None, error: KafkaError | None) -> None:
            if answer.done():
                return
            if message is not None:
                answer.set_result(message)
            else:
                answer.set_exception(error or NetworkException("the fetch was not answered"))
                # Whoever does not wait for it any more need not know.
                answer.exception()

        timeout_ms = settings.request_timeout_ms + settings.fetch_max_wait_ms
        link.requester.send(FETCH, version, request, done, timeout_s=timeout_ms / 1000)
        return answer

    def wait(self, answer: asyncio.Future[FetchResponse]) -> FetchResponse:
        try:
            return self._loop.run_until_complete(answer)
        except KafkaError as error:
            # The same exception may end several requests, and each has its own way up the stack.
            raise error.with_traceback(None) from None

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset that there is, and the one behind the last that may be read."""
        return self._loop.run_until_complete(self._list(partition, EARLIEST)), self._loop.run_until_complete(
            self._list(partition, LATEST)
        )

    async def _list(self, partition: TopicPartition, timestamp: int) -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self._isolation_level,
            topics=[
                ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
                    ],
                )
            ],
        )
        leader = await self._find_leader(partition)
        answer = await self._brokers.request(leader.node, request)
        found = answer.topics[0].partitions[0]
        if found.error_code != NONE:
            raise error_for_code(found.error_code, str(partition))
        offset: int = found.offset
        return offset


class _RangeFetch:
    """One task's way through its range. Every wait of it ends: what does not get on in time fails."""

    def __init__(
        self, client: TopicClient, wanted: OffsetRange, poll_timeout_ms: int, fail_on_data_loss: bool
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._partition = wanted.partition
        self._position = wanted.start_offset
        self._poll_timeout_ms = poll_timeout_ms
        self._fail_on_data_loss = fail_on_data_loss
        self._pending: asyncio.Future[FetchResponse] | None = None
        self._last_error: KafkaError | None = None
        self._moved_s = client.now_s()
        self._short_since_s: float | None = None
        self._missing_since_s: float | None = None
        self._empty_answers = 0

    def run(self) -> Iterator[Fetched]:
        end_offset = self._wanted.end_offset
        while self._position < end_offset:
            data = self._next_answer()
            if data is None or data.records is None or len(data.records) == 0:
                if data is not None:
                    self._look_at_end(data)
                self._check_time()
                continue
            records = data.records
            assert isinstance(records, bytes | memoryview)
            position = self._position
            next_position, epoch = end_of(records, position)
            fetched = Fetched(
                PartitionState(self._partition, position=position),
                records,
                end_offset=next_position,
                end_epoch=epoch,
                aborted=_aborted(data),
                check_crcs=self._client.settings.check_crcs,
            )
            self._move_to(next_position)
            if next_position < end_offset:
                self._begin()
            yield fetched

    def _begin(self) -> None:
        try:
            self._pending = self._client.begin(self._partition, self._position)
        except KafkaError as error:
            self._pending = None
            self._note(error)

    def _next_answer(self) -> PartitionData | None:
        """The partition's part of the next answer; None after something that may pass."""
        if self._pending is None:
            self._check_topic()
            if self._position < self._wanted.end_offset:
                self._begin()
        if self._pending is None:
            return None
        pending, self._pending = self._pending, None
        try:
            answer = self._client.wait(pending)
            if answer.error_code != NONE:
                raise error_for_code(answer.error_code, f"fetching {self._partition}")
        except KafkaError as error:
            self._note(error)
            return None
        if answer.throttle_time_ms > 0:
            # A broker that slows us down may answer with nothing: that tells nothing of its log.
            self._client.pause(min(answer.throttle_time_ms, self._poll_timeout_ms) / 1000)
            self._empty_answers = 0
            self._moved_s = self._client.now_s()
        data = answer.responses[0].partitions[0] if answer.responses else None
        if data is None:
            return None
        code = data.error_code
        if code == OffsetOutOfRange.code:
            self._leave_gap()
            return None
        if code != NONE:
            self._note(error_for_code(code, f"fetching {self._partition}"))
            return None
        if data.preferred_read_replica >= 0 and len(data.records or b"") == 0:
            self._client.prefer(self._partition, data.preferred_read_replica)
            return None
        self._last_error = None
        return data

    def _check_topic(self) -> None:
        """A topic that was made anew under the same name has other records at these offsets."""
        planned = self._wanted.topic_id
        if planned is None:
            return
        try:
            found = topic_id_text(self._client.leader(self._partition).topic_id)
            if found != planned:
                # What is known here may be older than the plan.
                self._client.forget(self._partition)
                found = topic_id_text(self._client.leader(self._partition).topic_id)
        except KafkaError:
            # It is told of where the fetch begins.
            return
        if found is not None and found != planned:
            self._lose(
                f"topic {self._partition.topic} was deleted and made anew while offsets {self._position} to"
                f" {self._wanted.end_offset} of {self._partition} were to be read"
            )

    def _note(self, error: KafkaError) -> None:
        """Forgets what may be wrong, and waits a little; what cannot pass is raised."""
        if error.code in STALE_METADATA or isinstance(error, NetworkException | RequestTimedOut):
            self._client.forget(self._partition)
        elif not error.retriable and error.code not in PASSING:
            raise error
        self._last_error = error
        if isinstance(error, UnknownTopicOrPartition | UnknownTopicId):
            self._look_for_topic()
        else:
            self._missing_since_s = None
        self._check_time()
        self._client.back_off()

    def _look_for_topic(self) -> None:
        now_s = self._client.now_s()
        if self._missing_since_s is None:
            self._missing_since_s = now_s
        elif now_s - self._missing_since_s > SETTLING_S:
            self._lose(
                f"topic {self._partition.topic} was deleted before offsets {self._position} to"
                f" {self._wanted.end_offset} of {self._partition} were read"
            )

    def _check_time(self) -> None:
        if self._client.now_s() - self._moved_s > self._poll_timeout_ms / 1000:
            because = "" if self._last_error is None else f": {self._last_error.name}: {self._last_error}"
            raise RequestTimedOut(
                f"nothing of {self._partition} at offset {self._position} came within {self._poll_timeout_ms} ms"
                f" (kafkaConsumer.pollTimeoutMs){because}"
            )

    def _move_to(self, position: int) -> None:
        self._position = position
        self._moved_s = self._client.now_s()
        self._short_since_s = None
        self._missing_since_s = None
        self._empty_answers = 0

    def _look_at_end(self, data: PartitionData) -> None:
        """An answer without records: the log ends here, or a cleaner has left nothing up to its end."""
        log_end = data.high_watermark
        if self._client.settings.isolation_level == "read_committed" and data.last_stable_offset >= 0:
            log_end = min(log_end, data.last_stable_offset)
        if log_end >= self._wanted.end_offset:
            self._empty_answers += 1
            if self._empty_answers >= EMPTY_ANSWERS_AT_GAP:
                self._move_to(self._wanted.end_offset)
            return
        now_s = self._client.now_s()
        if self._short_since_s is None:
            self._short_since_s = now_s
        elif now_s - self._short_since_s > SETTLING_S:
            self._lose(
                f"{self._partition} ends at offset {log_end}, before {self._wanted.end_offset} up to which it was to"
                " be read: its topic was made anew, or its log was cut"
            )

    def _leave_gap(self) -> None:
        """The position is outside the log: goes to where the log begins, if losses are allowed."""
        try:
            first, end = self._client.bounds(self._partition)
        except KafkaError as error:
            self._note(error)
            return
        if first <= self._position <= end:
            # A leader that has just changed; the answer to the next fetch will be right.
            self._check_time()
            self._client.back_off()
        elif self._position < first:
            report_data_loss(
                f"offsets {self._position} to {min(first, self._wanted.end_offset) - 1} of {self._partition} have"
                f" expired; its log begins at {first}",
                fail_on_data_loss=self._fail_on_data_loss,
            )
            self._move_to(min(first, self._wanted.end_offset))
        else:
            self._lose(
                f"{self._partition} ends at offset {end}, before {self._position} from where it was to be read: its"
                " topic was made anew, or its log was cut"
            )

    def _lose(self, message: str) -> None:
        report_data_loss(message, fail_on_data_loss=self._fail_on_data_loss)
        self._move_to(self._wanted.end_offset)


def _aborted(data: PartitionData) -> AbortedTransactions:
    if not data.aborted_transactions:
        return NONE_ABORTED
    return sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions)


_clients: dict[tuple[int, frozenset[tuple[str, str]]], TopicClient] = {}


def client_of(kafka: Mapping[str, str]) -> TopicClient:
    """The client of this process for these settings, made at the first use."""
    key = os.getpid(), frozenset(kafka.items())
    client = _clients.pop(key, None)
    if client is None:
        client = TopicClient(kafka)
        if len(_clients) >= CLIENTS_MAX:
            # The one that was not used for longest.
            _clients.pop(next(iter(_clients))).close()
    _clients[key] = client
    return client
