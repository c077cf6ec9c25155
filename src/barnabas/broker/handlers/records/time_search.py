"""Searches a record by its timestamp for ListOffsets. Other requests run in between.

Headers show which batches may have the record. Small batches are read here, larger ones by the worker process.
"""

from __future__ import annotations

from functools import partial

from barnabas.broker.broker import Broker
from barnabas.broker.requests.conversions import RequestShare
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.log.partition.offsets import TimeCandidate, TimestampAndOffset
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import Offset, TimestampMs
from barnabas.records.compression import ExpandsTooFar
from barnabas.records.jobs import find_timestamp_job, found_timestamp
from barnabas.records.search import find_timestamp
from barnabas.records.validate import BUILT_BRIEFLY_BYTES, BUILT_BRIEFLY_RECORDS


class TimeSearch:
    """All searches of one request."""

    def __init__(self, broker: Broker, exchange: AnyExchange) -> None:
        self._background = broker.background
        self._turns = broker.turns
        self._share: RequestShare = broker.conversions.share(exchange.session)

    async def find(self, log: PartitionLog, timestamp: int) -> TimestampAndOffset | None:
        end_ns = self._turns.end_ns()
        for candidate in log.time_candidates(timestamp):
            if candidate is not None:
                found = self._look_briefly(candidate)
                if found is None:
                    found = await self._look(candidate)
                    end_ns = self._turns.end_ns()
                if found:
                    return TimestampAndOffset(*found, candidate.header.partition_leader_epoch)
            if self._turns.is_over(end_ns):
                await self._turns.next()
                end_ns = self._turns.end_ns()
        return None

    def _look_briefly(self, candidate: TimeCandidate) -> tuple[TimestampMs, Offset] | tuple[()] | None:
        """None if it takes longer; an empty tuple if there is no such record."""
        header = candidate.header
        if header.size_bytes > BUILT_BRIEFLY_BYTES or header.record_count > BUILT_BRIEFLY_RECORDS:
            return None
        try:
            return (
                find_timestamp(
                    candidate.segment.read_batch(candidate.position, header),
                    candidate.timestamp,
                    candidate.start_offset,
                    is_exact=candidate.is_exact,
                    max_decompressed_bytes=BUILT_BRIEFLY_BYTES,
                )
                or ()
            )
        except ExpandsTooFar:
            return None

    async def _look(self, candidate: TimeCandidate) -> tuple[TimestampMs, Offset] | tuple[()]:
        data = await self._background.run(
            partial(candidate.segment.read_batch, candidate.position, candidate.header)
        )
        job = find_timestamp_job(
            data, candidate.timestamp, candidate.start_offset, is_exact=candidate.is_exact
        )
        return found_timestamp(await self._share.run(job)) or ()
