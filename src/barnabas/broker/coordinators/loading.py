"""Reads a coordinator's partition from beginning to end, in slices that leave the event loop to others in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from barnabas.broker.waiting.background import Background
from barnabas.errors import KafkaStorageError
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.records.header import BatchHeader, iterate_headers
from barnabas.records.reader import decode_parts
from barnabas.records.record import Record

# The records that are decoded and replayed without a pause: a few milliseconds of work.
RECORDS_AT_ONCE: Final = 500


async def read_batches(
    log: PartitionLog, background: Background, *, buffer_bytes: int
) -> AsyncIterator[tuple[BatchHeader, list[Record]]]:
    """Each batch with its records; a large one comes in several parts. The file is read off the loop."""
    offset = log.log_start_offset
    since_pause = 0
    while offset < log.log_end_offset:
        found = log.read(offset, buffer_bytes, Isolation.LOG_END, True).records
        if found is None:
            return
        data = await background.run(found.read)
        headers = iterate_headers(data)
        if not headers or headers[-1].next_offset <= offset:
            raise KafkaStorageError(f"{log.topic_partition} has no batch at offset {offset}")
        position = 0
        for header in headers:
            for records in decode_parts(data, position, header):
                for start in range(0, len(records), RECORDS_AT_ONCE):
                    part = records[start : start + RECORDS_AT_ONCE]
                    since_pause += len(part)
                    yield header, part
                    if since_pause >= RECORDS_AT_ONCE:
                        since_pause = 0
                        await asyncio.sleep(0)
            position += header.size_bytes
        offset = headers[-1].next_offset
