"""DeleteTopics, versions 0 to 6.

- Up to version 5 topics are named; from version 6 each is given by its name or by its id.
- A topic that is named twice is not deleted: INVALID_REQUEST.
- With `delete.topic.enable=false` the error is TOPIC_DELETION_DISABLED from version 3 on, and INVALID_REQUEST before.
- A client needs DELETE on each topic, or on the cluster. It learns nothing of topics that it may not describe.
- From version 5 on a client above its mutation quota is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.mutation_quota import MutationQuota
from barnabas.broker.handlers.permissions import Permission, denies
from barnabas.broker.handlers.results import code_of, message_of
from barnabas.broker.handlers.topics.pieces import DELETION_SIZE, change_in_pieces
from barnabas.broker.requests.deadlines import within
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.coordination.metadata.image import TopicImage
from barnabas.errors import (
    InvalidRequest,
    KafkaError,
    NotController,
    TopicAuthorizationFailed,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.protocol.message import ZERO_UUID, Uuid
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest
from barnabas.protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from barnabas.security.acls import DELETE, DESCRIBE

_FIRST_VERSION_WITH_DELETION_DISABLED: Final = 3
_FIRST_VERSION_WITH_QUOTA_ERROR: Final = 5


async def handle(broker: Broker, exchange: AnyExchange, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if not broker.controller.is_active:
        # Whether the topics exist is for the controller to say.
        return _refused(request, NotController("This is not the correct controller for this cluster."))
    if not broker.config.delete_topic_enable:
        tells = exchange.version >= _FIRST_VERSION_WITH_DELETION_DISABLED
        return _refused(
            request, (TopicDeletionDisabled if tells else InvalidRequest)("Topic deletion is disabled.")
        )
    refused, topics = _sort_out(broker, exchange, request)
    quota = MutationQuota(broker, exchange, strict_since=_FIRST_VERSION_WITH_QUOTA_ERROR)
    errors: list[KafkaError | None]
    try:
        by_id = {asked.topic_id for asked in request.topics if asked.name is None}
        # Other changes come first, and one of them may create the topic again.
        ids = {topic.name: topic.id for topic in topics if topic.id in by_id}

        async def delete(piece: Sequence[TopicImage]) -> list[KafkaError | None]:
            names = [topic.name for topic in piece]
            results = await broker.controller.delete_topics(names, ids=ids, charge=quota.charge)
            return [results[name] for name in names]

        deletion = change_in_pieces(
            broker.turns,
            topics,
            lambda topic: topic.name,
            lambda topic: len(topic.partitions),
            delete,
            size_max=DELETION_SIZE,
        )
        errors = await within(request.timeout_ms, deletion)
    except KafkaError as error:
        errors = [error] * len(topics)
    deleted = await broker.turns.map(
        list(zip(topics, errors, strict=True)),
        lambda each: _result(each[0].name, each[0].id, each[1]),
        list,
    )
    return DeleteTopicsResponse(responses=[*refused, *deleted])


HANDLER: Final = coroutine_handler(DeleteTopicsRequest, DeleteTopicsResponse, handle)


def _refused(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            *(_result(name, ZERO_UUID, error) for name in request.topic_names),
            *(_result(asked.name, asked.topic_id, error) for asked in request.topics),
        ]
    )


def _sort_out(
    broker: Broker, exchange: AnyExchange, request: DeleteTopicsRequest
) -> tuple[list[DeletableTopicResult], list[TopicImage]]:
    """The results for topics that cannot be deleted, and the topics to delete."""
    image = broker.image
    may_all = not denies(broker, exchange, DELETE, is_logged=False)
    deletable = Permission(broker, exchange, DELETE)
    describable = Permission(broker, exchange, DESCRIBE)
    denial = TopicAuthorizationFailed("Topic authorization failed.")
    refused = []
    names = Counter(request.topic_names)
    ids: Counter[Uuid] = Counter()
    for asked in request.topics:
        if asked.name is None and asked.topic_id == ZERO_UUID:
            refused.append(
                _result(None, ZERO_UUID, InvalidRequest("Neither topic name nor id were specified."))
            )
        elif asked.name is None:
            ids[asked.topic_id] += 1
        elif asked.topic_id == ZERO_UUID:
            names[asked.name] += 1
        else:
            error = InvalidRequest("You may not specify both topic name and topic id.")
            refused.append(_result(asked.name, asked.topic_id, error))
    found: dict[Uuid, TopicImage] = {}
    for topic_id, times in ids.items():
        topic = image.topic_by_id(topic_id)
        if times > 1:
            refused.append(_result(None, topic_id, InvalidRequest("Duplicate topic id.")))
        elif topic is None:
            refused.append(
                _result(None, topic_id, UnknownTopicId("This server does not host this topic ID."))
            )
        elif may_all or topic.name in deletable:
            found[topic_id] = topic
        else:
            refused.append(_result(topic.name if topic.name in describable else None, topic_id, denial))
    for name, times in names.items():
        topic = image.topics.get(name)
        if times > 1:
            refused.append(_result(name, ZERO_UUID, InvalidRequest("Duplicate topic name.")))
        elif not may_all and name not in describable:
            refused.append(_result(name, ZERO_UUID, denial))
        elif topic is None:
            missing = UnknownTopicOrPartition("This server does not host this topic-partition.")
            refused.append(_result(name, ZERO_UUID, missing))
        elif not may_all and name not in deletable:
            refused.append(_result(name, ZERO_UUID, denial))
        elif topic.id in ids:
            found.pop(topic.id, None)
            twice = InvalidRequest("The provided topic name maps to an ID that was already supplied.")
            refused.append(_result(name, topic.id, twice))
        else:
            found[topic.id] = topic
    return refused, list(found.values())


def _result(name: str | None, topic_id: Uuid, error: KafkaError | None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=code_of(error),
        error_message=message_of(error),
    )
