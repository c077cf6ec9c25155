"""CreatePartitions, versions 0 to 3: adds partitions to topics. The count is the total of a topic.

- From version 3 on a client above its mutation quota is refused.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.mutation_quota import MutationQuota
from barnabas.broker.handlers.topics.pieces import change_in_pieces
from barnabas.broker.requests.deadlines import OPENING_WAIT_S, within
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.coordination.metadata.image import MetadataImage, TopicImage
from barnabas.coordination.planning.topic_creation import NewPartitions
from barnabas.errors import NONE, KafkaError
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

_FIRST_VERSION_WITH_QUOTA_ERROR: Final = 3


async def handle(
    broker: Broker, exchange: AnyExchange, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    quota = MutationQuota(broker, exchange, strict_since=_FIRST_VERSION_WITH_QUOTA_ERROR)
    results: list[TopicImage | KafkaError]
    try:
        creation = change_in_pieces(
            broker.turns,
            request.topics,
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
        results = [error] * len(request.topics)
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
        for asked, result in zip(request.topics, results, strict=True)
    }
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
