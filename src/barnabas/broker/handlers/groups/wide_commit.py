"""An OffsetCommit of many partitions, in pieces: each is a separate commit, and other requests run in between.

The group may change in the meantime. The response has an error for each partition, so it shows which pieces were
committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeVar

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.groups.asking import caller_of
from barnabas.broker.handlers.groups.known_partitions import TopicWithPartitions
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import KafkaError
from barnabas.groups.offsets import commit_error
from barnabas.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
from barnabas.protocol.messages.offset_commit_response import OffsetCommitResponse

T = TypeVar("T")
TopicT = TypeVar("TopicT", bound=TopicWithPartitions)

# The number of partitions in a piece. A client that commits no more has them all in one batch.
PIECE_PARTITIONS: Final = 1_000


class Piece(NamedTuple):
    request: OffsetCommitRequest
    # Whether its first topic is the last one of the piece before.
    continues_topic: bool


async def commit_in_pieces(
    broker: Broker, exchange: AnyExchange, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    for piece in pieces(request):
        await broker.turns.next()
        topics = (await _commit(broker, exchange, piece.request)).topics
        if piece.continues_topic:
            response.topics[-1].partitions += topics[0].partitions
            topics = topics[1:]
        response.topics += topics
    await broker.turns.next()
    return response


def pieces(request: OffsetCommitRequest, size: int = PIECE_PARTITIONS) -> Iterator[Piece]:
    for topics, continues_topic in split_topics(request.topics, _part_of, size):
        yield Piece(_with_topics(request, topics), continues_topic)


def split_topics(
    all_topics: Iterable[TopicT], part_of: Callable[[TopicT, int, int], TopicT], size: int
) -> Iterator[tuple[list[TopicT], bool]]:
    """Topics with `size` partitions at a time, and whether the first of them is the last one before.

    `part_of` returns a topic with a range of its partitions.
    """
    topics: list[TopicT] = []
    room = size
    continues_topic = False
    for topic in all_topics:
        start = 0
        while True:
            part = part_of(topic, start, start + room)
            topics.append(part)
            start += len(part.partitions)
            room -= len(part.partitions)
            if room > 0:
                break
            yield topics, continues_topic
            topics, room = [], size
            continues_topic = start < len(topic.partitions)
            if not continues_topic:
                break
    if topics:
        yield topics, continues_topic


def _part_of(topic: OffsetCommitRequestTopic, start: int, end: int) -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(
        name=topic.name, topic_id=topic.topic_id, partitions=topic.partitions[start:end]
    )


def _with_topics(request: OffsetCommitRequest, topics: list[OffsetCommitRequestTopic]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        topics=topics,
    )


async def _commit(
    broker: Broker, exchange: AnyExchange, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    try:
        shell = broker.groups.shell_of(request.group_id)
    except KafkaError as error:
        return commit_error(request, error.code)
    answered: asyncio.Future[OffsetCommitResponse] = asyncio.get_running_loop().create_future()
    caller = caller_of(exchange, partial(settle, answered))
    shell.carry_out(shell.coordinator.offsets.commit(caller, request, broker.now_ms))
    return await answered


def settle(answered: asyncio.Future[T], response: T) -> None:
    """The request may have been cancelled in the meantime."""
    if not answered.done():
        answered.set_result(response)
