"""Subscriptions to client metrics (KIP-714): metrics, interval and matching clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barnabas.config.definition import Setting, SettingType
from barnabas.errors import InvalidConfig, InvalidRegularExpression, InvalidRequest

INTERVAL_DEFAULT_MS: Final = 300_000
_INTERVAL_MIN_MS: Final = 100
_INTERVAL_MAX_MS: Final = 3_600_000

CLIENT_METRICS_SETTINGS: Final = {
    setting.name: setting
    for setting in (
        Setting("interval.ms", SettingType.INT, INTERVAL_DEFAULT_MS),
        Setting("match", SettingType.LIST, ()),
        Setting("metrics", SettingType.LIST, ()),
    )
}
MATCH_KEYS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


class Subscription(NamedTuple):
    """Prefixes of metric names, `*` for all; and regular expressions that attributes of a client have to match."""

    metrics: frozenset[str]
    interval_ms: int
    patterns: Mapping[str, Any]

    def matches(self, client: Mapping[str, str]) -> bool:
        return all(pattern.fullmatch(client[key]) is not None for key, pattern in self.patterns.items())


def parse_subscription(properties: Mapping[str, str]) -> Subscription:
    """Raises InvalidRequest or InvalidConfig, with Kafka's words."""
    values: dict[str, Any] = {name: setting.default for name, setting in CLIENT_METRICS_SETTINGS.items()}
    for name, text in properties.items():
        setting = CLIENT_METRICS_SETTINGS.get(name)
        if setting is None:
            raise InvalidRequest(f"Unknown client metrics configuration: {name}")
        values[name] = setting.parse(text)
        if setting.type is SettingType.LIST and not all(values[name]):
            raise InvalidConfig(f"Configuration '{name}' values must not be empty.")
    interval_ms: int = values["interval.ms"]
    if not _INTERVAL_MIN_MS <= interval_ms <= _INTERVAL_MAX_MS:
        raise InvalidRequest(
            f"Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        )
    return Subscription(
        metrics=frozenset(values["metrics"]),
        interval_ms=interval_ms,
        patterns=dict(map(_pattern, values["match"])),
    )


def _pattern(text: str) -> tuple[str, Any]:
    key, equals, expression = text.partition("=")
    key, expression = key.strip(), expression.strip()
    if not equals or "=" in expression or not expression or key not in MATCH_KEYS:
        raise InvalidConfig(f"Illegal client matching pattern: {text}")
    # The module of groups is loaded with the first expression.
    from barnabas.groups.regex_resolution import compile_regex

    try:
        return key, compile_regex(expression)
    except InvalidRegularExpression:
        raise InvalidConfig(f"Illegal client matching pattern: {text}") from None
