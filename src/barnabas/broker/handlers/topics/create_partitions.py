"""CreatePartitions, versions 0 to 3: adds partitions to topics. The count is the total of a topic.

- A client needs ALTER on each topic.
- From version 3 on a client above its mutation quota is refused.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.mutation_quota import MutationQuota
from barnabas.broker.handlers.permissions import Permission
from barnabas.broker.handlers.topics.pieces import change_in_pieces
from barnabas.broker.requests.deadlines import OPENING_WAIT_S, within
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.coordination.metadata.image import MetadataImage, TopicImage
from barnabas.coordination.planning.topic_creation import NewPartitions
from barnabas.errors import NONE, KafkaError, TopicAuthorizationFailed
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from barnabas.security.acls import ALTER

_FIRST_VERSION_WITH_QUOTA_ERROR: Final = 3


async def handle(
    broker: Broker, exchange: AnyExchange, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    quota = MutationQuota(broker, exchange, strict_since=_FIRST_VERSION_WITH_QUOTA_ERROR)
    results: list[TopicImage | KafkaError]
    permission = Permission(broker, exchange, ALTER)
    counts = Counter(topic.name for topic in request.topics)
    # What is named twice is refused later.
    refused = {name for name, count in counts.items() if count == 1 and name not in permission}
    asked_for = [topic for topic in request.topics if topic.name not in refused]
    try:
        creation = change_in_pieces(
            broker.turns,
            asked_for,
            lambda topic: topic.name,
            lambda topic: topic.count - _partition_count(broker.image, topic.name),
            lambda topics: broker.controller.create_partitions(
                [_new_partitions(topic) for topic in topics],
                validate_only=request.validate_only,
                charge=quota.charge,
            ),
        )
        results = await within(request.timeout_ms, creation)
    except KafkaError as error:
        results = [error] * len(asked_for)
    if not request.validate_only:
        grown = [each.name for each in results if isinstance(each, TopicImage)]
        await broker.replicas.opened(grown, OPENING_WAIT_S)
    # A name that occurs twice is answered once.
    answers = {
        asked.name: CreatePartitionsTopicResult(
            name=asked.name, error_code=result.code, error_message=str(result)
        )
        if isinstance(result, KafkaError)
        else CreatePartitionsTopicResult(name=asked.name, error_code=NONE, error_message=None)
        for asked, result in zip(asked_for, results, strict=True)
    }
    code = TopicAuthorizationFailed.code
    for name in refused:
        answers[name] = CreatePartitionsTopicResult(name=name, error_code=code, error_message=None)
    return CreatePartitionsResponse(results=list(answers.values()))


HANDLER: Final = coroutine_handler(CreatePartitionsRequest, CreatePartitionsResponse, handle)


def _partition_count(image: MetadataImage, name: str) -> int:
    topic = image.topics.get(name)
    return 0 if topic is None else len(topic.partitions)


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        name=topic.name,
        num_partitions=topic.count,
        assignments=None if assignments is None else [each.broker_ids for each in assignments],
    )
