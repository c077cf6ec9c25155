"""A connection to the leaders of partitions that fetches raw batches, without a group, a subscription or a thread.

For programs that spread partitions over their own processes, such as Spark. `ranges.read_range` reads a range of
offsets with it. The event loop runs only while a caller waits for an answer. A reader belongs to one thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.connections.brokers import Brokers
from barnabas.client.consumer.fetched import Fetched as Fetched
from barnabas.client.consumer.fetcher import (
    FETCH,
    FIRST_VERSION_WITH_TOPIC_IDS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
)
from barnabas.client.consumer.fetcher_sessions import FINAL_EPOCH
from barnabas.client.reset_policy import EARLIEST, LATEST
from barnabas.client.settings import ConsumerSettings
from barnabas.errors import (
    NONE,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    UnknownTopicOrPartition,
    error_for_code,
)
from barnabas.model import TopicPartition
from barnabas.peers.node import Node
from barnabas.protocol.message import ZERO_UUID
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.fetch_response import FetchResponse
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.metadata_response import MetadataResponse


class Leader(NamedTuple):
    """The broker that a partition is fetched from: its leader, or a replica that the leader prefers."""

    node: int
    epoch: int
    topic_id: bytes


class PartitionReader:
    """Connections with the settings of a consumer."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = ConsumerSettings(settings)
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

    def now_s(self) -> float:
        return self._loop.time()

    def pause(self, duration_s: float) -> None:
        self._loop.run_until_complete(asyncio.sleep(duration_s))

    def back_off(self) -> None:
        self.pause(self.settings.retry_backoff_ms / 1000)

    def forget(self, partition: TopicPartition) -> None:
        self._leaders.pop(partition, None)

    def prefer(self, partition: TopicPartition, node: int) -> None:
        """Fetches from the replica that the leader has named as the nearer one (KIP-392)."""
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
        """Sends a fetch. The answer arrives while a caller is in `wait`."""
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
                # Marks the exception as seen: a caller that has stopped reading never asks for it.
                answer.exception()

        timeout_ms = settings.request_timeout_ms + settings.fetch_max_wait_ms
        link.requester.send(FETCH, version, request, done, timeout_s=timeout_ms / 1000)
        return answer

    def wait(self, answer: asyncio.Future[FetchResponse]) -> FetchResponse:
        try:
            return self._loop.run_until_complete(answer)
        except KafkaError as error:
            # One exception may end several requests, and each needs its own traceback.
            raise error.with_traceback(None) from None

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset of the log, and the end offset that this isolation level may read up to."""
        return self.offset_at(partition, EARLIEST), self.offset_at(partition, LATEST)

    def offset_at(self, partition: TopicPartition, timestamp: int) -> int:
        """The first offset at the timestamp or later (or EARLIEST, LATEST); -1 if there is none."""
        return self._loop.run_until_complete(self._list_offset(partition, timestamp))

    async def _list_offset(self, partition: TopicPartition, timestamp: int) -> int:
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
