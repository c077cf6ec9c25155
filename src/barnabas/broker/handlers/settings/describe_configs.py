"""DescribeConfigs, versions 0 to 4: settings with their values and the sources of the values.

- Version 0 only says whether a value is the default. Version 1 has its source and, on request, the other values that
  apply without it (synonyms). Version 3 has its type and, on request, its meaning and the allowed values.
- Null or no keys ask for all settings of a resource. Unknown names are left out.
- The broker with the empty name has the settings that were made at run time for all brokers.
- A client needs DESCRIBE_CONFIGS on the topic or the group, for other resources on the cluster.
- A resource of an unknown type makes the whole request invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.settings.config_access import authorize_configs
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.broker.settings.group_configs import GROUP_SETTINGS
from barnabas.broker.settings.loggers import logger_levels
from barnabas.broker.settings.resources import ResourceType, check_broker_name
from barnabas.broker.telemetry.configs import CLIENT_METRICS_SETTINGS
from barnabas.config.broker_settings import broker_settings
from barnabas.config.definition import to_text
from barnabas.config.describe import (
    TYPE_CODES,
    UNKNOWN_TYPE,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_broker_setting,
    describe_cluster_default,
    describe_topic,
)
from barnabas.config.log_config import TOPIC_SETTINGS
from barnabas.coordination.metadata.store_errors import as_kafka_error
from barnabas.coordination.metadata.topic_names import check_topic_name
from barnabas.coordination.store.contract import StoreError
from barnabas.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from barnabas.protocol.messages.describe_configs_request import DescribeConfigsRequest
from barnabas.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from barnabas.security.acls import DESCRIBE_CONFIGS

# A resource has up to hundreds of settings, and a tool asks for all topics at once: other requests run in between.
RESOURCES_AT_ONCE: Final = 10

_FIRST_VERSION_WITH_SOURCES: Final = 1


async def handle(
    broker: Broker, exchange: Exchange[DescribeConfigsResponse], request: DescribeConfigsRequest
) -> Answer[DescribeConfigsResponse]:
    for each in request.resources:
        if ResourceType(each.resource_type) is ResourceType.UNKNOWN:
            return _refused(
                request,
                InvalidRequest(f"Unexpected resource type UNKNOWN for resource {each.resource_name}"),
            )
    # A resource that is named twice is described once, so that a small request has no large response.
    wanted = dict.fromkeys(
        (each.resource_type, each.resource_name, tuple(each.configuration_keys or ()))
        for each in request.resources
    )
    try:
        await broker.control.learn_settings(
            name for resource_type, name, _ in wanted if resource_type == ResourceType.TOPIC
        )
    except StoreError as error:
        return _refused(request, as_kafka_error(error))
    response = DescribeConfigsResponse(results=[])
    described = _Described(broker)
    for number, (resource_type, name, keys) in enumerate(wanted, start=1):
        try:
            authorize_configs(broker, exchange, DESCRIBE_CONFIGS, resource_type, name)
        except KafkaError as error:
            response.results.append(_failure(resource_type, name, error))
            continue
        response.results.append(_result(described, request, resource_type, name, frozenset(keys)))
        if number % RESOURCES_AT_ONCE == 0:
            await broker.turns.next()
    if exchange.version < _FIRST_VERSION_WITH_SOURCES:
        for result in response.results:
            for config in result.configs:
                config.is_default = config.config_source == ConfigSource.DEFAULT_CONFIG
    if len(wanted) > RESOURCES_AT_ONCE:
        return await exchange.respond_from(broker.background, response, response.results)
    return response


HANDLER: Final = coroutine_handler(DescribeConfigsRequest, DescribeConfigsResponse, handle)


class _Described:
    """The settings of resources. Keeps those of the last resource."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._last: tuple[int, str] | None = None
        self._entries: list[ConfigEntry] = []

    def entries(self, resource_type: int, name: str) -> list[ConfigEntry]:
        if self._last != (resource_type, name):
            self._entries = list(_DESCRIBERS[ResourceType(resource_type)](self._broker, name))
            self._last = (resource_type, name)
        return self._entries


def _result(
    described: _Described,
    request: DescribeConfigsRequest,
    resource_type: int,
    name: str,
    keys: frozenset[str],
) -> DescribeConfigsResult:
    try:
        entries = described.entries(resource_type, name)
        configs = [_answer(entry, request) for entry in entries if not keys or entry.name in keys]
    except KafkaError as error:
        return _failure(resource_type, name, error)
    return DescribeConfigsResult(
        error_message=None, resource_type=resource_type, resource_name=name, configs=configs
    )


