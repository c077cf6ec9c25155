"""The offsets of a log that say which of its records may be read.

log start offset ≤ last stable offset ≤ high watermark ≤ log end offset
      │                    │                 │                 └ the offset of the next record
      │                    │                 └ replicated: consumers may read up to here
      │                    └ decided: no transaction before it is open
      └ the first record that has not been deleted
"""

from __future__ import annotations

import logging

from barnabas.errors import OffsetOutOfRange
from barnabas.log.partition.epoch_cache import EpochCache
from barnabas.log.partition.local_log import LocalLog
from barnabas.log.producers.state import ProducerState
from barnabas.model import NO_OFFSET

logger = logging.getLogger(__name__)


class Watermarks:
    """Owns the log start offset, the high watermark and the first unstable offset of one log.

    The end of the log belongs to the LocalLog, which moves it first when the log grows or is truncated. Leader epochs
    and producers follow the start offset and the high watermark.

    Threads: the caller of a method that changes something holds the log's lock. Any thread may read an attribute; two
    attributes that are read one after the other may belong to two moments.
    """

    __slots__ = (
        "_epochs",
        "_first_unstable_offset",
        "_local",
        "_producers",
        "_where",
        "high_watermark",
        "log_start_offset",
    )

    def __init__(
        self,
        where: str,
        local: LocalLog,
        epochs: EpochCache,
        producers: ProducerState,
        log_start_offset: int,
    ) -> None:
        self._where = where
        self._local = local
        self._epochs = epochs
        self._producers = producers
        self._first_unstable_offset: int = NO_OFFSET
        self.log_start_offset: int = log_start_offset
        self.high_watermark: int = log_start_offset
        self._set(log_start_offset, log_start_offset)
        self.follow_transactions()

    @property
    def last_stable_offset(self) -> int:
        first_unstable_offset = self._first_unstable_offset
        high_watermark = self.high_watermark
        if 0 <= first_unstable_offset < high_watermark:
            return first_unstable_offset
        return high_watermark

    def raise_high_watermark(self, candidate: int) -> bool:
        """Sets the high watermark if the candidate is higher, as a leader does. It never exceeds the end of the log."""
        if candidate <= self.high_watermark:
            return False
        assert candidate <= self._local.end.offset, (candidate, self._local.end.offset)
        self.high_watermark = candidate
        self.follow_producers()
        return True

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark to what the leader or a checkpoint says, within the bounds of the log."""
        offset = min(max(offset, self.log_start_offset), self._local.end.offset)
        if offset < self.high_watermark:
            logger.warning(
                "the high watermark of %s goes back from %d to %d", self._where, self.high_watermark, offset
            )
        self._set(self.log_start_offset, offset)
        self.follow_producers()
        return offset

    def advance_log_start_offset(self, offset: int) -> bool:
        """Drops the records before the offset. Raises OffsetOutOfRange if it is above the high watermark."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"the log of {self._where} cannot start at {offset}, above its high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self._set(offset, self.high_watermark)
        self._epochs.truncate_from_start(offset)
        self._producers.advance_log_start_offset(offset)
        self.follow_transactions()
        return True

    def lower_to(self, end_offset: int) -> None:
        """The log was truncated: it ends here. `follow_producers` is due once they are rebuilt."""
        self._set(min(self.log_start_offset, end_offset), min(self.high_watermark, end_offset))
        self.follow_transactions()

    def restart_at(self, offset: int) -> None:
        """The log lost all its records: it starts and ends here. `follow_producers` is due once they are rebuilt."""
        self._set(offset, offset)
        self.follow_transactions()

    def follow_producers(self) -> None:
        """Drops transactions whose end is replicated, and bounds the last stable offset by the rest."""
        self._producers.acknowledge(self.high_watermark)
        self.follow_transactions()

    def follow_transactions(self) -> None:
        """Bounds the last stable offset by the transactions that are open now."""
        first = self._producers.first_unstable_offset()
        self._first_unstable_offset = max(first, self.log_start_offset) if first >= 0 else NO_OFFSET

    def _set(self, log_start_offset: int, high_watermark: int) -> None:
        end_offset = self._local.end.offset
        assert 0 <= log_start_offset <= high_watermark <= end_offset, (
            log_start_offset,
            high_watermark,
            end_offset,
        )
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark
