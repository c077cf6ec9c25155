"""OffsetCommit, versions 0 to 10: a group stores its offset in each partition.

- Offsets of version 0 are stored like all others; Kafka before 4.0 kept them in ZooKeeper.
- From version 10 on topics are given by their id.
- A client needs READ on the group and on each topic.
- Unknown partitions are refused one by one, before the coordinator is asked.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.groups.asking import ask, caller_of
from barnabas.broker.handlers.groups.known_partitions import add_refused, take_known, take_permitted
from barnabas.broker.handlers.groups.wide_commit import PIECE_PARTITIONS, commit_in_pieces
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission, denies
from barnabas.broker.requests.exchange import Answer, Exchange, Parked
from barnabas.errors import GroupAuthorizationFailed, KafkaError, UnknownTopicId, UnknownTopicOrPartition
from barnabas.groups.offsets import commit_error
from barnabas.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
from barnabas.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.security.acls import GROUP, READ

_FIRST_WITH_IDS: Final = 10

_Refused = list[OffsetCommitResponseTopic]


def handle(
    broker: Broker, exchange: Exchange[OffsetCommitResponse], request: OffsetCommitRequest
) -> Answer[OffsetCommitResponse]:
    image = broker.image
    has_ids = exchange.version >= _FIRST_WITH_IDS
    if has_ids:
        for topic in request.topics:
            topic.name = image.topic_names.get(topic.topic_id, "")
    denied: _Refused = []
    if broker.authorization is not None:
        if denies(broker, exchange, READ, GROUP, request.group_id):
            return commit_error(request, GroupAuthorizationFailed.code)
        request.topics, denied = take_permitted(Permission(broker, exchange, READ), request.topics, _refusal)
    request.topics, refused = take_known(image, request.topics, _refuse_by_id if has_ids else _refuse)
    refused += denied
    if refused and not request.topics:
        return OffsetCommitResponse(topics=refused)
    if _partition_count(request) > PIECE_PARTITIONS:
        return exchange.answer_from(_commit_in_pieces(broker, exchange, request, refused))
    try:
        shell = broker.groups.shell_of(request.group_id)
    except KafkaError as error:
        return _with_refused(refused, commit_error(request, error.code))
    if not refused:
        return ask(exchange, shell, shell.coordinator.offsets.commit, request, broker.now_ms)
    parked = exchange.park()
    caller = caller_of(exchange, partial(_answer_with, parked, refused))
    shell.carry_out(shell.coordinator.offsets.commit(caller, request, broker.now_ms))
    return parked


HANDLER: Final = Handler(OffsetCommitRequest, OffsetCommitResponse, handle)


def _partition_count(request: OffsetCommitRequest) -> int:
    count = 0
    for topic in request.topics:
        count += len(topic.partitions)
    return count


def _refuse(topic: OffsetCommitRequestTopic, unknown: list[int]) -> OffsetCommitResponseTopic:
    return _refusal(topic, unknown, UnknownTopicOrPartition.code)


def _refuse_by_id(topic: OffsetCommitRequestTopic, unknown: list[int]) -> OffsetCommitResponseTopic:
    # A topic with an unknown id has no name.
    return _refusal(topic, unknown, UnknownTopicOrPartition.code if topic.name else UnknownTopicId.code)


def _refusal(topic: OffsetCommitRequestTopic, unknown: list[int], code: int) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=index, error_code=code) for index in unknown
        ],
    )


async def _commit_in_pieces(
    broker: Broker,
    exchange: Exchange[OffsetCommitResponse],
    request: OffsetCommitRequest,
    refused: _Refused,
) -> OffsetCommitResponse:
    return _with_refused(refused, await commit_in_pieces(broker, exchange, request))


def _answer_with(
    parked: Parked[OffsetCommitResponse], refused: _Refused, response: OffsetCommitResponse
) -> None:
    parked.answer(_with_refused(refused, response))


def _with_refused(refused: _Refused, response: OffsetCommitResponse) -> OffsetCommitResponse:
    add_refused(response.topics, refused)
    return response
