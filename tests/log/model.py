"""A partition log as simple as it can be: a list of batches. What the real one must be equal to after a crash."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from barnabas.log.partition.partition_log import PartitionLog
from barnabas.records.control import parse_end_txn_marker
from barnabas.records.header import BatchHeader, parse_header
from barnabas.records.layout import ControlRecordType
from barnabas.records.reader import decode_batch


class ModelBatch(NamedTuple):
    base_offset: int
    last_offset: int
    data: bytes

    def header(self) -> BatchHeader:
        return parse_header(self.data)


def model_batch(data: bytes) -> ModelBatch:
    header = parse_header(data)
    return ModelBatch(header.base_offset, header.last_offset, data)


@dataclass(frozen=True, slots=True)
class ModelState:
    """The log at a moment. Before `start_offset` records may be there or not, before `flushed_offset` none is lost."""

    batches: tuple[ModelBatch, ...] = ()
    start_offset: int = 0
    end_offset: int = 0
    flushed_offset: int = 0

    def appended(self, *batches: ModelBatch) -> ModelState:
        return replace(self, batches=self.batches + batches, end_offset=batches[-1].last_offset + 1)

    def flushed(self) -> ModelState:
        return replace(self, flushed_offset=self.end_offset)

    def truncated(self, offset: int) -> ModelState:
        batches = tuple(batch for batch in self.batches if batch.last_offset < offset)
        if len(batches) == len(self.batches):
            return self
        end_offset = batches[-1].last_offset + 1 if batches else offset
        return ModelState(batches, self.start_offset, end_offset, min(self.flushed_offset, end_offset))

    def explains(self, found: list[ModelBatch]) -> bool:
        """Whether a log with these batches may be what a crash has left of this one."""
        old = [batch for batch in found if batch.last_offset < self.start_offset]
        if not _is_subsequence(old, self.batches):
            return False
        live = found[len(old) :]
        expected = [batch for batch in self.batches if batch.last_offset >= self.start_offset]
        if live != expected[: len(live)]:
            return False
        return all(batch.last_offset >= self.flushed_offset for batch in expected[len(live) :])

    def is_exactly(self, found: list[ModelBatch]) -> bool:
        return self.explains(found) and (
            [batch for batch in found if batch.last_offset >= self.start_offset]
            == [batch for batch in self.batches if batch.last_offset >= self.start_offset]
        )


def _is_subsequence(parts: list[ModelBatch], whole: tuple[ModelBatch, ...]) -> bool:
    rest = iter(whole)
    return all(part in rest for part in parts)


def batches_of(log: PartitionLog) -> list[ModelBatch]:
    """All batches of a log, read from its files."""
    found = []
    for segment in log.segments.all:
        for _, header, data, at in segment.whole_batches():
            found.append(
                ModelBatch(header.base_offset, header.last_offset, bytes(data[at : at + header.size_bytes]))
            )
    return found


@dataclass(slots=True)
class ModelProducer:
    epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    txn_first_offset: int = -1


@dataclass(slots=True)
class ModelProducers:
    """What a replay of all batches says of producers and transactions."""

    producers: dict[int, ModelProducer] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)

    def replay(self, batches: list[ModelBatch]) -> ModelProducers:
        for batch in batches:
            header = batch.header()
            if header.producer_id < 0:
                continue
            producer = self.producers.setdefault(header.producer_id, ModelProducer())
            if producer.epoch != header.producer_epoch:
                producer.epoch = header.producer_epoch
                producer.last_sequence = producer.last_offset = -1
            if not header.is_control:
                producer.last_sequence = header.last_sequence
                producer.last_offset = header.last_offset
                if header.is_transactional and producer.txn_first_offset < 0:
                    producer.txn_first_offset = header.base_offset
                continue
            marker = parse_end_txn_marker(decode_batch(batch.data)[0])
            assert marker is not None
            if marker.control_type is ControlRecordType.ABORT and producer.txn_first_offset >= 0:
                self.aborted.append((header.producer_id, producer.txn_first_offset, header.base_offset))
            producer.txn_first_offset = -1
        return self

    @property
    def first_open_offset(self) -> int | None:
        return min(
            (p.txn_first_offset for p in self.producers.values() if p.txn_first_offset >= 0), default=None
        )
