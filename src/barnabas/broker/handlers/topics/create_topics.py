"""CreateTopics, versions 0 to 7.

- Counts of -1 ask for the broker's defaults (clients do so from version 4); with assignments both have to be -1.
- From version 1 on topics may be validated only, and an error has a message.
- From version 5 on the response has the counts and all settings of each topic, from version 7 on its id.
- From version 6 on a client above its mutation quota is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.mutation_quota import MutationQuota
from barnabas.broker.requests.deadlines import OPENING_WAIT_S, within
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.config.describe import describe_topic
from barnabas.coordination.planning.topic_creation import NewTopic, Planned, PlannedTopic
from barnabas.errors import KafkaError
from barnabas.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)

_FIRST_VERSION_WITH_CONFIGS: Final = 5
_FIRST_VERSION_WITH_QUOTA_ERROR: Final = 6


async def handle(broker: Broker, exchange: AnyExchange, request: CreateTopicsRequest) -> CreateTopicsResponse:
    quota = MutationQuota(broker, exchange, strict_since=_FIRST_VERSION_WITH_QUOTA_ERROR)
    results: list[Planned]
    try:
        creation = broker.controller.create_topics(
            [_new_topic(topic) for topic in request.topics],
            validate_only=request.validate_only,
            charge=quota.charge,
        )
        results = await within(request.timeout_ms, creation)
    except KafkaError as error:
        results = [error] * len(request.topics)
    created = (
        [] if request.validate_only else [each.topic for each in results if isinstance(each, PlannedTopic)]
    )
    # A client may use the topic as soon as it has the response.
    await broker.replicas.opened([topic.name for topic in created], OPENING_WAIT_S)
    answers: dict[str, CreatableTopicResult] = {}
    configs: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}
    for asked, result in zip(request.topics, results, strict=True):
        if isinstance(result, KafkaError):
            # A name that occurs twice is answered once.
            answers[asked.name] = CreatableTopicResult(
                name=asked.name, error_code=result.code, error_message=str(result)
            )
            continue
        answer = answers[asked.name] = CreatableTopicResult(
            name=asked.name,
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
    return CreateTopicsResponse(topics=list(answers.values()))


HANDLER: Final = coroutine_handler(CreateTopicsRequest, CreateTopicsResponse, handle)


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
