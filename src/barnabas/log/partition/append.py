"""The conditions of an append, and its result."""

from __future__ import annotations

from typing import Final

from barnabas.config.log_config import PRODUCER, LogConfig
from barnabas.errors import UnknownServerError
from barnabas.log.producers.entry import BatchMetadata, CompletedTransaction, ProducerUpdate
from barnabas.log.producers.replay import update_by_batch
from barnabas.log.producers.state import ProducerState
from barnabas.model import NO_OFFSET, NO_TIMESTAMP
from barnabas.records.header import BatchHeader
from barnabas.records.layout import CompressionType, TimestampType
from barnabas.records.policy import AppendOrigin, AppendPolicy

_COMPRESSIONS: Final = {compression.label: compression for compression in CompressionType} | {
    "uncompressed": CompressionType.NONE
}
_TIMESTAMP_TYPES: Final = {kind.label: kind for kind in TimestampType}


class UnexpectedAppendOffset(UnknownServerError):
    """Records from a leader that do not continue this replica's log."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class OffsetsOutOfOrder(UnknownServerError):
    """Records from a leader whose offsets do not rise."""


class AppendInfo:
    """A completed append, or the earlier one that it repeats.

    `first_offset` is -1 if a follower took messages of v0 or v1, which contain only their last. `log_append_time` is -1
    unless the topic sets it, or the append is a duplicate.
    """

    __slots__ = (
        "converted_count",
        "first_offset",
        "is_duplicate",
        "last_offset",
        "log_append_time",
        "log_start_offset",
        "max_timestamp",
        "offset_of_max_timestamp",
        "size_bytes",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        log_start_offset: int,
        size_bytes: int,
        max_timestamp: int = NO_TIMESTAMP,
        offset_of_max_timestamp: int = NO_OFFSET,
        log_append_time: int = NO_TIMESTAMP,
        converted_count: int = 0,
        is_duplicate: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_start_offset = log_start_offset
        self.size_bytes = size_bytes
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.log_append_time = log_append_time
        self.converted_count = converted_count
        self.is_duplicate = is_duplicate


class ProducerChanges:
    """The changes of an append to the producers of its batches, which apply once it is written."""

    __slots__ = ("completed", "duplicate", "ended_verifications", "updates")

    def __init__(self) -> None:
        self.updates: dict[int, ProducerUpdate] = {}
        self.completed: list[CompletedTransaction] = []
        self.ended_verifications: list[int] = []
        self.duplicate: BatchMetadata | None = None


def append_policy(config: LogConfig, *, validate_fully: bool) -> AppendPolicy:
    compression = None if config.compression_type == PRODUCER else _COMPRESSIONS[config.compression_type]
    levels = {
        CompressionType.GZIP: config.compression_gzip_level,
        CompressionType.LZ4: config.compression_lz4_level,
        CompressionType.ZSTD: config.compression_zstd_level,
    }
    return AppendPolicy(
        compression=compression,
        compression_level=None if compression is None else levels.get(compression),
        timestamp_type=_TIMESTAMP_TYPES[config.message_timestamp_type],
        timestamp_before_max_ms=config.timestamp_before_max_ms,
        timestamp_after_max_ms=config.timestamp_after_max_ms,
        magic=config.message_magic,
        is_compacted=config.compact,
        max_message_bytes=config.max_message_bytes,
        validate_fully=validate_fully,
    )


def prepare_producers(
    state: ProducerState,
    headers: list[BatchHeader],
    data: bytes | bytearray | memoryview,
    origin: AppendOrigin,
    verification_guard: int,
    transaction_version: int,
) -> ProducerChanges | None:
    """Checks the batches' producers against their current state; None if no batch has a producer id.

    Raises Kafka's error for a batch that must not be written. The changes say whether a client's batch is in the log
    already.
    """
    changes: ProducerChanges | None = None
    position = 0
    from_client = origin is AppendOrigin.CLIENT
    for header in headers:
        producer_id = header.producer_id
        if producer_id >= 0:
            if changes is None:
                changes = ProducerChanges()
            entry = state.entry(producer_id)
            if from_client and entry is not None:
                duplicate = entry.find_duplicate(
                    header.producer_epoch, header.base_sequence, header.last_sequence
                )
                if duplicate is not None:
                    changes.duplicate = duplicate
                    return changes
            if header.is_transactional:
                if origin is not AppendOrigin.REPLICATION and not header.is_control:
                    state.check_verified(producer_id, header.producer_epoch, verification_guard)
                if not header.is_control or not state.is_of_next_transaction(
                    producer_id, header.producer_epoch
                ):
                    changes.ended_verifications.append(producer_id)
            update = changes.updates.get(producer_id)
            if update is None:
                update = state.prepare_update(
                    producer_id,
                    trusted=origin is AppendOrigin.REPLICATION,
                    checks_sequence=from_client,
                )
                changes.updates[producer_id] = update
            completed = update_by_batch(update, header, data, position, transaction_version)
            if completed is not None:
                changes.completed.append(completed)
        position += header.size_bytes
    return changes
