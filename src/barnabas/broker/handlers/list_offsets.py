"""ListOffsets, versions 0 to 11: the offset for a time, or for one of the special times.

- Version 0 answers a list of segment starts; from 1 on it is the first record that is not older.
- Special times: latest -1, earliest -2, max timestamp -3 (version 7), earliest local -4 (8), latest tiered -5 (9),
  earliest pending upload -6 (11). A consumer sees no further than the high watermark, with read_committed (version 2)
  no further than the last stable offset.
- From version 4 the answer tells the leader epoch of what was found.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.exchange import Exchange
from barnabas.errors import InvalidRequest, KafkaError, UnsupportedVersion
from barnabas.log.offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from barnabas.model import TopicPartition
from barnabas.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from barnabas.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_CONSUMER: Final = -1
_READ_COMMITTED: Final = 1
_FIRST_VERSION_WITH_EPOCH: Final = 4
_FIRST_VERSION_OF: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


def handle(broker: Broker, exchange: Exchange, request: ListOffsetsRequest) -> ListOffsetsResponse:
    named = Counter(
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    response = ListOffsetsResponse()
    for topic in request.topics:
        answers = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(answers)
        for asked in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            answers.partitions.append(answer)
            try:
                if exchange.version > 0 and named[TopicPartition(topic.name, asked.partition_index)] > 1:
                    raise InvalidRequest(f"{topic.name}-{asked.partition_index} is named twice")
                if exchange.version == 0:
                    _old_style(broker, request, topic.name, asked, answer)
                else:
                    _find(broker, exchange, request, topic.name, asked, answer)
            except KafkaError as error:
                answer.error_code = error.code
    return response


def _find(
    broker: Broker,
    exchange: Exchange,
    request: ListOffsetsRequest,
    topic: str,
    asked: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> None:
    timestamp = asked.timestamp
    if timestamp < 0 and timestamp not in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP):
        first_version = _FIRST_VERSION_OF.get(timestamp)
        if first_version is None or exchange.version < first_version:
            raise UnsupportedVersion(f"timestamp {timestamp} has no meaning in version {exchange.version}")
    partition = broker.replicas.partition(topic, asked.partition_index)
    log = partition.leader_log(asked.current_leader_epoch)
    end_offset = log.log_end_offset
    if request.replica_id == _CONSUMER:
        end_offset = (
            log.last_stable_offset if request.isolation_level == _READ_COMMITTED else log.high_watermark
        )
    if timestamp == LATEST_TIMESTAMP:
        answer.offset = end_offset
        if exchange.version >= _FIRST_VERSION_WITH_EPOCH:
            answer.leader_epoch = partition.leader_epoch
        return
    found = log.offset_for_timestamp(timestamp)
    if found is None:
        return
    # A log that is empty has a start all the same.
    if found.offset >= end_offset and timestamp not in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return
    answer.timestamp = found.timestamp
    answer.offset = found.offset
    if exchange.version >= _FIRST_VERSION_WITH_EPOCH:
        answer.leader_epoch = found.leader_epoch


def _old_style(
    broker: Broker,
    request: ListOffsetsRequest,
    topic: str,
    asked: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> None:
    log = broker.replicas.partition(topic, asked.partition_index).leader_log()
    offsets = log.offsets_before(asked.timestamp, asked.max_num_offsets)
    if request.replica_id == _CONSUMER and any(offset > log.high_watermark for offset in offsets):
        offsets = [log.high_watermark, *(offset for offset in offsets if offset <= log.high_watermark)]
    answer.old_style_offsets = list(offsets[: max(asked.max_num_offsets, 0)])
