"""The caller's side of fetching: converts the queued data into records, raw batches or columns.

Everything here happens in the caller's poll(): copying, checking, decompressing, decoding. A position advances only
when records are returned, so a commit covers only records that the caller has seen.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from barnabas.client.consumer.fetched import Fetched
from barnabas.client.consumer.record import ConsumerRecord, decode_consumer_records
from barnabas.client.partition_state import PartitionState
from barnabas.client.subscription import LogTruncation, Subscription
from barnabas.errors import CorruptMessage, InvalidRecord, KafkaError, OffsetOutOfRange
from barnabas.model import Offset, TopicPartition
from barnabas.records.columns import ColumnsBuilder, RecordColumns
from barnabas.records.compression import MAX_DECOMPRESSED_BYTES
from barnabas.records.header import BatchHeader, parse_header
from barnabas.records.reader import decode_batch
from barnabas.records.record import Record

Deserializer = Callable[[str, bytes], Any]

log = logging.getLogger(__name__)

# A poll for batches or columns stops after this size: a larger piece is not read faster.
TAKEN_BYTES: Final = 16 * 1024 * 1024


class DeserializationError(InvalidRecord):
    """A deserializer failed for the record at `offset` of `partition`; seek() past it to continue."""

    def __init__(self, partition: TopicPartition, offset: int, what: str, reason: Exception) -> None:
        super().__init__(
            f"{what}_deserializer failed for offset {offset} of {partition}: {type(reason).__name__}: {reason};"
            f" seek({partition!r}, {offset + 1}) continues after it"
        )
        self.partition = partition
        self.offset = offset


class RawBatch:
    """A batch of records as in the log, with a verified checksum and unopened records.

    It may contain records before `start_offset`, the requested position; `records` omits them.
    """

    __slots__ = ("data", "header", "partition", "start_offset", "topic")

    def __init__(
        self, topic: str, partition: int, start_offset: int, header: BatchHeader, data: bytes
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.start_offset = start_offset
        self.header = header
        self.data = data

    def records(self) -> list[Record]:
        return [
            each for each in decode_batch(self.data, header=self.header) if each.offset >= self.start_offset
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy, as in Record. The header is read again, from the data."""
        return _raw_batch, (self.topic, self.partition, self.start_offset, self.data)

    def __repr__(self) -> str:
        return f"RawBatch({self.topic}-{self.partition}, {self.header!r})"


def _raw_batch(topic: str, partition: int, start_offset: int, data: bytes) -> RawBatch:
    return RawBatch(topic, partition, start_offset, parse_header(data), data)


class ColumnRun:
    """How many records in a row are of one partition, and the columns of all of them."""

    __slots__ = ("columns", "runs")

    def __init__(self, columns: RecordColumns, runs: list[tuple[TopicPartition, int]]) -> None:
        self.columns = columns
        self.runs = runs


