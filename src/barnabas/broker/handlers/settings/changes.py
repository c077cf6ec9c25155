"""Changes of settings that clients ask for, by AlterConfigs and IncrementalAlterConfigs.

A change is computed from the settings there are when its turn has come, and refused as a whole if anything in it is
wrong. For topics that is INVALID_CONFIG; for brokers Kafka says INVALID_REQUEST, and so do we.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple

from barnabas.broker.broker import Broker
from barnabas.broker.settings.group_configs import GROUP_SETTINGS, group_overrides
from barnabas.broker.settings.loggers import change_levels
from barnabas.broker.settings.resources import ResourceType, check_broker_name
from barnabas.broker.telemetry.configs import CLIENT_METRICS_SETTINGS, parse_subscription
from barnabas.config.broker_config import BrokerConfig, validate_dynamic
from barnabas.config.broker_settings import broker_settings
from barnabas.config.definition import Setting, SettingType, to_text
from barnabas.config.log_config import TOPIC_SETTINGS, LogConfig
from barnabas.coordination.metadata.topic_names import check_topic_name
from barnabas.coordination.planning.topic_creation import check_topic_config
from barnabas.coordination.writing.cluster_writer import Edit
from barnabas.errors import InvalidConfig, InvalidRequest, KafkaError

# A listener has its own keys and certificates, and only those can be replaced while it listens.
_LISTENER_SETTINGS: Final = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")
# Kafka opens and closes listeners at run time; here they are those of the start.
_FIXED_SETTINGS: Final = frozenset({"listeners", "listener.security.protocol.map"})
# Pools of threads grow and shrink by half or double at once.
_THREADS: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


class Operation(IntEnum):
    """Codes of the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Change(NamedTuple):
    name: str
    operation: int
    value: str | None


class ResourceChange(NamedTuple):
    """`replaces`: settings that the changes do not name are removed."""

    resource_type: int
    name: str
    changes: tuple[Change, ...]
    replaces: bool


