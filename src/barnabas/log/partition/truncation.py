"""Removing records from the end of a log, for a follower whose log diverges from that of its leader.

A truncation is on the disk before it returns, so that no removed record reappears behind the next appended ones.
Segments are removed from the last one back, each for good before the next: a crash in between leaves a log that ends
later than requested, and never a log with a hole. Leader epochs and producer snapshots beyond the end are removed again
when the log is opened after a crash.
"""

from __future__ import annotations

import logging

from barnabas.clock import Clock
from barnabas.log.partition.epoch_cache import EpochCache
from barnabas.log.partition.local_log import LocalLog
from barnabas.log.partition.upkeep import SegmentUpkeep
from barnabas.log.partition.watermarks import Watermarks
from barnabas.log.producers.replay import rebuild_producer_state
from barnabas.log.producers.state import ProducerState
from barnabas.records.layout import MAGIC_V2

logger = logging.getLogger(__name__)


class Truncation:
    """Truncates one log, and has epochs, producers and watermarks follow.

    Threads: the caller holds the log's lock.
    """

    __slots__ = ("_clock", "_epochs", "_local", "_producers", "_segments", "_watermarks", "_where")

    def __init__(
        self,
        where: str,
        clock: Clock,
        local: LocalLog,
        watermarks: Watermarks,
        epochs: EpochCache,
        producers: ProducerState,
        segments: SegmentUpkeep,
    ) -> None:
        self._where = where
        self._clock = clock
        self._local = local
        self._watermarks = watermarks
        self._epochs = epochs
        self._producers = producers
        self._segments = segments

    def truncate_to(self, offset: int) -> bool:
        assert offset >= 0, offset
        local = self._local
        if offset >= local.end.offset:
            # An epoch may have begun here for a leader that never got to write in it.
            self._epochs.truncate_from_end(local.end.offset)
            return False
        if local.segments.base_offsets[0] > offset:
            self.truncate_fully_and_start_at(offset)
            return True
        logger.info("truncating %s from %d to %d", self._where, local.end.offset, offset)
        self._segments.delete_snapshots(
            local.truncate_to(offset, may_end_in_gap=not self._segments.is_gapless)
        )
        end_offset = local.end.offset
        self._epochs.truncate_from_end(end_offset)
        self._watermarks.lower_to(end_offset)
        self._rebuild_producers(end_offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        logger.info("truncating all of %s to start at %d", self._where, offset)
        self._local.truncate_fully_and_start_at(offset)
        self._epochs.clear()
        self._producers.truncate_fully_and_start_at(offset)
        self._watermarks.restart_at(offset)
        self._rebuild_producers(offset)

    def _rebuild_producers(self, end_offset: int) -> None:
        rebuild_producer_state(
            self._producers,
            self._local.segments,
            log_start_offset=self._watermarks.log_start_offset,
            end_offset=end_offset,
            now_ms=self._clock.now_ms(),
            has_never_seen_producers=self._local.config.message_magic < MAGIC_V2,
        )
        self._watermarks.follow_producers()
