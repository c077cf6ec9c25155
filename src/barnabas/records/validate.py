"""The checks and changes that a leader applies to records before the log appends them.

The leader checks the header of every batch: size, CRC, magic, compression. It then checks what a client may write, and
assigns offsets, leader epoch and, with LogAppendTime, the time. It does so in place where it can: only in v2 are these
fields outside the CRC, or in the header alone. A large batch in read-only memory gets a separate copy of its first
bytes instead of a full copy.

The leader does not open the records unless something depends on them: a compacted topic needs keys; messages of v0 and
v1 contain their own offsets and timestamps; a conversion or another compression rebuilds them; a header whose
timestamps are out of bounds does not show which records are; and `validate_fully` opens all of them, as Kafka does.

With `only_briefly`, records that would take long to open raise RecordsTakeLong before anything has changed, and the
caller validates them elsewhere.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import mypyc_attr

from barnabas.errors import (
    InvalidRecord,
    MessageTooLarge,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from barnabas.model import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TimestampMs,
)
from barnabas.records.analyze import analyze_records
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import ExpandsTooFar
from barnabas.records.header import (
    COPIED_BYTES_MAX,
    BatchHeader,
    compute_crc,
    entry_size,
    iterate_headers,
    verify_crc,
)
from barnabas.records.layout import (
    ATTRIBUTES_POSITION,
    BASE_OFFSET_LENGTH_EPOCH,
    COMPRESSION_MASK,
    CRC_POSITION,
    INT16,
    INT32,
    INT64,
    KNOWN_ATTRIBUTES,
    LEADER_EPOCH_POSITION,
    LEGACY_ATTRIBUTES_POSITION,
    LEGACY_CRC_POSITION,
    LEGACY_TIMESTAMP_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V0,
    MAGIC_V2,
    MAX_TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_BIT,
    UINT32,
    CompressionType,
)
from barnabas.records.legacy import decode_inner_messages, decompress_wrapper
from barnabas.records.policy import (
    CLIENT,
    COORDINATOR,
    LOG_APPEND_TIME,
    UNCOMPRESSED,
    AppendOrigin,
    AppendPolicy,
)
from barnabas.records.reader import decode_batch, open_records
from barnabas.records.record import Record
from barnabas.records.rejection import RECORD_ERRORS_MAX, RecordError, RejectedRecords
from barnabas.records.rules import RecordRules
from barnabas.records.scan import ScannedRecords, scan_records

# The limits of brief work, a millisecond at most: the decompressed size, and the number of records that are read or
# rebuilt.
SCANNED_BRIEFLY_BYTES: Final = 256 * 1024
SCANNED_BRIEFLY_RECORDS: Final = 4_000
BUILT_BRIEFLY_BYTES: Final = 32 * 1024
BUILT_BRIEFLY_RECORDS: Final = 500


@mypyc_attr(native_class=False)
class RecordsTakeLong(Exception):
    """The records have to be opened, and that takes longer than the caller has time for."""


class ValidatedRecords:
    """Records in the form in which the log appends them; `log_append_time` is -1 unless the topic sets it.

    If there is a `head`, it replaces the first bytes of the data, as many as it has.
    """

    __slots__ = (
        "converted_count",
        "data",
        "first_offset",
        "head",
        "headers",
        "last_offset",
        "log_append_time",
        "max_timestamp",
        "offset_of_max_timestamp",
    )

    def __init__(
        self,
        data: bytes | bytearray | memoryview,
        headers: list[BatchHeader],
        first_offset: Offset,
        last_offset: Offset,
        max_timestamp: TimestampMs,
        offset_of_max_timestamp: Offset,
        log_append_time: TimestampMs,
        converted_count: int,
        head: bytes = b"",
    ) -> None:
        self.data = data
        self.head = head
        self.headers = headers
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.log_append_time = log_append_time
        self.converted_count = converted_count

    def move_to(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> bool:
        """Gives new offsets and a new epoch to records that no log has yet. False if they have to be rebuilt.

        Only compressed messages of v0 have to be rebuilt, because their offsets are inside the compressed data.
        """
        shift = base_offset - self.first_offset
        assert not self.head
        if shift and any(header.magic == MAGIC_V0 and header.is_compressed for header in self.headers):
            return False
        self.data = buffer = _writable(self.data)
        position = 0
        for header in self.headers:
            header.base_offset = Offset(header.base_offset + shift)
            INT64.pack_into(buffer, position, header.base_offset)
            if header.magic >= MAGIC_V2:
                header.partition_leader_epoch = leader_epoch
                INT32.pack_into(buffer, position + LEADER_EPOCH_POSITION, leader_epoch)
            position += header.size_bytes
        self.first_offset = base_offset
        self.last_offset = Offset(self.last_offset + shift)
        if self.offset_of_max_timestamp != NO_OFFSET:
            self.offset_of_max_timestamp = Offset(self.offset_of_max_timestamp + shift)
        return True


def validate_records(
    data: bytes | bytearray | memoryview,
    *,
    base_offset: Offset,
    now_ms: int,
    leader_epoch: LeaderEpoch,
    policy: AppendPolicy,
    origin: AppendOrigin = CLIENT,
    only_briefly: bool = False,
) -> ValidatedRecords:
    """Checks the records of a client or a coordinator as a leader, and turns them into the form that the log appends.

    The first record gets the base offset. Writable data is changed in place where possible. A fault raises Kafka's
    error for it before anything has changed.
    """
    if isinstance(data, memoryview) and len(data) <= COPIED_BYTES_MAX:
        # Compiled code reads and cuts bytes without a call. The batch is copied anyway, to get its offset.
        data = data.tobytes()
    elif only_briefly and len(data) > BUILT_BRIEFLY_BYTES:
        _check_single_batch(data)
    # A coordinator has built its records a moment ago.
    is_own = origin is COORDINATOR
    analyzed = analyze_records(data, max_message_bytes=policy.max_message_bytes, is_own=is_own)
    headers = analyzed.headers
    if not headers:
        raise InvalidRecord(f"no whole batch among {len(data)} bytes of records")
    first = headers[0]
    source = analyzed.source_compression
    if len(headers) > 1 and (first.magic == MAGIC_V2 or source is not UNCOMPRESSED):
        raise InvalidRecord(f"{len(headers)} batches where one is allowed")
    for header in headers:
        _check_batch(header, first, policy, origin)
    target = source if policy.compression is None else policy.compression

    in_place = first.magic == policy.magic
    if source is not UNCOMPRESSED or target is not UNCOMPRESSED:
        in_place = in_place and source is target and first.magic != MAGIC_V0
        # A control batch stays as it was written.
        if first.is_control and source is UNCOMPRESSED:
            in_place = True

    if analyzed.valid_bytes < len(data):
        data = data[: analyzed.valid_bytes]
    if in_place and first.magic == MAGIC_V2:
        max_timestamp = first.max_timestamp
        if not is_own and _must_scan(first, now_ms, policy):
            scanned = _scan_batch(data, first, now_ms, policy, only_briefly)
            max_timestamp = scanned.max_timestamp
            in_place = scanned.offsets_consecutive or source is UNCOMPRESSED
        if in_place:
            return _assign_to_batch(data, first, base_offset, now_ms, leader_epoch, policy, max_timestamp)

    records = _checked_records(data, headers, now_ms, policy, only_briefly)
    if in_place and source is not UNCOMPRESSED:
        # Old clients are known to number the messages of a wrapper wrongly; these are rebuilt.
        in_place = all(record.offset == index for index, record in enumerate(records))
    if in_place:
        return _assign_to_messages(data, headers, records, base_offset, now_ms, policy)
    return _rebuild(records, first, base_offset, now_ms, leader_epoch, policy, target)


def _check_single_batch(data: bytes | bytearray | memoryview) -> None:
    """Many headers take long too. A current client sends one batch of v2."""
    if data[MAGIC_POSITION] < MAGIC_V2 or entry_size(data) != len(data):
        raise RecordsTakeLong


def _opened_bytes_max(
    header: BatchHeader, policy: AppendPolicy, only_briefly: bool, bytes_max: int, records_max: int
) -> int:
    """The decompressed size of a batch; raises RecordsTakeLong if the header alone shows that it takes too long."""
    if not only_briefly:
        return policy.max_decompressed_bytes
    # The framing of a stream takes its time as well: it may have a block every few bytes.
    size_bytes_max = BUILT_BRIEFLY_BYTES if header.is_compressed else bytes_max
    if header.size_bytes > size_bytes_max or header.record_count > records_max:
        raise RecordsTakeLong
    return min(bytes_max, policy.max_decompressed_bytes)


def _too_far(error: ExpandsTooFar, only_briefly: bool) -> Exception:
    """Callers with more time may open more. A client that gets MESSAGE_TOO_LARGE may split its batch."""
    return RecordsTakeLong() if only_briefly else MessageTooLarge(str(error))


def _check_batch(header: BatchHeader, first: BatchHeader, policy: AppendPolicy, origin: AppendOrigin) -> None:
    if header.magic != first.magic:
        raise InvalidRecord(f"a batch of magic {header.magic} follows one of magic {first.magic}")
    if header.magic < MAGIC_V2:
        return
    if origin is CLIENT:
        if header.base_offset != 0:
            raise InvalidRecord(f"the base offset of a new batch must be 0, not {header.base_offset}")
        if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
            raise InvalidRecord(
                f"a batch of {header.record_count} records whose last offset delta is {header.last_offset_delta}"
            )
        if header.is_control:
            raise InvalidRecord("a client may not write control records")
        if header.has_producer_id and header.base_sequence < 0:
            raise InvalidRecord(
                f"a batch of producer {header.producer_id} has the sequence number {header.base_sequence}"
            )
    if policy.magic < MAGIC_V2 and (header.is_transactional or header.has_producer_id):
        raise UnsupportedForMessageFormat(
            f"records of an idempotent or transactional producer cannot be kept in message format v{policy.magic}"
        )


def _must_scan(header: BatchHeader, now_ms: int, policy: AppendPolicy) -> bool:
    """Whether the header leaves open if each of its records may be taken."""
    if policy.validate_fully or policy.is_compacted:
        return True
    if policy.timestamp_type is LOG_APPEND_TIME or header.max_timestamp == NO_TIMESTAMP:
        return header.attributes & TIMESTAMP_TYPE_BIT != 0
    if not policy.limits_timestamps and header.max_timestamp >= 0 and header.base_timestamp >= 0:
        return False
    return (
        header.max_timestamp - now_ms > policy.timestamp_after_max_ms
        or now_ms - header.max_timestamp > policy.timestamp_before_max_ms
        or (
            header.base_timestamp != NO_TIMESTAMP
            and now_ms - header.base_timestamp > policy.timestamp_before_max_ms
        )
    )


def _scan_batch(
    data: bytes | bytearray | memoryview,
    header: BatchHeader,
    now_ms: int,
    policy: AppendPolicy,
    only_briefly: bool,
) -> ScannedRecords:
    bytes_max = _opened_bytes_max(
        header, policy, only_briefly, SCANNED_BRIEFLY_BYTES, SCANNED_BRIEFLY_RECORDS
    )
    try:
        payload, start, end = open_records(data, 0, header, bytes_max)
    except ExpandsTooFar as error:
        raise _too_far(error, only_briefly) from None
    rules = RecordRules(header, now_ms, policy)
    scanned = scan_records(payload, start, end, header, rules)
    rules.finish()
    return scanned


def _checked_records(
    data: bytes | bytearray | memoryview,
    headers: list[BatchHeader],
    now_ms: int,
    policy: AppendPolicy,
    only_briefly: bool,
) -> list[Record]:
    records: list[Record] = []
    position = 0
    for header in headers:
        bytes_max = _opened_bytes_max(
            header, policy, only_briefly, BUILT_BRIEFLY_BYTES, BUILT_BRIEFLY_RECORDS
        )
        try:
            if header.magic < MAGIC_V2 and header.is_compressed:
                batch = _checked_inner_messages(data, position, header, bytes_max)
            else:
                batch = decode_batch(data, position, header=header, max_decompressed_bytes=bytes_max)
        except ExpandsTooFar as error:
            raise _too_far(error, only_briefly) from None
        rules = RecordRules(header, now_ms, policy)
        for record in batch:
            rules.check(record.key is not None, record.timestamp)
        rules.finish()
        records += batch
        position += header.size_bytes
    return records


def _checked_inner_messages(
    data: bytes | bytearray | memoryview, position: int, wrapper: BatchHeader, bytes_max: int
) -> list[Record]:
    payload = decompress_wrapper(data, position, wrapper, bytes_max)
    inner = iterate_headers(payload)
    record_errors: list[RecordError] = []
    inner_position = 0
    for index, header in enumerate(inner):
        if header.magic != wrapper.magic:
            record_errors.append(
                RecordError(index, f"its magic {header.magic} differs from the wrapper's {wrapper.magic}")
            )
        elif header.is_compressed:
            record_errors.append(RecordError(index, "it is compressed within a compressed message"))
        verify_crc(payload, inner_position, header)
        inner_position += header.size_bytes
    if record_errors:
        raise RejectedRecords(record_errors[:RECORD_ERRORS_MAX])
    return decode_inner_messages(payload, inner, wrapper)


def _rebuild(
    records: list[Record],
    first: BatchHeader,
    base_offset: Offset,
    now_ms: int,
    leader_epoch: LeaderEpoch,
    policy: AppendPolicy,
    target: CompressionType,
) -> ValidatedRecords:
    """The records in the topic's format and compression, which a message a record is in v0 and v1 uncompressed."""
    producer_id, producer_epoch = first.producer_id, first.producer_epoch
    if policy.magic < MAGIC_V2:
        producer_id, producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        if target is CompressionType.ZSTD:
            raise UnsupportedCompressionType(f"message format v{policy.magic} has no zstd")
        if any(record.headers for record in records):
            raise UnsupportedForMessageFormat(
                f"records with headers cannot be kept in message format v{policy.magic}"
            )
    log_append_time = TimestampMs(now_ms)
    builder = BatchBuilder(
        magic=policy.magic,
        compression=target,
        compression_level=policy.compression_level,
        timestamp_type=policy.timestamp_type,
        base_offset=base_offset,
        log_append_time=log_append_time,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=first.base_sequence,
        is_transactional=first.is_transactional,
        is_control=first.is_control,
        partition_leader_epoch=leader_epoch,
    )
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    data = builder.build()
    headers = iterate_headers(data)
    for header in headers:
        if header.size_bytes > policy.max_message_bytes:
            raise MessageTooLarge(
                f"a batch of {header.size_bytes} bytes, after its conversion, exceeds the"
                f" {policy.max_message_bytes} that the topic allows"
            )
    return ValidatedRecords(
        data,
        headers,
        base_offset,
        builder.last_offset,
        builder.max_timestamp,
        builder.shallow_offset_of_max_timestamp(),
        log_append_time if policy.timestamp_type is LOG_APPEND_TIME else NO_TIMESTAMP,
        len(records),
    )


