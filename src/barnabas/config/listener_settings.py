"""The settings of one listener: its own (`listener.name.NAME.…`), and otherwise the broker's."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.config.broker_config import LISTENER_PREFIX, BrokerConfig
from barnabas.config.broker_settings import broker_settings
from barnabas.config.definition import SettingValue

JAAS: str = "sasl.jaas.config"


class ListenerSettings:
    """Settings of a listener may change at run time: take a new object from the new configuration."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self.config = config
        self.listener = listener
        self.prefix = f"{LISTENER_PREFIX}{listener.lower()}."

    def __getitem__(self, name: str) -> SettingValue:
        text = self._own(self.prefix + name)
        return self.config.values[name] if text is None else broker_settings()[name].parse(text)

    def text(self, name: str) -> str | None:
        value = self[name]
        return None if value is None else str(value)

    def integer(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int)
        return value

    def words(self, name: str) -> tuple[str, ...]:
        value = self[name]
        return value if isinstance(value, tuple) else ()

    def spelled(self, name: str) -> str:
        """The name of the setting as the file has it, for an error message."""
        return self.prefix + name if self._own(self.prefix + name) is not None else name

    def jaas(self, mechanism: str) -> str | None:
        return self._own(self.jaas_name(mechanism))

    def of_mechanism(self, mechanism: str, name: str) -> str | None:
        """A setting that the listener has for a mechanism, as text; otherwise its own or the broker's."""
        own = self._own(f"{self.prefix}{mechanism.lower()}.{name}")
        return self.text(name) if own is None else own

    def integer_of_mechanism(self, mechanism: str, name: str) -> int:
        own = self._own(f"{self.prefix}{mechanism.lower()}.{name}")
        value = self[name] if own is None else broker_settings()[name].parse(own)
        assert isinstance(value, int)
        return value

    def jaas_name(self, mechanism: str) -> str:
        return f"{self.prefix}{mechanism.lower()}.{JAAS}"

    def own_prefix(self, beginning: str) -> str:
        """The prefix of the listener if it has settings of its own that begin so, for error messages."""
        own = self.prefix + beginning
        sources = (self.config.dynamic_broker, self.config.dynamic_default, self.config.static)
        return self.prefix if any(name.startswith(own) for source in sources for name in source) else ""

    def has_own(self, name: str) -> bool:
        return self._own(self.prefix + name) is not None

    def _own(self, name: str) -> str | None:
        config = self.config
        sources: tuple[Mapping[str, str], ...] = (
            config.dynamic_broker,
            config.dynamic_default,
            config.static,
        )
        for source in sources:
            if name in source:
                return source[name]
        return None
