"""Reads a range of offsets of one partition as raw batches, and fetches the next ones while the caller uses these.

Every wait ends: a range that makes no progress in time fails with RequestTimedOut. Deleted records are reported to the
caller, who decides whether to continue without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from barnabas.client.admin.core import topic_id_text
from barnabas.client.consumer.fetched import NONE_ABORTED, AbortedTransactions, Fetched, end_of
from barnabas.client.consumer.fetcher import PASSING, STALE_METADATA
from barnabas.client.partition_state import PartitionState
from barnabas.client.reader.partition_reader import PartitionReader
from barnabas.errors import (
    NONE,
    KafkaError,
    NetworkException,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for_code,
)
from barnabas.model import TopicPartition
from barnabas.protocol.messages.fetch_response import FetchResponse, PartitionData

# A new leader may not know at once how far its log is committed, and a broker may not know a new topic yet. After this
# time their answers are taken as final.
SETTLING_S: Final = 2.0
EMPTY_ANSWERS_AT_GAP: Final = 2

OnDataLoss = Callable[[str], None]
"""Called with a lost range. The read continues after it, unless the function raises."""


def read_range(
    reader: PartitionReader,
    partition: TopicPartition,
    start_offset: int,
    end_offset: int,
    *,
    timeout_ms: int,
    on_data_loss: OnDataLoss,
    topic_id: str | None = None,
) -> Iterator[Fetched]:
    """The raw batches from the start offset up to the end offset, in order; the last may reach beyond the end.

    With a topic id, a topic that was deleted and created again counts as data loss.
    """
    return _RangeRead(reader, partition, start_offset, end_offset, topic_id, timeout_ms, on_data_loss).run()


class _RangeRead:
    """The state of one read: the position, the fetch that is under way, and since when something looks wrong."""

    def __init__(
        self,
        reader: PartitionReader,
        partition: TopicPartition,
        start_offset: int,
        end_offset: int,
        topic_id: str | None,
        timeout_ms: int,
        on_data_loss: OnDataLoss,
    ) -> None:
        self._reader = reader
        self._partition = partition
        self._position = start_offset
        self._end_offset = end_offset
        self._topic_id = topic_id
        self._timeout_ms = timeout_ms
        self._on_data_loss = on_data_loss
        self._pending: asyncio.Future[FetchResponse] | None = None
        self._last_error: KafkaError | None = None
        self._moved_s = reader.now_s()
        self._short_since_s: float | None = None
        self._missing_since_s: float | None = None
        self._empty_answers = 0

    def run(self) -> Iterator[Fetched]:
        end_offset = self._end_offset
        while self._position < end_offset:
            data = self._next_answer()
            if data is None or data.records is None or len(data.records) == 0:
                if data is not None:
                    self._look_at_end(data)
                self._check_time()
                continue
            records = data.records
            assert isinstance(records, bytes | memoryview)
            position = self._position
            next_position, epoch = end_of(records, position)
            fetched = Fetched(
                PartitionState(self._partition, position=position),
                records,
                end_offset=next_position,
                end_epoch=epoch,
                aborted=_aborted(data),
                check_crcs=self._reader.settings.check_crcs,
            )
            self._move_to(next_position)
            if next_position < end_offset:
                self._begin()
            yield fetched

    def _begin(self) -> None:
        try:
            self._pending = self._reader.begin(self._partition, self._position)
        except KafkaError as error:
            self._pending = None
            self._note(error)

    def _next_answer(self) -> PartitionData | None:
        """The partition's part of the next answer; None after an error that may pass."""
        if self._pending is None:
            self._check_topic()
            if self._position < self._end_offset:
                self._begin()
        if self._pending is None:
            return None
        pending, self._pending = self._pending, None
        try:
            answer = self._reader.wait(pending)
            if answer.error_code != NONE:
                raise error_for_code(answer.error_code, f"fetching {self._partition}")
        except KafkaError as error:
            self._note(error)
            return None
        if answer.throttle_time_ms > 0:
            # A broker that throttles this client may send no records though its log has some.
            self._reader.pause(min(answer.throttle_time_ms, self._timeout_ms) / 1000)
            self._empty_answers = 0
            self._moved_s = self._reader.now_s()
        data = answer.responses[0].partitions[0] if answer.responses else None
        if data is None:
            return None
        code = data.error_code
        if code == OffsetOutOfRange.code:
            self._leave_gap()
            return None
        if code != NONE:
            self._note(error_for_code(code, f"fetching {self._partition}"))
            return None
        if data.preferred_read_replica >= 0 and len(data.records or b"") == 0:
            self._reader.prefer(self._partition, data.preferred_read_replica)
            return None
        self._last_error = None
        return data

    def _check_topic(self) -> None:
        """A topic that was created again under the same name has other records at these offsets."""
        planned = self._topic_id
        if planned is None:
            return
        try:
            found = topic_id_text(self._reader.leader(self._partition).topic_id)
            if found != planned:
                # The cached leader may be older than the topic id that the caller knows.
                self._reader.forget(self._partition)
                found = topic_id_text(self._reader.leader(self._partition).topic_id)
        except KafkaError:
            # The fetch reports it.
            return
        if found is not None and found != planned:
            self._lose(
                f"topic {self._partition.topic} was deleted and created again before offsets {self._position} to"
                f" {self._end_offset} of {self._partition} were read"
            )

    def _note(self, error: KafkaError) -> None:
        """Drops cached metadata that may be wrong, and backs off; raises errors that a retry cannot cure."""
        if error.code in STALE_METADATA or isinstance(error, NetworkException | RequestTimedOut):
            self._reader.forget(self._partition)
        elif not error.retriable and error.code not in PASSING:
            raise error
        self._last_error = error
        if isinstance(error, UnknownTopicOrPartition | UnknownTopicId):
            self._look_for_topic()
        else:
            self._missing_since_s = None
        self._check_time()
        self._reader.back_off()

    def _look_for_topic(self) -> None:
        now_s = self._reader.now_s()
        if self._missing_since_s is None:
            self._missing_since_s = now_s
        elif now_s - self._missing_since_s > SETTLING_S:
            self._lose(
                f"topic {self._partition.topic} was deleted before offsets {self._position} to"
                f" {self._end_offset} of {self._partition} were read"
            )

    def _check_time(self) -> None:
        if self._reader.now_s() - self._moved_s > self._timeout_ms / 1000:
            because = "" if self._last_error is None else f": {self._last_error.name}: {self._last_error}"
            raise RequestTimedOut(
                f"no records of {self._partition} at offset {self._position} arrived within {self._timeout_ms} ms"
                f"{because}"
            )

    def _move_to(self, position: int) -> None:
        self._position = position
        self._moved_s = self._reader.now_s()
        self._short_since_s = None
        self._missing_since_s = None
        self._empty_answers = 0

    def _look_at_end(self, data: PartitionData) -> None:
        """Handles an answer without records: the log ends here, or compaction has removed the rest of the range."""
        log_end = data.high_watermark
        if self._reader.settings.isolation_level == "read_committed" and data.last_stable_offset >= 0:
            log_end = min(log_end, data.last_stable_offset)
        if log_end >= self._end_offset:
            self._empty_answers += 1
            if self._empty_answers >= EMPTY_ANSWERS_AT_GAP:
                self._move_to(self._end_offset)
            return
        now_s = self._reader.now_s()
        if self._short_since_s is None:
            self._short_since_s = now_s
        elif now_s - self._short_since_s > SETTLING_S:
            self._lose(
                f"{self._partition} ends at offset {log_end}, before the expected end {self._end_offset}: its topic"
                " was created again, or its log was truncated"
            )

    def _leave_gap(self) -> None:
        """Handles a position outside the log: continues at the first offset, if the caller accepts the loss."""
        try:
            first, end = self._reader.bounds(self._partition)
        except KafkaError as error:
            self._note(error)
            return
        if first <= self._position <= end:
            # The leader has just changed; the next fetch gets the right answer.
            self._check_time()
            self._reader.back_off()
        elif self._position < first:
            self._on_data_loss(
                f"offsets {self._position} to {min(first, self._end_offset) - 1} of {self._partition} have"
                f" expired; its log begins at {first}"
            )
            self._move_to(min(first, self._end_offset))
        else:
            self._lose(
                f"{self._partition} ends at offset {end}, before the start offset {self._position}: its topic was"
                " created again, or its log was truncated"
            )

    def _lose(self, message: str) -> None:
        self._on_data_loss(message)
        self._move_to(self._end_offset)


def _aborted(data: PartitionData) -> AbortedTransactions:
    if not data.aborted_transactions:
        return NONE_ABORTED
    return sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions)
