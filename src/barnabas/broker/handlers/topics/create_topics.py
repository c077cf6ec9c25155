"""CreateTopics, versions 0 to 7.

- Counts of -1 ask for the broker's defaults (clients do so from version 4); with assignments both have to be -1.
- From version 1 on topics may be validated only, and an error has a message.
- From version 5 on the response has the counts and all settings of each topic, from version 7 on its id.
- A client needs CREATE on the cluster or the topic. Without DESCRIBE_CONFIGS on the topic it gets no settings.
- From version 6 on a client above its mutation quota is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.mutation_quota import MutationQuota
from barnabas.broker.handlers.permissions import Permission, denies
from barnabas.broker.handlers.topics.pieces import change_in_pieces
from barnabas.broker.requests.deadlines import OPENING_WAIT_S, within
from barnabas.broker.requests.exchange import Answer, AnyExchange, Exchange
from barnabas.broker.waiting.turns import AT_ONCE
from barnabas.config.describe import describe_topic
from barnabas.coordination.planning.topic_creation import NewTopic, Planned, PlannedTopic
from barnabas.errors import KafkaError, TopicAuthorizationFailed
from barnabas.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from barnabas.security.acls import CREATE, DESCRIBE_CONFIGS

_FIRST_VERSION_WITH_CONFIGS: Final = 5
_FIRST_VERSION_WITH_QUOTA_ERROR: Final = 6


async def handle(
    broker: Broker, exchange: Exchange[CreateTopicsResponse], request: CreateTopicsRequest
) -> Answer[CreateTopicsResponse]:
    quota = MutationQuota(broker, exchange, strict_since=_FIRST_VERSION_WITH_QUOTA_ERROR)
    results: list[Planned]
    topics, refused = _take_permitted(broker, exchange, request)
    try:
        creation = change_in_pieces(
            broker.turns,
            topics,
            lambda topic: topic.name,
            _partition_count,
            lambda topics: broker.controller.create_topics(
                [_new_topic(topic) for topic in topics],
                validate_only=request.validate_only,
                charge=quota.charge,
            ),
        )
        results = await within(request.timeout_ms, creation)
    except KafkaError as error:
        results = [error] * len(topics)
    created = (
        [] if request.validate_only else [each.topic for each in results if isinstance(each, PlannedTopic)]
    )
    # A client may use the topic as soon as it has the response.
    await broker.replicas.opened([topic.name for topic in created], OPENING_WAIT_S)
    configs: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}
    shows_configs = Permission(broker, exchange, DESCRIBE_CONFIGS, is_logged=False)

    def answer(named: tuple[str, Planned]) -> CreatableTopicResult:
        name, result = named
        if isinstance(result, KafkaError):
            return CreatableTopicResult(name=name, error_code=result.code, error_message=str(result))
        if name not in shows_configs:
            code = TopicAuthorizationFailed.code
            return CreatableTopicResult(
                name=name, topic_id=result.topic.id, error_message=None, topic_config_error_code=code
            )
        answer = CreatableTopicResult(
            name=name,
            topic_id=result.topic.id,
            error_message=None,
            num_partitions=len(result.topic.partitions),
            replication_factor=len(result.topic.partitions[0].replicas),
        )
        if exchange.version >= _FIRST_VERSION_WITH_CONFIGS:
            # Many topics of one request usually have the same settings.
            key = frozenset(result.configs.items())
            if key not in configs:
                configs[key] = _configs(broker, result.configs)
            answer.configs = configs[key]
        return answer

    # A name that occurs twice is answered once.
    named = {asked.name: result for asked, result in zip(topics, results, strict=True)}
    named.update(dict.fromkeys(refused, TopicAuthorizationFailed("Authorization failed.")))
    answers = await broker.turns.map(list(named.items()), answer, list)
    response = CreateTopicsResponse(topics=answers)
    if len(answers) <= AT_ONCE:
        return response
    return await exchange.respond_from(broker.background, response, answers)


HANDLER: Final = coroutine_handler(CreateTopicsRequest, CreateTopicsResponse, handle)


def _take_permitted(
    broker: Broker, exchange: AnyExchange, request: CreateTopicsRequest
) -> tuple[list[CreatableTopic], list[str]]:
    """The topics that the client may create, and the names of the others. What is named twice is refused later."""
    if not denies(broker, exchange, CREATE, is_logged=False):
        return request.topics, []
    counts = Counter(topic.name for topic in request.topics)
    permission = Permission(broker, exchange, CREATE)
    refused = [name for name, count in counts.items() if count == 1 and name not in permission]
    denied = set(refused)
    return [topic for topic in request.topics if topic.name not in denied], refused


def _partition_count(topic: CreatableTopic) -> int:
    return max(topic.num_partitions, len(topic.assignments))


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs={config.name: config.value for config in topic.configs},
    )


def _configs(broker: Broker, properties: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    entries = sorted(describe_topic(broker.config, properties), key=lambda entry: entry.name)
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in entries
    ]
