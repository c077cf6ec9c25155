"""ElectLeaders, versions 0 to 2.

- Version 0 elects preferred leaders; from version 1 on the client names the type of election, and the response has
  an error for the whole request.
- Null asks for all partitions. Then the response leaves out partitions that needed no election.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.results import code_of, message_of
from barnabas.broker.handlers.topics.pieces import PIECE_SIZE
from barnabas.broker.requests.deadlines import within
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.coordination.planning.partition_changes import ElectionType
from barnabas.errors import NONE, ElectionNotNeeded, InvalidRequest, KafkaError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.elect_leaders_request import ElectLeadersRequest
from barnabas.protocol.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


async def handle(broker: Broker, exchange: AnyExchange, request: ElectLeadersRequest) -> ElectLeadersResponse:
    asked = request.topic_partitions
    if asked is None:
        wanted = [
            TopicPartition(topic.name, index)
            for topic in broker.image.topics.values()
            for index in range(len(topic.partitions))
        ]
    else:
        wanted = [TopicPartition(topic.topic, index) for topic in asked for index in topic.partitions]
    failure = None
    errors: dict[TopicPartition, KafkaError | None]
    try:
        election = _elect(broker, wanted, _election_type(request.election_type))
        errors = await within(request.timeout_ms, election)
    except KafkaError as error:
        failure = error
        # A request for all partitions has one error.
        wanted = [] if asked is None else wanted
        errors = dict.fromkeys(wanted, error)
    results: dict[str, ReplicaElectionResult] = {}
    for at in dict.fromkeys(wanted):
        result = errors[at]
        if asked is not None or not isinstance(result, ElectionNotNeeded):
            results.setdefault(at.topic, ReplicaElectionResult(topic=at.topic)).partition_result.append(
                PartitionResult(
                    partition_id=at.partition,
                    error_code=code_of(result),
                    error_message=message_of(result),
                )
            )
    return ElectLeadersResponse(
        error_code=NONE if failure is None or exchange.version == 0 else failure.code,
        replica_election_results=list(results.values()),
    )


def refuse(request: ElectLeadersRequest, error: KafkaError, version: int) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error.code if version > 0 else NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error.code, error_message=str(error))
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


HANDLER: Final = coroutine_handler(ElectLeadersRequest, ElectLeadersResponse, handle, refuse=refuse)


async def _elect(
    broker: Broker, wanted: Sequence[TopicPartition], election_type: ElectionType
) -> dict[TopicPartition, KafkaError | None]:
    """Elects leaders of some partitions at a time: the controller decides about all of them at once."""
    errors: dict[TopicPartition, KafkaError | None] = {}
    async for part in broker.turns.parts(wanted, PIECE_SIZE):
        errors.update(await broker.controller.elect_leaders(part, election_type))
    return errors


def _election_type(code: int) -> ElectionType:
    try:
        return ElectionType(code)
    except ValueError:
        raise InvalidRequest(f"Unknown election type {code}") from None
