"""The rules of a topic for each single record, and the records of a batch that break them."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from barnabas.model import NO_TIMESTAMP
from barnabas.records.header import BatchHeader
from barnabas.records.layout import MAGIC_V0, TIMESTAMP_TYPE_BIT
from barnabas.records.policy import LOG_APPEND_TIME, AppendPolicy
from barnabas.records.rejection import RECORD_ERRORS_MAX, RecordError, RejectedRecords, RejectedTimestamps
from barnabas.records.varint import INT64_MAX, INT64_MIN


@final
class RecordRules:
    """Checks the records of one batch, one after the other; `finish` raises if any has failed."""

    __slots__ = (
        "_index",
        "_keys_required",
        "_latest_ms",
        "_oldest_ms",
        "_record_errors",
        "_stamped",
        "_times_matter",
        "_wrong_timestamp",
    )

    def __init__(self, header: BatchHeader, now_ms: int, policy: AppendPolicy) -> None:
        self._keys_required = policy.is_compacted
        self._times_matter = policy.timestamp_type is not LOG_APPEND_TIME
        self._stamped = header.magic > MAGIC_V0 and header.attributes & TIMESTAMP_TYPE_BIT != 0
        self._oldest_ms: i64 = max(now_ms - policy.timestamp_before_max_ms, INT64_MIN)
        self._latest_ms: i64 = min(now_ms + policy.timestamp_after_max_ms, INT64_MAX)
        self._index: i64 = 0
        self._record_errors: list[RecordError] = []
        self._wrong_timestamp = False

    def check(self, has_key: bool, timestamp: i64) -> None:
        index = self._index
        self._index = index + 1
        if self._keys_required and not has_key:
            self._reject(index, "Compacted topic cannot accept message without key")
        elif self._times_matter and timestamp != NO_TIMESTAMP:
            if not self._oldest_ms <= timestamp <= self._latest_ms:
                self._wrong_timestamp = True
                self._reject(
                    index,
                    f"Timestamp {timestamp} of message with offset {index} is out of range. The timestamp should be"
                    f" within [{self._oldest_ms}, {self._latest_ms}]",
                )
        elif self._stamped:
            self._wrong_timestamp = True
            self._reject(index, "its timestamp type is LogAppendTime, which only a broker sets")

    def finish(self) -> None:
        if self._wrong_timestamp:
            raise RejectedTimestamps(self._record_errors)
        if self._record_errors:
            raise RejectedRecords(self._record_errors)

    def _reject(self, index: int, message: str) -> None:
        if len(self._record_errors) < RECORD_ERRORS_MAX:
            self._record_errors.append(RecordError(index, message))
