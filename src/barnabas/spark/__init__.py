"""Pipelines on Spark, through PySpark: sources and sinks of topics, of log directories and of databases.

    from barnabas.spark import register

    register(spark)
    spark.read.format("barnabas").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "clicks")

Needs the extra `barnabas[spark]` and Java 17; no jar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.spark.databases.sink import DatabaseSink
    from barnabas.spark.delta.sink import DeltaSink
    from barnabas.spark.exactly_once.sink import TransactionalTopicSink
    from barnabas.spark.formats.columns import FormatSpec, decode, encode
    from barnabas.spark.mirror.sink import MirrorSink, load_offset_map
    from barnabas.spark.registry import register
    from barnabas.spark.session import start_session
    from barnabas.spark.testing import Record, Result, record, run_pipeline

__all__ = [
    "DatabaseSink",
    "DeltaSink",
    "FormatSpec",
    "MirrorSink",
    "Record",
    "Result",
    "TransactionalTopicSink",
    "decode",
    "encode",
    "load_offset_map",
    "record",
    "register",
    "run_pipeline",
    "start_session",
]

# Public names by the module that has them, which is loaded at first use: most of them load PySpark.
_LAZY: Final[dict[str, tuple[str, ...]]] = {
    "barnabas.spark.databases.sink": ("DatabaseSink",),
    "barnabas.spark.delta.sink": ("DeltaSink",),
    "barnabas.spark.exactly_once.sink": ("TransactionalTopicSink",),
    "barnabas.spark.formats.columns": ("FormatSpec", "decode", "encode"),
    "barnabas.spark.mirror.sink": ("MirrorSink", "load_offset_map"),
    "barnabas.spark.registry": ("register",),
    "barnabas.spark.session": ("start_session",),
    "barnabas.spark.testing": ("Record", "Result", "record", "run_pipeline"),
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for module, names in _LAZY.items():
        if name in names:
            found: object = getattr(import_module(module), name)
            # The next use finds it without this function.
            globals()[name] = found
            return found
    raise AttributeError(f"module 'barnabas.spark' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
