"""Topics copied from one cluster to another, with the offsets of consumer groups."""

from barnabas.spark.mirror.sink import MirrorSink

__all__ = ["MirrorSink"]
