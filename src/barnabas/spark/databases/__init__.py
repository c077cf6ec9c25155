"""Rows of PostgreSQL and SQLite tables: a sink that writes each batch exactly once, and a source."""

from barnabas.spark.databases.sink import DatabaseSink

__all__ = ["DatabaseSink"]
