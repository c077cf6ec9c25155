"""Settings of a group that override the broker's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.broker_settings import broker_settings
from barnabas.errors import InvalidConfig
from barnabas.groups.settings import GroupOverrides

# With the settings of the broker that are their defaults.
GROUP_SETTINGS: Final = {
    "consumer.assignment.interval.ms": "group.consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms": "group.consumer.session.timeout.ms",
}


def group_overrides(config: BrokerConfig, properties: Mapping[str, str]) -> GroupOverrides:
    """Raises InvalidConfig for unknown settings, and for values that the broker does not allow."""
    values: dict[str, int] = {}
    for name, text in properties.items():
        if name not in GROUP_SETTINGS:
            raise InvalidConfig(f"Unknown group config name: {name}")
        values[name] = _checked(config, name, text)
    heartbeat = "consumer.heartbeat.interval.ms"
    session = "consumer.session.timeout.ms"
    effective = {name: values.get(name, config.values[GROUP_SETTINGS[name]]) for name in (heartbeat, session)}
    interval_ms, timeout_ms = effective[heartbeat], effective[session]
    assert isinstance(interval_ms, int)
    assert isinstance(timeout_ms, int)
    if interval_ms >= timeout_ms:
        raise InvalidConfig(f"{session} must be greater than {heartbeat}")
    return GroupOverrides(
        session_timeout_ms=values.get(session),
        heartbeat_interval_ms=values.get(heartbeat),
        assignment_interval_ms=values.get("consumer.assignment.interval.ms"),
    )


def _checked(config: BrokerConfig, name: str, text: str) -> int:
    value = broker_settings()[GROUP_SETTINGS[name]].setting._replace(name=name).parse(text)
    assert isinstance(value, int)
    what = name.removeprefix("consumer.")
    for bound, is_allowed in (("min", int.__le__), ("max", int.__ge__)):
        limit_name = f"group.consumer.{bound}.{what}"
        limit = config.values[limit_name]
        assert isinstance(limit, int)
        if not is_allowed(limit, value):
            word = "greater" if bound == "min" else "less"
            raise InvalidConfig(f"{name} must be {word} than or equal to {limit_name}, which is {limit}")
    return value
