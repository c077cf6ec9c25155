"""Batches of a query to topics, exactly once: one Kafka transaction per batch."""

from barnabas.spark.exactly_once.sink import TransactionalTopicSink

__all__ = ["TransactionalTopicSink"]
