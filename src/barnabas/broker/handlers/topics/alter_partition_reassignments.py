"""AlterPartitionReassignments, versions 0 and 1.

- Null replicas stop a reassignment that is under way.
- From version 1 on a client can ask that the number of replicas stays the same.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.results import code_of, message_of
from barnabas.broker.handlers.topics.pieces import PIECE_SIZE
from barnabas.broker.requests.deadlines import within
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import KafkaError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
)
from barnabas.protocol.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    broker: Broker, exchange: AnyExchange, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    targets = {
        TopicPartition(topic.name, partition.partition_index): partition.replicas
        for topic in request.topics
        for partition in topic.partitions
    }
    may_change = request.allow_replication_factor_change
    try:
        errors = await within(request.timeout_ms, _alter(broker, targets, may_change))
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_change, error_code=error.code, error_message=str(error)
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _partition(index, errors[TopicPartition(topic.name, index)])
                    for index in (partition.partition_index for partition in topic.partitions)
                ],
            )
            for topic in request.topics
        ],
    )


def refuse(
    request: AlterPartitionReassignmentsRequest, error: KafkaError, version: int
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=str(error),
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_partition(partition.partition_index, error) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


HANDLER: Final = coroutine_handler(
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, handle, refuse=refuse
)


async def _alter(
    broker: Broker, targets: dict[TopicPartition, list[int] | None], may_change: bool
) -> dict[TopicPartition, KafkaError | None]:
    """Some partitions at a time: the controller decides about all of them at once."""
    errors: dict[TopicPartition, KafkaError | None] = {}
    async for part in broker.turns.parts(list(targets.items()), PIECE_SIZE):
        errors.update(
            await broker.controller.alter_reassignments(
                dict(part), allow_replication_factor_change=may_change
            )
        )
    return errors


def _partition(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index,
        error_code=code_of(error),
        error_message=message_of(error),
    )
