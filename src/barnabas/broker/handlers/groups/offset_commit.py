"""OffsetCommit, versions 0 to 10: a group remembers how far it has come in each partition.

- Offsets of version 0 are stored as all others are; Kafka before 4.0 kept them in ZooKeeper.
- From version 10 on topics are given by their id.
- Partitions that there are not are refused one by one, before the group is asked.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.groups.asking import ask, caller_of
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import Answer, Exchange, Parked
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.errors import KafkaError, UnknownTopicId, UnknownTopicOrPartition
from barnabas.groups.offsets import commit_error
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_FIRST_WITH_IDS: Final = 10


def handle(
    broker: Broker, exchange: Exchange[OffsetCommitResponse], request: OffsetCommitRequest
) -> Answer[OffsetCommitResponse]:
    refused = _refuse_unknown(broker.image, exchange.version, request)
    if refused and not request.topics:
        return OffsetCommitResponse(topics=refused)
    try:
        shell = broker.groups.shell_of(request.group_id)
    except KafkaError as error:
        return _merged(commit_error(request, error.code), refused)
    if not refused:
        return ask(exchange, shell, shell.coordinator.offsets.commit, request, broker.now_ms)
    parked = exchange.park()
    caller = caller_of(exchange, partial(_answer_with, parked, refused))
    shell.carry_out(shell.coordinator.offsets.commit(caller, request, broker.now_ms))
    return parked


HANDLER: Final = Handler(OffsetCommitRequest, OffsetCommitResponse, handle)


def _refuse_unknown(
    image: MetadataImage, version: int, request: OffsetCommitRequest
) -> list[OffsetCommitResponseTopic]:
    """Leaves in the request what there is, under its name, and returns the answers for the rest."""
    refused = []
    known = []
    for topic in request.topics:
        unknown_code = UnknownTopicOrPartition.code
        if version >= _FIRST_WITH_IDS:
            name = image.topic_names.get(topic.topic_id)
            if name is None:
                unknown_code = UnknownTopicId.code
            else:
                topic.name = name
        found = image.topics.get(topic.name)
        count = 0 if found is None else len(found.partitions)
        unknown = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if unknown:
            refused.append(_refusal(topic, unknown, unknown_code))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if topic.partitions or not unknown:
            known.append(topic)
    request.topics = known
    return refused


def _refusal(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: int
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )


def _answer_with(
    parked: Parked[OffsetCommitResponse],
    refused: list[OffsetCommitResponseTopic],
    response: OffsetCommitResponse,
) -> None:
    parked.answer(_merged(response, refused))


def _merged(response: OffsetCommitResponse, refused: list[OffsetCommitResponseTopic]) -> OffsetCommitResponse:
    """Each topic once, with the partitions that were refused behind the others."""
    topics = {topic.name: topic for topic in response.topics}
    for topic in refused:
        answered = topics.get(topic.name) if topic.name else None
        if answered is None:
            response.topics.append(topic)
        else:
            answered.partitions += topic.partitions
    return response
