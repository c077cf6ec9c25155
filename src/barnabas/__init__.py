"""Barnabas: a Kafka in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin as Admin
    from barnabas.client.consumer.consumer import Consumer as Consumer
    from barnabas.client.consumer.front import ConsumerInterceptor as ConsumerInterceptor
    from barnabas.client.consumer.front import RebalanceListener as RebalanceListener
    from barnabas.client.consumer.record import ConsumerRecord as ConsumerRecord
    from barnabas.client.producer.producer import Producer as Producer
    from barnabas.client.producer.records import RecordMetadata as RecordMetadata
    from barnabas.client.subscription import OffsetAndMetadata as OffsetAndMetadata
    from barnabas.model import TopicPartition as TopicPartition

__version__ = "0.1.0"

# Public names by the module that has them, which is loaded at first use: a broker needs none of the clients.
_LAZY: Final[dict[str, str]] = {
    "Admin": "barnabas.client.admin.admin",
    "Consumer": "barnabas.client.consumer.consumer",
    "ConsumerInterceptor": "barnabas.client.consumer.front",
    "ConsumerRecord": "barnabas.client.consumer.record",
    "OffsetAndMetadata": "barnabas.client.subscription",
    "Producer": "barnabas.client.producer.producer",
    "RebalanceListener": "barnabas.client.consumer.front",
    "RecordMetadata": "barnabas.client.producer.records",
    "TopicPartition": "barnabas.model",
}


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
    return getattr(import_module(module), name)
