"""The readers of a Spark worker: tasks with the same settings share one, and its connections.

A worker runs one task at a time, and many one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.client.reader.partition_reader import Fetched, PartitionReader
from barnabas.client.reader.ranges import read_range
from barnabas.errors import RequestTimedOut
from barnabas.spark.topics.directory import report_data_loss
from barnabas.spark.topics.plan import OffsetRange

# A task reads one partition; more at once costs memory and gives nothing.
FETCH_BYTES: Final = 4 * 1024 * 1024
SETTINGS: Final[Mapping[str, str]] = {
    "fetch.max.bytes": str(FETCH_BYTES),
    "max.partition.fetch.bytes": str(FETCH_BYTES),
}
READERS_MAX: Final = 8

_readers: dict[tuple[int, frozenset[tuple[str, str]]], PartitionReader] = {}


def reader_of(kafka: Mapping[str, str]) -> PartitionReader:
    """The reader of this process for these settings, created at the first use."""
    key = os.getpid(), frozenset(kafka.items())
    reader = _readers.pop(key, None)
    if reader is None:
        reader = PartitionReader({**SETTINGS, **kafka})
        if len(_readers) >= READERS_MAX:
            # The least recently used one.
            _readers.pop(next(iter(_readers))).close()
    _readers[key] = reader
    return reader


def fetch_range(
    kafka: Mapping[str, str], wanted: OffsetRange, *, poll_timeout_ms: int, fail_on_data_loss: bool
) -> Iterator[Fetched]:
    """The raw batches of the range, in order; the last may reach beyond its end."""
    try:
        yield from read_range(
            reader_of(kafka),
            wanted.partition,
            wanted.start_offset,
            wanted.end_offset,
            timeout_ms=poll_timeout_ms,
            on_data_loss=lambda message: report_data_loss(message, fail_on_data_loss=fail_on_data_loss),
            topic_id=wanted.topic_id,
        )
    except RequestTimedOut as error:
        raise RequestTimedOut(f"{error}; raise kafkaConsumer.pollTimeoutMs to wait longer") from None
