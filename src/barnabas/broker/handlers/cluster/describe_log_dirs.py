"""DescribeLogDirs, versions 0 to 5: this broker's log directories, and size and lag of their partitions.

- Null topics ask for all partitions. A failed directory has the error KAFKA_STORAGE_ERROR, the others do not.
- The lag of a log that is being moved to a directory (`is_future_key`) is the number of offsets still to copy.
- Version 3 has an error for the request, version 4 the size of each directory's disk and its free space. Version 5 says
  whether a directory takes no new partitions, which never happens here.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import KafkaStorageError
from barnabas.log.directory import LogDirectory
from barnabas.log.manager.manager import LogManager
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import TopicPartition
from barnabas.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from barnabas.protocol.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

UNKNOWN_LAG: Final = -1


async def handle(
    broker: Broker, exchange: AnyExchange, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted = (
        None
        if request.topics is None
        else {TopicPartition(each.topic, index) for each in request.topics for index in each.partitions}
    )
    # A failing disk may answer slowly.
    results = await broker.background.run(partial(_describe, broker.log_manager, wanted))
    return DescribeLogDirsResponse(results=results)


HANDLER: Final = coroutine_handler(DescribeLogDirsRequest, DescribeLogDirsResponse, handle)


def _describe(manager: LogManager, wanted: set[TopicPartition] | None) -> list[DescribeLogDirsResult]:
    logs: dict[str, list[PartitionLog]] = {}
    for log in manager.logs():
        if wanted is None or log.topic_partition in wanted:
            logs.setdefault(os.path.dirname(log.directory), []).append(log)
    return [_directory(manager, each, logs.get(each.path, [])) for each in manager.directories]


def _directory(
    manager: LogManager, directory: LogDirectory, logs: list[PartitionLog]
) -> DescribeLogDirsResult:
    failed = DescribeLogDirsResult(error_code=KafkaStorageError.code, log_dir=directory.path)
    if directory.is_offline:
        return failed
    try:
        total_bytes = directory.fs.total_bytes(directory.path)
        usable_bytes = directory.fs.free_bytes(directory.path)
    except KafkaStorageError:
        return failed
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in logs:
        at = log.topic_partition
        try:
            partition = _partition(manager, log)
        except KafkaStorageError:
            if any(each is log for each in manager.logs()):
                return failed
            continue  # It has been deleted in the meantime.
        topics.setdefault(at.topic, DescribeLogDirsTopic(name=at.topic)).partitions.append(partition)
    return DescribeLogDirsResult(
        log_dir=directory.path,
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def _partition(manager: LogManager, log: PartitionLog) -> DescribeLogDirsPartition:
    current = manager.log(log.topic_partition)
    is_future = log is manager.log(log.topic_partition, is_future=True)
    if current is None:
        lag = UNKNOWN_LAG
    elif is_future:
        lag = current.log_end_offset - log.log_end_offset
    else:
        lag = max(log.high_watermark - log.log_end_offset, 0)
    return DescribeLogDirsPartition(
        partition_index=log.topic_partition.partition,
        partition_size=log.size_bytes,
        offset_lag=lag,
        is_future_key=is_future,
    )
