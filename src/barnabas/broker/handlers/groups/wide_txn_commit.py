"""A TxnOffsetCommit of many partitions, in pieces, as an OffsetCommit: see wide_commit.py.

Each piece is verified as a request is. The transaction may end in the meantime: then the pieces after it are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.groups.wide_commit import PIECE_PARTITIONS, settle, split_topics
from barnabas.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse

Then = Callable[[TxnOffsetCommitResponse], None]
CommitPiece = Callable[[TxnOffsetCommitRequest, Then], None]


def is_wide(request: TxnOffsetCommitRequest) -> bool:
    return sum(len(topic.partitions) for topic in request.topics) > PIECE_PARTITIONS


async def commit_in_pieces(
    broker: Broker, request: TxnOffsetCommitRequest, commit: CommitPiece
) -> TxnOffsetCommitResponse:
    """`commit` calls back once for each piece."""
    loop = asyncio.get_running_loop()
    response = TxnOffsetCommitResponse()
    for topics, continues_topic in split_topics(request.topics, _part_of, PIECE_PARTITIONS):
        await broker.turns.next()
        answered: asyncio.Future[TxnOffsetCommitResponse] = loop.create_future()
        commit(_with_topics(request, topics), partial(settle, answered))
        answers = (await answered).topics
        if continues_topic:
            response.topics[-1].partitions += answers[0].partitions
            answers = answers[1:]
        response.topics += answers
    await broker.turns.next()
    return response


def _part_of(topic: TxnOffsetCommitRequestTopic, start: int, end: int) -> TxnOffsetCommitRequestTopic:
    return TxnOffsetCommitRequestTopic(name=topic.name, partitions=topic.partitions[start:end])


def _with_topics(
    request: TxnOffsetCommitRequest, topics: list[TxnOffsetCommitRequestTopic]
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )
