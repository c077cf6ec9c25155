"""ListPartitionReassignments, version 0: those that are under way, of all partitions or of those that are named."""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.requests.deadlines import within
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import KafkaError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


async def handle(
    broker: Broker, exchange: AnyExchange, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    wanted = None
    if request.topics is not None:
        wanted = [
            TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes
        ]
    try:
        found = await within(request.timeout_ms, broker.controller.list_reassignments(wanted))
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error))
    topics: dict[str, OngoingTopicReassignment] = {}
    for at, partition in found.items():
        topics.setdefault(at.topic, OngoingTopicReassignment(name=at.topic)).partitions.append(
            OngoingPartitionReassignment(
                partition_index=at.partition,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
        )
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))


def refuse(
    request: ListPartitionReassignmentsRequest, error: KafkaError, version: int
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=str(error),
        topics=[
            OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


HANDLER: Final = coroutine_handler(
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, handle, refuse=refuse
)