def _assign_to_batch(
    data: bytes | bytearray | memoryview,
    header: BatchHeader,
    base_offset: Offset,
    now_ms: int,
    leader_epoch: LeaderEpoch,
    policy: AppendPolicy,
    max_timestamp: TimestampMs,
) -> ValidatedRecords:
    header.base_offset = base_offset
    header.partition_leader_epoch = leader_epoch
    attributes = header.attributes
    log_append_time = NO_TIMESTAMP
    if policy.timestamp_type is LOG_APPEND_TIME:
        max_timestamp = log_append_time = TimestampMs(now_ms)
        attributes |= TIMESTAMP_TYPE_BIT
    else:
        attributes &= ~TIMESTAMP_TYPE_BIT
    is_stamped = attributes != header.attributes or max_timestamp != header.max_timestamp
    head = b""
    if len(data) > COPIED_BYTES_MAX and not is_stamped and not _is_writable(data):
        head = BASE_OFFSET_LENGTH_EPOCH.pack(
            base_offset, header.size_bytes - LOG_OVERHEAD_BYTES, leader_epoch
        )
    elif isinstance(data, bytes) and not is_stamped:
        data = _with_offset(data, base_offset, header, leader_epoch)
    else:
        data = buffer = _writable(data)
        BASE_OFFSET_LENGTH_EPOCH.pack_into(
            buffer, 0, base_offset, header.size_bytes - LOG_OVERHEAD_BYTES, leader_epoch
        )
    if is_stamped:
        header.attributes = attributes & KNOWN_ATTRIBUTES
        header.max_timestamp = max_timestamp
        INT16.pack_into(buffer, ATTRIBUTES_POSITION, header.attributes)
        INT64.pack_into(buffer, MAX_TIMESTAMP_POSITION, max_timestamp)
        header.crc = compute_crc(buffer, 0, header)
        UINT32.pack_into(buffer, CRC_POSITION, header.crc)
    last_offset = Offset(base_offset + header.last_offset_delta)
    return ValidatedRecords(
        data,
        [header],
        base_offset,
        last_offset,
        max_timestamp,
        NO_OFFSET if max_timestamp == NO_TIMESTAMP else last_offset,
        log_append_time,
        0,
        head,
    )


