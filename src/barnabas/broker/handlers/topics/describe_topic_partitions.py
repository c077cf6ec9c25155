"""DescribeTopicPartitions, version 0: topics in the order of their names, with a bounded number of partitions.

The cursor says where the next request continues: at a partition of one of the requested topics.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission, operations
from barnabas.broker.handlers.topics.metadata import is_reachable, leader_for_clients
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.coordination.metadata.image import INTERNAL_TOPICS, MetadataImage, PartitionImage
from barnabas.coordination.metadata.topic_names import is_legal_topic_name
from barnabas.errors import (
    InvalidRequest,
    InvalidTopicException,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from barnabas.protocol.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas.security.acls import DESCRIBE, TOPIC


def handle(
    broker: Broker, exchange: AnyExchange, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    try:
        return _describe(broker, exchange, request)
    except InvalidRequest as error:
        # The response has no error for the whole request.
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name)
                for topic in request.topics
            ]
        )


HANDLER: Final = Handler(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, handle)


def _describe(
    broker: Broker, exchange: AnyExchange, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image, listener = broker.image, exchange.session.listener
    wants_all = not request.topics
    first_name, first_partition = "", 0
    if request.cursor is not None:
        first_name, first_partition = request.cursor.topic_name, request.cursor.partition_index
        if first_partition < 0:
            raise InvalidRequest(f"the cursor's partition {first_partition} is negative")
    wanted = set(image.topics) if wants_all else {topic.name for topic in request.topics}
    if request.cursor is not None and not wants_all and first_name not in wanted:
        raise InvalidRequest(f"the cursor's topic {first_name!r} is not among the topics that are asked for")
    remaining = max(min(broker.config.max_request_partition_size_limit, request.response_partition_limit), 1)

    response = DescribeTopicPartitionsResponse()
    permission = Permission(broker, exchange, DESCRIBE, is_logged=not wants_all)
    names = sorted(name for name in wanted if name >= first_name)
    for name in [each for each in names if each in permission]:
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            if not wants_all:
                response.topics.append(_unknown(name, operations(broker, exchange, TOPIC, name)))
            continue
        start = first_partition if name == first_name else 0
        end = min(len(topic.partitions), start + remaining)
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.id,
                is_internal=topic.is_internal,
                partitions=[
                    _partition(image, index, topic.partitions[index], listener) for index in range(start, end)
                ],
                topic_authorized_operations=operations(broker, exchange, TOPIC, name),
            )
        )
        remaining -= max(end - start, 0)
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    if not wants_all:
        # Whether such topics exist is not said.
        code = TopicAuthorizationFailed.code
        response.topics += [
            DescribeTopicPartitionsResponseTopic(error_code=code, name=name)
            for name in names
            if name not in permission
        ]
    return response


def _unknown(name: str, authorized_operations: int) -> DescribeTopicPartitionsResponseTopic:
    error = UnknownTopicOrPartition if is_legal_topic_name(name) else InvalidTopicException
    return DescribeTopicPartitionsResponseTopic(
        error_code=error.code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=authorized_operations,
    )


def _partition(
    image: MetadataImage, index: int, partition: PartitionImage, listener: str
) -> DescribeTopicPartitionsResponsePartition:
    error_code, leader = leader_for_clients(image, partition, listener)
    return DescribeTopicPartitionsResponsePartition(
        error_code=error_code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        # Only Kafka 4 has this API. There a replica that clients of the listener cannot reach is offline too.
        offline_replicas=[
            each
            for each in partition.replicas
            if each in partition.failed_replicas or not is_reachable(image, each, listener)
        ],
    )
