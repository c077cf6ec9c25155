"""The origin of appended records, and the rules that a topic's settings define for them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from barnabas.records.compression import MAX_DECOMPRESSED_BYTES
from barnabas.records.layout import INT32_MAX, MAGIC_V2, CompressionType, TimestampType
from barnabas.records.varint import INT64_MAX


class AppendOrigin(IntEnum):
    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


# Looking a member up in its enum costs more than parsing a field: the append path compares with these.
CLIENT: Final = AppendOrigin.CLIENT
COORDINATOR: Final = AppendOrigin.COORDINATOR
UNCOMPRESSED: Final = CompressionType.NONE
LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME


class AppendPolicy:
    """The rules of a topic's settings for appended records. No compression means the producer's own."""

    __slots__ = (
        "compression",
        "compression_level",
        "is_compacted",
        "limits_timestamps",
        "magic",
        "max_decompressed_bytes",
        "max_message_bytes",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "timestamp_type",
        "validate_fully",
    )

    def __init__(
        self,
        *,
        compression: CompressionType | None = None,
        compression_level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        timestamp_before_max_ms: int = INT64_MAX,
        timestamp_after_max_ms: int = INT64_MAX,
        magic: int = MAGIC_V2,
        is_compacted: bool = False,
        validate_fully: bool = False,
        max_message_bytes: int = INT32_MAX,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self.compression = compression
        self.compression_level = compression_level
        self.timestamp_type = timestamp_type
        self.timestamp_before_max_ms = timestamp_before_max_ms
        self.timestamp_after_max_ms = timestamp_after_max_ms
        # To compare with such large numbers takes as long as to parse the header.
        self.limits_timestamps = min(timestamp_before_max_ms, timestamp_after_max_ms) < INT64_MAX
        self.magic = magic
        self.is_compacted = is_compacted
        self.validate_fully = validate_fully
        self.max_message_bytes = max_message_bytes
        self.max_decompressed_bytes = max_decompressed_bytes