async def alter_resources(
    broker: Broker, resources: Sequence[ResourceChange], *, validate_only: bool
) -> list[KafkaError | None]:
    """The error of each, in their order."""
    counts = Counter((each.resource_type, each.name) for each in resources)
    topics: dict[str, Edit[str]] = {}
    brokers: dict[str, Edit[str]] = {}
    groups: dict[str, Edit[str]] = {}
    client_metrics: dict[str, Edit[str]] = {}
    results: dict[tuple[int, str], KafkaError | None] = {}
    for each in resources:
        try:
            if counts[each.resource_type, each.name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            _check_form(each)
            match ResourceType(each.resource_type):
                case ResourceType.TOPIC:
                    _check_topic(each.name)
                    topics[each.name] = partial(_edit_topic, broker, each)
                case ResourceType.BROKER:
                    if each.name:
                        check_broker_name(
                            each.name,
                            broker.replicas.broker_id,
                            noun="Node",
                            unexpected="Unexpected broker id, expected {}, but received {}",
                        )
                    brokers[each.name] = partial(_edit_broker, broker, each)
                case ResourceType.BROKER_LOGGER if not each.replaces:
                    check_broker_name(
                        each.name,
                        broker.replicas.broker_id,
                        noun="Node",
                        unexpected="Unexpected node id. Expected {}, but received {}",
                    )
                    change_levels(_levels(each), validate_only=validate_only)
                case ResourceType.GROUP:
                    if not each.name:
                        raise InvalidRequest("Default group resources are not allowed.")
                    groups[each.name] = partial(_edit_group, broker, each)
                case ResourceType.CLIENT_METRICS:
                    if not each.name:
                        raise InvalidRequest("Subscription name can't be empty")
                    client_metrics[each.name] = partial(_edit_client_metrics, each)
                case _:
                    raise InvalidRequest(f"Unknown resource type {each.resource_type}")
        except KafkaError as error:
            results[each.resource_type, each.name] = error
    writer = broker.writer
    for resource_type, alter, edits in (
        (ResourceType.TOPIC, writer.alter_topic_configs, topics),
        (ResourceType.BROKER, writer.alter_broker_configs, brokers),
        (ResourceType.GROUP, writer.alter_group_configs, groups),
        (ResourceType.CLIENT_METRICS, writer.alter_client_metrics, client_metrics),
    ):
        if edits:
            try:
                altered = await alter(edits, validate_only=validate_only)
            except KafkaError as error:
                altered = dict.fromkeys(edits, error)
            results.update(((resource_type, name), result) for name, result in altered.items())
    return [results.get((each.resource_type, each.name)) for each in resources]


def _check_form(resource: ResourceChange) -> None:
    names = [change.name for change in resource.changes]
    if len(set(names)) < len(names):
        raise InvalidRequest("Error due to duplicate config keys")
    for change in resource.changes:
        if change.operation not in Operation._value2member_map_:
            raise InvalidRequest(f"Unknown operations type {change.operation}")
    nulls = [
        change.name
        for change in resource.changes
        if change.value is None and change.operation != Operation.DELETE
    ]
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {', '.join(nulls)}")


def _check_topic(name: str) -> None:
    if not name:
        raise InvalidRequest("Default topic resources are not allowed.")
    check_topic_name(name)


def _edit_topic(broker: Broker, resource: ResourceChange, current: Mapping[str, str]) -> Mapping[str, str]:
    after = _changed(
        resource,
        current,
        TOPIC_SETTINGS.get,
        "Can't {operation.name} to key {name} because its type is not LIST.",
    )
    check_topic_config(LogConfig.from_properties(after, defaults=broker.config.log_defaults))
    return after


def _edit_group(broker: Broker, resource: ResourceChange, current: Mapping[str, str]) -> Mapping[str, str]:
    after = _changed(
        resource,
        current,
        _group_setting,
        "Can't {operation.name} to key {name} because its type is not LIST.",
    )
    group_overrides(broker.config, after)
    return after


def _edit_client_metrics(resource: ResourceChange, current: Mapping[str, str]) -> Mapping[str, str]:
    after = _changed(
        resource,
        current,
        CLIENT_METRICS_SETTINGS.get,
        "Can't {operation.name} to key {name} because its type is not LIST.",
    )
    parse_subscription(after)
    return after


def _group_setting(name: str) -> Setting | None:
    return _broker_setting(GROUP_SETTINGS.get(name, ""))


def _edit_broker(broker: Broker, resource: ResourceChange, current: Mapping[str, str]) -> Mapping[str, str]:
    after = _changed(
        resource,
        current,
        _known_broker_setting,
        "Config value {operation.word} is not allowed for config key: {name}",
    )
    per_broker = bool(resource.name)
    config = broker.config
    try:
        for name in after:
            if name.startswith(_LISTENER_SETTINGS):
                raise InvalidConfig(
                    "These security configs can be dynamically updated only per-listener using the listener prefix:"
                    f" [{name}]"
                )
            if name in _FIXED_SETTINGS:
                raise InvalidConfig(f"Cannot update these configs dynamically: [{name}]")
        validate_dynamic(after, per_broker=per_broker)
        changed = config.with_dynamic(
            default=config.dynamic_default if per_broker else after,
            broker=after if per_broker else config.dynamic_broker,
        )
        _check_threads(config, changed)
    except InvalidConfig as error:
        raise InvalidRequest(str(error)) from error
    return after


def _check_threads(before: BrokerConfig, after: BrokerConfig) -> None:
    for name in _THREADS:
        old, new = before.values[name], after.values[name]
        assert isinstance(old, int)
        assert isinstance(new, int)
        if new == old:
            continue
        what = f"Dynamic thread count update validation failed for {name}={new}"
        if new < 1:
            raise InvalidConfig(f"{what}, value should be at least 1")
        if new < old // 2:
            raise InvalidConfig(f"{what}, value should be at least half the current value {old}")
        if new > old * 2:
            raise InvalidConfig(f"{what}, value should not be greater than double the current value {old}")


def _broker_setting(name: str) -> Setting | None:
    row = broker_settings().get(name)
    return None if row is None else row.setting


def _known_broker_setting(name: str) -> Setting:
    setting = _broker_setting(name)
    if setting is None:
        raise InvalidConfig(f"Unknown config name: {name}")
    return setting


def _changed(
    resource: ResourceChange,
    current: Mapping[str, str],
    setting_of: Callable[[str], Setting | None],
    no_list: str,
) -> dict[str, str]:
    """The settings after the change; `no_list` says that one which is no list has nothing to add or take away."""
    after = {} if resource.replaces else dict(current)
    for name, operation, value in resource.changes:
        if operation == Operation.DELETE:
            after.pop(name, None)
            continue
        assert value is not None
        if operation == Operation.SET:
            after[name] = value
            continue
        setting = setting_of(name)
        if setting is None or setting.type is not SettingType.LIST:
            raise InvalidConfig(no_list.format(operation=Operation(operation), name=name))
        text = after[name] if name in after else to_text(setting.default) or ""
        items = [item for item in text.split(",") if item]
        for item in value.split(","):
            if operation == Operation.SUBTRACT:
                if item in items:
                    items.remove(item)
            elif item not in items:
                items.append(item)
        after[name] = ",".join(items)
    return after


def _levels(resource: ResourceChange) -> dict[str, str | None]:
    levels: dict[str, str | None] = {}
    for name, operation, value in resource.changes:
        if operation in (Operation.APPEND, Operation.SUBTRACT):
            raise InvalidRequest(
                f"{Operation(operation).name} operation is not allowed for the BROKER_LOGGER resource"
            )
        levels[name] = None if operation == Operation.DELETE else value
    return levels
