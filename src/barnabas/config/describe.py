"""The source of each value of a configuration, as clients see it when they describe a resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile
from typing import Final

from barnabas.config.broker_config import LISTENER_PREFIX, BrokerConfig, base_name
from barnabas.config.broker_settings import TOPIC_SYNONYMS, UpdateMode, broker_settings
from barnabas.config.definition import SettingType, to_text
from barnabas.config.log_config import TOPIC_SETTINGS, LogConfig


class ConfigSource(IntEnum):
    """Codes of the protocol."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


# Codes of the protocol; 0 is an unknown type.
TYPE_CODES: Final = {
    SettingType.BOOLEAN: 1,
    SettingType.STRING: 2,
    SettingType.INT: 3,
    SettingType.SHORT: 4,
    SettingType.LONG: 5,
    SettingType.DOUBLE: 6,
    SettingType.LIST: 7,
    SettingType.CLASS: 8,
    SettingType.PASSWORD: 9,
}
UNKNOWN_TYPE: Final = 0

# A setting, and those that fill in for it when it has no value. The first names itself.
_FALLBACKS: Final = {
    name: tuple(synonym.name for synonym in synonyms)
    for synonyms in TOPIC_SYNONYMS.values()
    if len(synonyms) > 1
    for name in (synonym.name for synonym in synonyms)
    if name != "log.flush.scheduler.interval.ms"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """The current value of a setting; `synonyms` are all possible values, by precedence. Omits passwords."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    type_code: int
    synonyms: tuple[ConfigSynonym, ...]


def describe_topic(broker: BrokerConfig, properties: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Every setting of a topic with these topic settings."""
    config = LogConfig.from_properties(properties, defaults=broker.log_defaults)
    for name, setting in TOPIC_SETTINGS.items():
        value = to_text(config.value_of(name))
        synonyms = []
        if name in properties:
            synonyms.append(ConfigSynonym(name=name, value=value, source=ConfigSource.TOPIC_CONFIG))
        if name in TOPIC_SYNONYMS:
            synonyms += _broker_synonyms(broker, TOPIC_SYNONYMS[name][0].name)
        yield ConfigEntry(
            name=name,
            value=value,
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
            read_only=False,
            is_sensitive=False,
            type_code=TYPE_CODES[setting.type],
            synonyms=tuple(synonyms),
        )


def describe_broker(broker: BrokerConfig) -> Iterator[ConfigEntry]:
    """Every public setting of this broker, and what its file has besides."""
    table = broker_settings()
    for name, row in table.items():
        if not row.internal:
            yield describe_broker_setting(broker, name)
    for name in {**broker.static, **broker.dynamic_default, **broker.dynamic_broker}:
        if name not in table or table[name].internal:
            yield describe_broker_setting(broker, name)


def describe_cluster_default(broker: BrokerConfig) -> Iterator[ConfigEntry]:
    """The settings at run time for all brokers of the cluster."""
    for name, text in broker.dynamic_default.items():
        sensitive = _is_sensitive(name)
        value = None if sensitive else text
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        yield ConfigEntry(
            name=name,
            value=value,
            source=source,
            read_only=_is_read_only(name),
            is_sensitive=sensitive,
            type_code=_type_code(name),
            synonyms=(ConfigSynonym(name=name, value=value, source=source),),
        )


def describe_broker_setting(broker: BrokerConfig, name: str) -> ConfigEntry:
    """One setting of this broker."""
    sensitive = _is_sensitive(name)
    synonyms = tuple(_broker_synonyms(broker, name))
    value = synonyms[0].value if synonyms else None
    return ConfigEntry(
        name=name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only=_is_read_only(name),
        is_sensitive=sensitive,
        type_code=_type_code(name),
        synonyms=synonyms,
    )


def _broker_synonyms(broker: BrokerConfig, name: str) -> list[ConfigSynonym]:
    """All values for a broker setting by strength, from the first that it has under its own name.

    So log.retention.hours, set alone, does not show as the source of retention.ms: Kafka answers so too.
    """
    names = _FALLBACKS.get(name, (name,))
    if name.startswith(LISTENER_PREFIX):
        names = (name, base_name(name))
    sensitive = _is_sensitive(name)
    found = [
        ConfigSynonym(name=each, value=None if sensitive else texts[each], source=source)
        for texts, source in (
            (broker.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (broker.static, ConfigSource.STATIC_BROKER_CONFIG),
        )
        for each in names
        if each in texts
    ]
    table = broker_settings()
    for each in names:
        default = to_text(table[each].setting.default) if each in table else None
        if default is not None:
            value = None if sensitive else default
            found.append(ConfigSynonym(name=each, value=value, source=ConfigSource.DEFAULT_CONFIG))
    return list(dropwhile(lambda synonym: synonym.name != name, found))


def _is_sensitive(name: str) -> bool:
    """An unknown setting might be a password."""
    row = broker_settings().get(base_name(name))
    return row is None or row.is_sensitive


def _is_read_only(name: str) -> bool:
    row = broker_settings().get(name)
    return row is None or row.update_mode is UpdateMode.READ_ONLY


def _type_code(name: str) -> int:
    row = broker_settings().get(base_name(name))
    return UNKNOWN_TYPE if row is None else TYPE_CODES[row.setting.type]
