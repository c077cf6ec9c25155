"""Clients of a broker or cluster under test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.producer.producer import Producer


class Clients:
    @property
    def bootstrap(self) -> str:
        """The value for `bootstrap_servers` of a client."""
        raise NotImplementedError

    def admin(self, **settings: Any) -> Admin:
        from barnabas.client.admin.admin import Admin

        return Admin(bootstrap_servers=self.bootstrap, **settings)

    def producer(self, **settings: Any) -> Producer:
        from barnabas.client.producer.producer import Producer

        return Producer(bootstrap_servers=self.bootstrap, **settings)

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        """A consumer of these topics, from the beginning unless `auto_offset_reset` says otherwise.

        Without a `group_id` it reads all partitions itself.
        """
        from barnabas.client.consumer.consumer import Consumer

        consumer = Consumer(
            **{"bootstrap_servers": self.bootstrap, "auto_offset_reset": "earliest", **settings}
        )
        if "group_id" in settings and topics:
            consumer.subscribe(list(topics))
        elif topics:
            consumer.assign(
                (topic, each.partition) for topic in topics for each in consumer.partitions_for(topic)
            )
        return consumer

    def create_topics(self, topics: Iterable[str] | Mapping[str, int]) -> None:
        """Names, or names with numbers of partitions."""
        with self.admin() as admin:
            admin.create_topics(topics)
