"""What a leader says about records that it does not take: the error of the batch, and which records are at fault."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.errors import InvalidRecord, InvalidTimestamp

# A batch may hold more faults than anyone wants to read, or to hold in memory.
RECORD_ERRORS_MAX: Final = 1_000


class RecordError(NamedTuple):
    batch_index: int
    message: str


class RejectedRecords(InvalidRecord):
    """Records of a batch that are not fit for their topic."""

    def __init__(self, record_errors: list[RecordError]) -> None:
        super().__init__(_summary(record_errors))
        self.record_errors = record_errors


class RejectedTimestamps(InvalidTimestamp):
    """Records of a batch whose timestamps are out of bounds, perhaps among other faults."""

    def __init__(self, record_errors: list[RecordError]) -> None:
        super().__init__(_summary(record_errors))
        self.record_errors = record_errors


def _summary(record_errors: list[RecordError]) -> str:
    first = record_errors[0]
    more = f" (and {len(record_errors) - 1} more faults)" if len(record_errors) > 1 else ""
    return f"record {first.batch_index} of the batch: {first.message}{more}"
