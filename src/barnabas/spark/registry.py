"""The data sources of this room, by the name that a query gives as its format."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from barnabas.errors import InvalidConfig
from barnabas.spark.workers import require_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

# Name of the format, and the class behind it as module:class.
DATA_SOURCES: Final[Mapping[str, str]] = {
    "barnabas": "barnabas.spark.topics.source:TopicDataSource",
    "barnabas-log": "barnabas.spark.logs.source:LogDataSource",
    "barnabas-database": "barnabas.spark.databases.source:DatabaseDataSource",
    "barnabas-delta": "barnabas.spark.delta.source:DeltaDataSource",
}


def data_source(name: str) -> type[DataSource]:
    """The class of a format; its module is imported at the first use."""
    module, _, kind = DATA_SOURCES[name].partition(":")
    found: type[DataSource] = getattr(importlib.import_module(module), kind)
    return found


def register(spark: SparkSession) -> None:
    """Makes the formats of this room known to a session; it may be done again."""
    try:
        import pyarrow  # noqa: F401
        import pyspark.sql.datasource  # noqa: F401
    except ImportError as missing:
        raise InvalidConfig(
            f"sources and sinks of Spark need {missing.name}, which is not installed: pip install 'barnabas[spark]'"
        ) from None
    require_workers(spark)
    with _active(spark):
        for name in DATA_SOURCES:
            spark.dataSource.register(data_source(name))


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Makes a session the active one for a while.

    Spark looks up a name that is to be registered in the active session, and refuses it if it is known there: a
    session that was made from another one could not register what the first one has.
    """
    sessions: Any = spark._jvm.SparkSession  # type: ignore[union-attr]
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
