"""Requests that many tests need."""

from __future__ import annotations

from typing import Any

from barnabas.model import Offset
from barnabas.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import BatchBuilder
from barnabas.records.header import iterate_headers
from barnabas.records.layout import MAGIC_V2, CompressionType
from barnabas.records.reader import decode_batch
from tests.broker.raw_client import Asking, RawClient


def create_topic(client: RawClient, name: str, partitions: int = 1, **configs: str) -> Any:
    """Settings by Kafka's names with underscores for dots; returns the topic's answer."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ],
        timeout_ms=30_000,
    )
    [answer] = client.ask("CreateTopics", 7, request).topics
    assert answer.error_code == 0, answer
    return answer


def batch(
    *values: bytes | None,
    magic: int = MAGIC_V2,
    compression: CompressionType = CompressionType.NONE,
    timestamp: int = 1_700_000_000_000,
    **producer: int,
) -> bytes:
    builder = BatchBuilder(magic=magic, compression=compression, base_offset=Offset(0), **producer)  # type: ignore[arg-type]
    for index, value in enumerate(values):
        builder.append(timestamp + index, b"key-%d" % index, value)  # type: ignore[arg-type]
    return bytes(builder.build())


def produce_request(
    topic: str, records: bytes | None, *, partition: int = 0, acks: int = 1, topic_id: bytes = bytes(16)
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=partition, records=records)],
            )
        ],
    )


def produce(client: RawClient, topic: str, records: bytes | None, *, version: int = 9, **options: Any) -> Any:
    """The partition's answer."""
    response = client.ask("Produce", version, produce_request(topic, records, **options))
    return response.responses[0].partition_responses[0]


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
    topic_id: bytes = bytes(16),
    session_epoch: int = -1,
    replica_id: int = -1,
) -> FetchRequest:
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        current_leader_epoch=current_leader_epoch,
                        partition_max_bytes=max_bytes,
                    )
                ],
            )
        ],
    )


def fetch(client: Asking, topic: str, offset: int, *, version: int = 12, **options: Any) -> Any:
    """The partition's answer."""
    response = client.ask("Fetch", version, fetch_request(topic, offset, **options))
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def values(records: bytes | memoryview | None) -> list[bytes | None]:
    """The values in the records of an answer."""
    data = bytes(records or b"")
    found: list[bytes | None] = []
    position = 0
    for header in iterate_headers(data):
        found += [record.value for record in decode_batch(data, position, header=header)]
        position += header.size_bytes
    return found
