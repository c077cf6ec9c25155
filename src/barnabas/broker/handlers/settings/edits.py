"""The effect of a change on the settings of a topic, a broker, a group or a subscription to client metrics.

An edit is computed from the current settings when its turn comes, and refused as a whole if anything in it is wrong.
For brokers Kafka says INVALID_REQUEST and not INVALID_CONFIG, and so do we.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple

from barnabas.broker.broker import Broker
from barnabas.broker.settings.group_configs import GROUP_SETTINGS, group_overrides
from barnabas.broker.settings.resources import ResourceType
from barnabas.broker.settings.stored_passwords import encoded, usable
from barnabas.broker.telemetry.configs import CLIENT_METRICS_SETTINGS, parse_subscription
from barnabas.config.broker_config import BrokerConfig, base_name, validate_dynamic
from barnabas.config.broker_settings import broker_settings
from barnabas.config.definition import Setting, SettingType, to_text
from barnabas.config.listeners import SecurityProtocol
from barnabas.config.log_config import TOPIC_SETTINGS, LogConfig
from barnabas.config.security_check import is_security_setting
from barnabas.coordination.planning.topic_creation import check_topic_config
from barnabas.coordination.writing.cluster_writer import Edit
from barnabas.errors import InvalidConfig, InvalidRequest

# A listener has its own keys and certificates, and only those can be replaced while it listens.
_LISTENER_SETTINGS: Final = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")
# Kafka opens and closes listeners at run time; here they do not change after the start.
_FIXED_SETTINGS: Final = frozenset({"listeners", "listener.security.protocol.map"})
# A change at most doubles or halves a pool of threads.
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
    resource_type: int
    name: str
    changes: tuple[Change, ...]
    # Whether settings that the changes do not name are removed.
    replaces: bool

    @property
    def key(self) -> tuple[int, str]:
        return self.resource_type, self.name


def edit_of(broker: Broker, resource: ResourceChange) -> Edit[str]:
    """For a resource whose settings are stored."""
    match ResourceType(resource.resource_type):
        case ResourceType.TOPIC:
            return partial(_edit, resource, TOPIC_SETTINGS.get, partial(_check_topic, broker))
        case ResourceType.GROUP:
            return partial(_edit, resource, _group_setting, partial(_check_group, broker))
        case ResourceType.CLIENT_METRICS:
            return partial(_edit, resource, CLIENT_METRICS_SETTINGS.get, parse_subscription)
        case ResourceType.BROKER:
            return partial(_edit_broker, broker, resource)
    raise InvalidRequest(f"Unknown resource type {resource.resource_type}")


def _edit(
    resource: ResourceChange,
    setting_of: Callable[[str], Setting | None],
    check: Callable[[Mapping[str, str]], object],
    current: Mapping[str, str],
) -> Mapping[str, str]:
    no_list = "Can't {operation.name} to key {name} because its type is not LIST."
    after = _changed(resource, current, setting_of, no_list)
    check(after)
    return after


def _check_topic(broker: Broker, properties: Mapping[str, str]) -> None:
    check_topic_config(LogConfig.from_properties(properties, defaults=broker.config.log_defaults))


def _check_group(broker: Broker, properties: Mapping[str, str]) -> None:
    group_overrides(broker.config, properties)


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
    named = {change.name for change in resource.changes}
    changed_names = named | (current.keys() - after.keys())
    stored, given = (
        {name: text for name, text in after.items() if (name in named) == is_given}
        for is_given in (False, True)
    )
    try:
        for name in given:
            if name.startswith(_LISTENER_SETTINGS):
                raise InvalidConfig(
                    "These security configs can be dynamically updated only per-listener using the listener prefix:"
                    f" [{name}]"
                )
            if name in _FIXED_SETTINGS:
                raise InvalidConfig(f"Cannot update these configs dynamically: [{name}]")
        validate_dynamic(given, per_broker=per_broker)
        after = {**usable(config, stored, per_broker=per_broker), **given}
        changed = config.with_dynamic(
            default=config.dynamic_default if per_broker else after,
            broker=after if per_broker else config.dynamic_broker,
        )
        _check_threads(config, changed)
        if any(is_security_setting(base_name(name)) for name in changed_names):
            _check_security(config, changed)
        return {**stored, **encoded(config, given)}
    except InvalidConfig as error:
        raise InvalidRequest(str(error)) from error


def _check_security(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raises InvalidConfig. What cannot be used now would not be used after a restart either."""
    if all(each.security_protocol is SecurityProtocol.PLAINTEXT for each in before.endpoints):
        return
    from barnabas.broker.authentication.certificate_changes import check_certificate_changes
    from barnabas.broker.authentication.issuer_keys import IssuerKeys
    from barnabas.broker.authentication.listener_security import check_sasl

    check_certificate_changes(before, after)
    keys = IssuerKeys()
    keys.may_fetch = False
    for each in after.endpoints:
        check_sasl(after, each, keys)
    if after.is_in_cluster:
        from barnabas.broker.authentication.inter_broker import inter_broker_security

        inter_broker_security(after)


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
    """The settings after the change. `no_list` is the error for list operations on other settings."""
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
