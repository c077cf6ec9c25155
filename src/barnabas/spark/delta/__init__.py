"""Delta tables: a sink that writes each batch exactly once, and a source."""

from barnabas.spark.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
