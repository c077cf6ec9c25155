"""Applies changed settings to a running broker: those of topics, and its own that may change at run time.

All of it happens on the event loop, so that each log gets the settings of the latest image. A few topics are updated at
once, many in turns between requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.waiting.tasks import Tasks
from barnabas.config.broker_config import BrokerConfig, is_honoured
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.metadata.cache import MetadataCache, Stage
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.errors import InvalidConfig, KafkaError
from barnabas.log.manager.manager import LogManager
from barnabas.model import BrokerId, TopicPartition

log = logging.getLogger(__name__)

TOPICS_AT_ONCE: Final = 100
# A thread pool has its size for good.
_AT_START_ONLY: Final = frozenset({"background.threads"})


def effective_config(config: BrokerConfig, image: MetadataImage, broker_id: BrokerId) -> BrokerConfig:
    """The configuration including the settings at run time. Invalid settings are logged and ignored."""
    default = _usable(config, image.broker_config(""), per_broker=False)
    broker = _usable(config, image.broker_config(str(broker_id)), per_broker=True)
    if default == config.dynamic_default and broker == config.dynamic_broker:
        return config
    try:
        return config.with_dynamic(default=default, broker=broker)
    except InvalidConfig as error:
        log.error("Settings at run time conflict with the others and are ignored: %s", error)
        return config


def _usable(config: BrokerConfig, stored: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    if not stored:
        return {}
    from barnabas.broker.settings.stored_passwords import usable

    return usable(config, stored, per_broker=per_broker)


class ConfigUpdates:
    """`on_config` passes a new configuration to all parts that are neither logs nor read the live settings."""

    def __init__(
        self,
        cache: MetadataCache,
        settings: LiveSettings,
        replicas: ReplicaManager,
        manager: LogManager,
        tasks: Tasks,
        on_config: Callable[[BrokerConfig], None],
    ) -> None:
        self._cache = cache
        self._settings = settings
        self._replicas = replicas
        self._manager = manager
        self._tasks = tasks
        self._on_config = on_config

    def begin(self) -> None:
        self._cache.subscribe(Stage.SETTINGS, self._on_image)

    def _on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        if before.broker_configs is not after.broker_configs and self._follow_broker(after):
            self._update(list(after.topics))
        elif before.topic_configs is not after.topic_configs:
            old, new = before.topic_configs, after.topic_configs
            # A topic that has lost all its settings is not in the new ones.
            self._update([name for name in {**old, **new} if old.get(name) is not new.get(name)])

    def _follow_broker(self, image: MetadataImage) -> bool:
        """Whether defaults of topics have changed."""
        config = self._settings.current
        changed = effective_config(config, image, self._replicas.broker_id)
        if changed is config:
            return False
        idle = [
            name
            for name, text in {**changed.dynamic_default, **changed.dynamic_broker}.items()
            if {**config.dynamic_default, **config.dynamic_broker}.get(name) != text
            and (not is_honoured(name) or name in _AT_START_ONLY)
        ]
        if idle:
            log.warning("these settings have no effect on a running broker: %s", ", ".join(idle))
        self._settings.current = changed
        self._on_config(changed)
        return changed.log_defaults != config.log_defaults

    def _update(self, topics: Sequence[str]) -> None:
        for name in topics[:TOPICS_AT_ONCE]:
            self._update_topic(name)
        later = list(topics[TOPICS_AT_ONCE:])
        if self._replicas.is_opening(topics):
            # A log that is being opened may have looked at its settings before they changed.
            later = list(topics)
        if later:
            self._tasks.start(self._update_later(later))

    async def _update_later(self, topics: list[str]) -> None:
        await self._replicas.opened(topics)
        for name in topics:
            self._update_topic(name)
            await asyncio.sleep(0)

    def _update_topic(self, name: str) -> None:
        image = self._cache.image
        topic = image.topics.get(name)
        if topic is None:
            return
        try:
            config = self._settings.current.topic_config(image.topic_config(name))
            for index in range(len(topic.partitions)):
                for is_future in (False, True):
                    found = self._manager.log(TopicPartition(name, index), is_future=is_future)
                    if found is not None and found.config != config:
                        found.update_config(config)
        except KafkaError as error:
            log.error("the settings of topic %s are not followed: %s", name, error)