def _refused(request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    results = [_failure(each.resource_type, each.resource_name, error) for each in request.resources]
    return DescribeConfigsResponse(results=results)


def _failure(resource_type: int, name: str, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code, error_message=str(error), resource_type=resource_type, resource_name=name
    )


def _topic(broker: Broker, name: str) -> Iterable[ConfigEntry]:
    check_topic_name(name)
    image = broker.image
    if name not in image.topics:
        raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    return describe_topic(broker.config, image.topic_config(name))


def _broker(broker: Broker, name: str) -> Iterable[ConfigEntry]:
    if not name:
        return describe_cluster_default(broker.config)
    check_broker_name(
        name,
        broker.replicas.broker_id,
        noun="Broker",
        unexpected="Unexpected broker id, expected {} or empty string, but received {}",
    )
    return describe_broker(broker.config)


def _broker_logger(broker: Broker, name: str) -> Iterable[ConfigEntry]:
    if not name:
        raise InvalidRequest("Broker id must not be empty")
    check_broker_name(
        name,
        broker.replicas.broker_id,
        noun="Broker",
        unexpected="Unexpected broker id, expected {} but received {}",
    )
    return [
        ConfigEntry(
            name=logger,
            value=level,
            source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            read_only=False,
            is_sensitive=False,
            type_code=UNKNOWN_TYPE,
            synonyms=(),
        )
        for logger, level in logger_levels().items()
    ]


def _client_metrics(broker: Broker, name: str) -> Iterable[ConfigEntry]:
    if not name:
        raise InvalidRequest("Client metrics subscription name must not be empty")
    own = broker.image.client_metrics.get(name, {})
    return [_client_metrics_entry(setting, own.get(setting)) for setting in CLIENT_METRICS_SETTINGS]


def _client_metrics_entry(name: str, value: str | None) -> ConfigEntry:
    setting = CLIENT_METRICS_SETTINGS[name]
    source = ConfigSource.CLIENT_METRICS_CONFIG
    return ConfigEntry(
        name=name,
        value=to_text(setting.default) if value is None else value,
        source=ConfigSource.DEFAULT_CONFIG if value is None else source,
        read_only=False,
        is_sensitive=False,
        type_code=TYPE_CODES[setting.type],
        synonyms=() if value is None else (ConfigSynonym(name=name, value=value, source=source),),
    )


def _group(broker: Broker, name: str) -> Iterable[ConfigEntry]:
    if not name:
        raise InvalidRequest("Group name must not be empty")
    own = broker.image.group_configs.get(name, {})
    return [_group_entry(broker, setting, own.get(setting)) for setting in GROUP_SETTINGS]


def _group_entry(broker: Broker, name: str, value: str | None) -> ConfigEntry:
    filling_in = describe_broker_setting(broker.config, GROUP_SETTINGS[name])
    entry = replace(filling_in, name=name, read_only=False)
    if value is None:
        return entry
    source = ConfigSource.GROUP_CONFIG
    synonym = ConfigSynonym(name=name, value=value, source=source)
    return replace(entry, value=value, source=source, synonyms=(synonym, *entry.synonyms))


_DESCRIBERS: Final[dict[ResourceType, Callable[[Broker, str], Iterable[ConfigEntry]]]] = {
    ResourceType.TOPIC: _topic,
    ResourceType.BROKER: _broker,
    ResourceType.BROKER_LOGGER: _broker_logger,
    ResourceType.CLIENT_METRICS: _client_metrics,
    ResourceType.GROUP: _group,
}


def _answer(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in entry.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=entry.type_code,
        documentation=_documentation(entry.name) if request.include_documentation else None,
    )


def _documentation(name: str) -> str | None:
    """The meaning of the setting, and the values that it takes."""
    # Few clients ask for it, and the meanings are a file of their own.
    from barnabas.config.meanings import broker_meaning, group_meaning, topic_meaning

    row = broker_settings().get(GROUP_SETTINGS.get(name, name))
    setting = TOPIC_SETTINGS.get(name) or (row and row.setting)
    if setting is None:
        return None
    meaning = topic_meaning(name) or group_meaning(name) or broker_meaning(name)
    return f"{meaning} It takes {setting.describe_allowed()}."
