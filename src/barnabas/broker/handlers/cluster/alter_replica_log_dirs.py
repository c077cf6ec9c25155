"""AlterReplicaLogDirs, versions 0 to 2: moves partitions to another log directory of this broker.

The response says that a move has started; DescribeLogDirs shows its progress. All versions mean the same.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import NONE, KafkaError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
from barnabas.protocol.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


async def handle(
    broker: Broker, exchange: AnyExchange, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    # If a partition is named twice, the last directory counts.
    targets = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    end_ns = broker.turns.end_ns()
    for at, directory in targets.items():
        if broker.turns.is_over(end_ns):
            await broker.turns.next()
            end_ns = broker.turns.end_ns()
        error_code = NONE
        try:
            await broker.log_dir_mover.move(at, directory)
        except KafkaError as error:
            error_code = error.code
        topic = results.setdefault(at.topic, AlterReplicaLogDirTopicResult(topic_name=at.topic))
        topic.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=at.partition, error_code=error_code)
        )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def refuse(
    request: AlterReplicaLogDirsRequest, error: KafkaError, version: int
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code)
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


HANDLER: Final = coroutine_handler(
    AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, handle, refuse=refuse
)
