"""Clients of a broker or cluster under test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.producer.producer import Producer


class Clients(ABC):
    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """The value for `bootstrap_servers` of a client."""

    @property
    def security_settings(self) -> Mapping[str, str]:
        """The settings with which clients connect, besides the address."""
        return {}

    @property
    def client_settings(self) -> dict[str, str]:
        """All settings with which Kafka's clients connect."""
        return {"bootstrap.servers": self.bootstrap, **self.security_settings}

    def admin(self, **settings: Any) -> Admin:
        """An admin client of this broker; settings as for `barnabas.Admin`."""
        from barnabas.client.admin.admin import Admin

        return Admin(self._with(settings))

    def producer(self, **settings: Any) -> Producer:
        """A producer of this broker; settings as for `barnabas.Producer`."""
        from barnabas.client.producer.producer import Producer

        return Producer(self._with(settings))

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        """A consumer of these topics, from the beginning unless `auto_offset_reset` says otherwise.

        Without a `group_id` it reads all partitions itself, and the topics must exist.
        """
        from barnabas.client.consumer.consumer import Consumer

        consumer = Consumer(self._with({"auto_offset_reset": "earliest", **settings}))
        try:
            if "group_id" in settings and topics:
                consumer.subscribe(list(topics))
            elif topics:
                consumer.assign(
                    (topic, each.partition) for topic in topics for each in consumer.partitions_for(topic)
                )
        except BaseException:
            consumer.close()
            raise
        return consumer

    def create_topics(self, topics: Iterable[str] | Mapping[str, int]) -> None:
        """Names, or names with numbers of partitions."""
        with self.admin() as admin:
            admin.create_topics(topics)

    def _with(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return {**self.client_settings, **named}