class Intake:
    def __init__(
        self,
        subscription: Subscription,
        queue: deque[Fetched],
        *,
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
        wake: Callable[[], None],
        reset: Callable[[PartitionState], None] | None,
    ) -> None:
        """`wake` makes the loop continue; `reset` applies auto.offset.reset, and is None if the caller decides."""
        self._subscription = subscription
        self._queue = queue
        self._resumed: deque[Fetched] = deque()
        self._held: dict[TopicPartition, list[Fetched]] = {}
        self._current: Fetched | None = None
        # The positions that the poll under way has found, in the order in which it came to them.
        self._found: list[tuple[PartitionState, int | None, int]] = []
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._deserializes = key_deserializer is not None or value_deserializer is not None
        self._wake = wake
        self._reset = reset
        # Since the start. Records that were decoded and are not handed out yet are counted too, see `metrics`.
        self._records = 0
        self._bytes = 0

    def metrics(self) -> dict[str, float]:
        """With the names of Kafka's own metrics."""
        current = self._current
        records = self._records if current is None else self._records - current.decoded_ahead
        return {"bytes-consumed-total": self._bytes, "records-consumed-total": records}

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Up to this many records; none if there are none. Raises the error in place of the next record."""
        taken: list[ConsumerRecord] = []
        while len(taken) < limit:
            fetched = self._next()
            if fetched is None:
                break
            state = fetched.state
            if fetched.index == len(fetched.records) and not self._decode(fetched, bool(taken)):
                if self._current is not None:
                    break
                continue
            records = fetched.records
            index = fetched.index
            end = min(len(records), index + limit - len(taken))
            if self._deserializes:
                end = self._deserialize(fetched, index, end, bool(taken))
                if end == index:
                    break
            part = records if end - index == len(records) else records[index:end]
            if taken:
                taken += part
            else:
                taken = part
            fetched.index = end
            state.epoch = records[end - 1].leader_epoch
            if end == len(records):
                state.position = fetched.next_offset
                fetched.records = []
                fetched.index = 0
            else:
                state.position = records[end - 1].offset + 1
        return taken

    def next_record(self) -> ConsumerRecord | None:
        """One record, for iteration."""
        fetched = self._current
        if fetched is not None and not self._deserializes:
            records = fetched.records
            index = fetched.index + 1
            state = fetched.state
            if index < len(records) and not state.is_paused and self._subscription.is_current(state):
                record = records[fetched.index]
                fetched.index = index
                state.position = record.offset + 1
                state.epoch = record.leader_epoch
                return record
        taken = self.take(1)
        return taken[0] if taken else None

    def take_batches(self) -> list[RawBatch]:
        taken: list[RawBatch] = []
        size_bytes = 0
        while size_bytes < TAKEN_BYTES:
            fetched = self._next()
            if fetched is None:
                break
            state = fetched.state
            header = self._next_batch(fetched, bool(taken))
            if header is None:
                if self._current is not None:
                    break
                continue
            assert state.position is not None
            data = fetched.as_bytes()[fetched.batch_position : fetched.next_position]
            taken.append(
                RawBatch(state.partition.topic, state.partition.partition, state.position, header, data)
            )
            size_bytes += len(data)
            self._count(fetched, header.record_count)
            self._step_over(fetched, header)
        return taken

    def take_columns(self) -> ColumnRun | None:
        """The available data as columns."""
        builder = ColumnsBuilder()
        runs: list[tuple[TopicPartition, int]] = []
        while not runs or builder.size_bytes < TAKEN_BYTES:
            fetched = self._next()
            if fetched is None:
                break
            state = fetched.state
            header = self._next_batch(fetched, bool(runs))
            if header is None:
                if self._current is not None:
                    break
                continue
            assert state.position is not None
            count_before = builder.record_count
            try:
                builder.append_batch(
                    fetched.as_bytes(),
                    fetched.batch_position,
                    header=header,
                    start_offset=Offset(state.position),
                )
            except KafkaError:
                if runs:
                    self._step_back(fetched)
                    break
                self._restart(state)
                raise
            appended = int(builder.record_count - count_before)
            if runs and runs[-1][0] == state.partition:
                appended += runs.pop()[1]
            if appended:
                runs.append((state.partition, appended))
            self._count(fetched, int(builder.record_count - count_before))
            self._step_over(fetched, header)
        return ColumnRun(builder.finish(), runs) if runs else None

    def resume(self, partition: TopicPartition) -> None:
        """Data that was fetched before the pause comes first."""
        self._resumed.extend(self._held.pop(partition, ()))

    def begin(self) -> None:
        """A poll starts: the data of earlier polls has been returned."""
        self._found.clear()

    def take_back(self) -> None:
        """The data taken since the poll started did not reach the caller: the next poll takes it again."""
        for state, position, epoch in self._found:
            if self._subscription.is_current(state) and state.position != position:
                self._subscription.replace(state.successor(position=position, epoch=epoch))
                self._wake()
        self._found.clear()

    def _next(self) -> Fetched | None:
        """The data to read next: the current one, unless it is obsolete or paused now."""
        while True:
            fetched = self._current
            if fetched is None:
                try:
                    fetched = self._resumed.popleft() if self._resumed else self._queue.popleft()
                except IndexError:
                    return None
                self._current = fetched
                self._records += fetched.decoded_ahead
            state = fetched.state
            if not self._subscription.is_current(state):
                self._records -= fetched.decoded_ahead
                self._current = None
            elif state.is_paused:
                self._hold(fetched)
                self._records -= fetched.decoded_ahead
                self._current = None
            else:
                found = self._found
                if not found or found[-1][0] is not state:
                    found.append((state, state.position, state.epoch))
                if not fetched.is_drained:
                    fetched.is_drained = True
                    state.drained_bytes += fetched.size_bytes
                    if state.is_starved:
                        state.is_starved = False
                        self._wake()
                return fetched

    def _hold(self, fetched: Fetched) -> None:
        partition = fetched.state.partition
        # Obsolete data, of a revoked partition or an old position, is dropped.
        held = [each for each in self._held.get(partition, ()) if self._subscription.is_current(each.state)]
        held.append(fetched)
        self._held = {
            other: kept for other, kept in self._held.items() if other in self._subscription.partitions
        }
        self._held[partition] = held

    def _decode(self, fetched: Fetched, has_some: bool) -> bool:
        """Decodes the next batch that has records for us. False at the end, with `_current` still set at an error."""
        state = fetched.state
        while True:
            header = self._next_batch(fetched, has_some)
            if header is None:
                return False
            assert state.position is not None
            try:
                records = decode_consumer_records(
                    fetched.as_bytes(),
                    fetched.batch_position,
                    header,
                    state.partition.topic,
                    state.partition.partition,
                    state.position,
                    MAX_DECOMPRESSED_BYTES,
                )
            except KafkaError:
                if has_some:
                    self._step_back(fetched)
                    return False
                self._restart(state)
                raise
            if records:
                fetched.records = records
                fetched.index = 0
                fetched.next_offset = header.next_offset
                self._count(fetched, len(records))
                return True
            self._step_over(fetched, header)

    def _next_batch(self, fetched: Fetched, has_some: bool) -> BatchHeader | None:
        """The next batch; None at the end of the data, or, with `_current` still set, at an error."""
        if has_some and fetched.error is not None:
            return None
        if fetched.error is not None:
            self._current = None
            self._face(fetched.state, fetched.error)
            return None
        state = fetched.state
        assert state.position is not None
        if fetched.records:
            # The caller has taken part of this batch as records: the rest is still to come.
            self._records -= fetched.decoded_ahead
            fetched.records = []
            fetched.index = 0
            self._step_back(fetched)
        try:
            header = fetched.next_batch(state.position)
        except (CorruptMessage, InvalidRecord):
            if has_some:
                return None
            self._restart(state)
            raise
        if header is None:
            self._current = None
            # Skipped batches advance the position too.
            if fetched.end_offset > state.position:
                state.position = fetched.end_offset
                state.epoch = fetched.end_epoch
        return header

    def _count(self, fetched: Fetched, records: int) -> None:
        """A batch goes to the caller."""
        self._records += records
        self._bytes += fetched.next_position - fetched.batch_position

    def _step_over(self, fetched: Fetched, header: BatchHeader) -> None:
        fetched.state.position = header.next_offset
        fetched.state.epoch = header.partition_leader_epoch

    def _step_back(self, fetched: Fetched) -> None:
        fetched.next_position = fetched.batch_position

    def _restart(self, state: PartitionState) -> None:
        """Fetches again from the position: bytes that were damaged on the way are good the next time."""
        self._current = None
        self._subscription.replace(state.successor(position=state.position, epoch=state.epoch))
        self._wake()

    def _face(self, state: PartitionState, error: KafkaError) -> None:
        """Handles an error of a partition; raises what the caller must handle."""
        position = state.position
        reset = self._reset
        if position is not None and reset is not None:
            if isinstance(error, LogTruncation):
                divergent = min(error.divergent_offset, position)
                self._subscription.replace(state.successor(position=divergent))
                self._wake()
                return
            if isinstance(error, OffsetOutOfRange):
                log.info("%s; auto.offset.reset applies", error)
                reset(state)
                return
        # The caller may seek; if not, the next poll tries the same once more.
        self._subscription.replace(
            state.successor(position=position, epoch=state.epoch, reset_timestamp=state.reset_timestamp)
        )
        self._wake()
        if type(error) is OffsetOutOfRange:
            raise OffsetOutOfRange(f"{error}, and auto.offset.reset=none: seek() to the next offset to read")
        raise error

    def _deserialize(self, fetched: Fetched, index: int, end: int, has_some: bool) -> int:
        """Deserializes keys and values up to the first that fails, which is raised when it is the next."""
        key_deserializer = self._key_deserializer
        value_deserializer = self._value_deserializer
        records = fetched.records
        topic = fetched.state.partition.topic
        for number in range(index, end):
            record = records[number]
            key, value = record.key, record.value
            what = "key"
            try:
                if key_deserializer is not None and key is not None:
                    key = key_deserializer(topic, key)
                what = "value"
                if value_deserializer is not None and value is not None:
                    value = value_deserializer(topic, value)
            except Exception as reason:
                if number > index or has_some:
                    return number
                raise DeserializationError(
                    fetched.state.partition, int(record.offset), what, reason
                ) from reason
            record.key = key
            record.value = value
        return end
