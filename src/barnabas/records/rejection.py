"""The errors of records that a leader rejects: the error of the batch, and the invalid records.

Producers show the messages to users who know them from Apache Kafka, so the messages are the same.
"""

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
        super().__init__(
            f"One or more records have been rejected due to {len(record_errors)} record errors in total, and only"
            f" showing the first three errors at most: {_first_three(record_errors)}"
        )
        self.record_errors = record_errors


class RejectedTimestamps(InvalidTimestamp):
    """Records of a batch whose timestamps are out of bounds, perhaps among other faults."""

    def __init__(self, record_errors: list[RecordError]) -> None:
        super().__init__(
            f"One or more records have been rejected due to invalid timestamp: {_first_three(record_errors)}"
        )
        self.record_errors = record_errors


def _first_three(record_errors: list[RecordError]) -> str:
    shown = (
        f"RecordError(batchIndex={each.batch_index}, message='{each.message}')" for each in record_errors[:3]
    )
    return f"[{', '.join(shown)}]"