def _with_offset(data: bytes, base_offset: Offset, header: BatchHeader, leader_epoch: LeaderEpoch) -> bytes:
    """The same as BASE_OFFSET_LENGTH_EPOCH in a copy of the batch."""
    out = BytesWriter()
    write_i64_be(out, base_offset)
    write_i32_be(out, header.size_bytes - LOG_OVERHEAD_BYTES)
    write_i32_be(out, leader_epoch)
    out.write(data[BASE_OFFSET_LENGTH_EPOCH.size :])
    return out.getvalue()


def _assign_to_messages(
    data: bytes | bytearray | memoryview,
    headers: list[BatchHeader],
    records: list[Record],
    base_offset: Offset,
    now_ms: int,
    policy: AppendPolicy,
) -> ValidatedRecords:
    """Offsets and timestamps of messages of v0 and v1, or of one wrapper of v1, whose offset is its last message's."""
    buffer = _writable(data)
    log_append_time = NO_TIMESTAMP
    if policy.timestamp_type is LOG_APPEND_TIME:
        log_append_time = TimestampMs(now_ms)
    max_timestamp = NO_TIMESTAMP
    offset_of_max_timestamp = NO_OFFSET
    last_offset = Offset(base_offset + len(records) - 1)
    wrapper_timestamp = max(record.timestamp for record in records)
    position = 0
    for index, header in enumerate(headers):
        offset = last_offset if header.is_compressed else Offset(base_offset + index)
        header.base_offset = offset
        INT64.pack_into(buffer, position, offset)
        if header.magic > MAGIC_V0:
            timestamp = wrapper_timestamp if header.is_compressed else header.max_timestamp
            _stamp_message(buffer, position, header, timestamp, log_append_time)
            if header.max_timestamp > max_timestamp:
                max_timestamp = header.max_timestamp
                offset_of_max_timestamp = offset
        position += header.size_bytes
    return ValidatedRecords(
        buffer,
        headers,
        base_offset,
        last_offset,
        max_timestamp,
        offset_of_max_timestamp,
        log_append_time,
        0,
    )


def _is_writable(data: bytes | bytearray | memoryview) -> bool:
    return isinstance(data, bytearray) or (isinstance(data, memoryview) and not data.readonly)


def _writable(data: bytes | bytearray | memoryview) -> bytearray | memoryview:
    if isinstance(data, bytes) or not _is_writable(data):
        return bytearray(data)
    return data


def _stamp_message(
    buffer: bytearray | memoryview,
    position: int,
    header: BatchHeader,
    timestamp: TimestampMs,
    log_append_time: TimestampMs,
) -> None:
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT
    if log_append_time != NO_TIMESTAMP:
        attributes |= TIMESTAMP_TYPE_BIT
        timestamp = log_append_time
    if attributes == header.attributes and timestamp == header.max_timestamp:
        return
    header.attributes = attributes & (COMPRESSION_MASK | TIMESTAMP_TYPE_BIT)
    header.base_timestamp = header.max_timestamp = timestamp
    buffer[position + LEGACY_ATTRIBUTES_POSITION] = header.attributes
    INT64.pack_into(buffer, position + LEGACY_TIMESTAMP_POSITION, timestamp)
    header.crc = compute_crc(buffer, position, header)
    UINT32.pack_into(buffer, position + LEGACY_CRC_POSITION, header.crc)
