"""OffsetForLeaderEpoch, versions 0 to 4: the end offset of a leader epoch in the log, -1 if it is unknown.

From version 2 on the client names the current epoch that it knows, and gets an error if the broker knows another.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission, denies
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.errors import KafkaError, TopicAuthorizationFailed
from barnabas.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from barnabas.protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.security.acls import CLUSTER_ACTION, DESCRIBE


def handle(
    broker: Broker, exchange: Exchange[OffsetForLeaderEpochResponse], request: OffsetForLeaderEpochRequest
) -> Answer[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    questions = []
    # Consumers need less than followers.
    is_follower = not denies(broker, exchange, CLUSTER_ACTION, is_logged=False)
    permission = Permission(broker, exchange, DESCRIBE)
    for topic in request.topics:
        answers = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(answers)
        for asked in topic.partitions:
            answer = EpochEndOffset(partition=asked.partition)
            answers.partitions.append(answer)
            if not is_follower and topic.topic not in permission:
                answer.error_code = TopicAuthorizationFailed.code
                continue
            questions.append((topic.topic, asked, answer))
    return exchange.answer_in_turns(
        broker.turns, questions, lambda each: _answer(broker, *each), lambda _: response
    )


HANDLER: Final = Handler(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, handle)


def _answer(broker: Broker, topic: str, asked: OffsetForLeaderPartition, answer: EpochEndOffset) -> None:
    try:
        partition = broker.replicas.partition(topic, asked.partition)
        log = partition.leader_log(asked.current_leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
        return
    end = log.end_offset_for_epoch(asked.leader_epoch)
    if end is not None:
        answer.leader_epoch = end.epoch
        answer.end_offset = end.end_offset
