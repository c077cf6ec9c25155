"""Work on records that may take long, as messages: a job goes to a worker process, its result comes back.

Both are tuples of plain values, marshalled. The worker calls `run_job` and nothing else; the broker makes jobs and
reads results with the other functions here. An error of Kafka's that the work raises is raised where its result is
read.

    job      kind, arguments
    result   True, values            or      False, error code, message, errors of single records or None
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any, Final

from barnabas.errors import InvalidTimestamp, KafkaError, MessageTooLarge, error_for_code
from barnabas.model import NO_LEADER_EPOCH, LeaderEpoch, Offset, TimestampMs
from barnabas.records.convert import ConvertedRecords, down_convert
from barnabas.records.header import iterate_headers
from barnabas.records.layout import CompressionType, TimestampType
from barnabas.records.policy import AppendPolicy
from barnabas.records.rejection import RecordError, RejectedRecords, RejectedTimestamps
from barnabas.records.search import find_timestamp
from barnabas.records.validate import ValidatedRecords, validate_records

VALIDATE: Final = "validate"
DOWN_CONVERT: Final = "down-convert"
FIND_TIMESTAMP: Final = "find-timestamp"

# A reader of an old format gets this much converted data at a time, and at least one batch. It fetches the rest later.
DOWN_CONVERTED_MAX_BYTES: Final = 8 << 20

Data = bytes | bytearray | memoryview


def validate_job(data: Data, policy: AppendPolicy, base_offset: int, now_ms: int) -> bytes:
    """Validates records as a leader does; a base offset other than that of the log's end can be changed later."""
    wire_policy = (
        None if policy.compression is None else int(policy.compression),
        policy.compression_level,
        int(policy.timestamp_type),
        policy.timestamp_before_max_ms,
        policy.timestamp_after_max_ms,
        policy.magic,
        policy.is_compacted,
        policy.validate_fully,
        policy.max_message_bytes,
        policy.max_decompressed_bytes,
    )
    return marshal.dumps((VALIDATE, bytes(data), wire_policy, base_offset, now_ms))


def down_convert_job(data: bytes, to_magic: int, first_offset: int) -> bytes:
    return marshal.dumps((DOWN_CONVERT, data, to_magic, first_offset))


def find_timestamp_job(data: bytes, timestamp: int, start_offset: int, *, is_exact: bool) -> bytes:
    return marshal.dumps((FIND_TIMESTAMP, data, timestamp, start_offset, is_exact))


def run_job(job: bytes) -> bytes:
    """The result of a job, which may be an error of Kafka's."""
    kind, *arguments = marshal.loads(job)
    try:
        return marshal.dumps((True, *_KINDS[kind](*arguments)))
    except (RejectedRecords, RejectedTimestamps) as error:
        return marshal.dumps((False, error.code, str(error), [tuple(each) for each in error.record_errors]))
    except KafkaError as error:
        return marshal.dumps((False, error.code, str(error), None))
    except MemoryError:
        return marshal.dumps(
            (False, MessageTooLarge.code, "the batch expands to more than the broker can convert", None)
        )


def validated_records(result: bytes) -> ValidatedRecords:
    data, first_offset, last_offset, *rest = _values(result)
    max_timestamp, offset_of_max_timestamp, log_append_time, converted_count = rest
    return ValidatedRecords(
        data,
        iterate_headers(data),
        Offset(first_offset),
        Offset(last_offset),
        TimestampMs(max_timestamp),
        Offset(offset_of_max_timestamp),
        TimestampMs(log_append_time),
        converted_count,
    )


def converted_records(result: bytes) -> ConvertedRecords:
    data, converted_count = _values(result)
    return ConvertedRecords(data=data, converted_count=converted_count)


def found_timestamp(result: bytes) -> tuple[TimestampMs, Offset] | None:
    """The record's timestamp and offset."""
    found: tuple[TimestampMs, Offset] | None = _values(result)[0]
    return found


def _validate(data: bytes, wire_policy: tuple[Any, ...], base_offset: int, now_ms: int) -> tuple[Any, ...]:
    compression, level, timestamp_type, before_max_ms, after_max_ms, magic, *rest = wire_policy
    is_compacted, validate_fully, max_message_bytes, max_decompressed_bytes = rest
    validated = validate_records(
        bytearray(data),
        base_offset=Offset(base_offset),
        now_ms=now_ms,
        leader_epoch=LeaderEpoch(NO_LEADER_EPOCH),
        policy=AppendPolicy(
            compression=None if compression is None else CompressionType(compression),
            compression_level=level,
            timestamp_type=TimestampType(timestamp_type),
            timestamp_before_max_ms=before_max_ms,
            timestamp_after_max_ms=after_max_ms,
            magic=magic,
            is_compacted=is_compacted,
            validate_fully=validate_fully,
            max_message_bytes=max_message_bytes,
            max_decompressed_bytes=max_decompressed_bytes,
        ),
    )
    return (
        bytes(validated.data),
        validated.first_offset,
        validated.last_offset,
        validated.max_timestamp,
        validated.offset_of_max_timestamp,
        validated.log_append_time,
        validated.converted_count,
    )


def _down_convert(data: bytes, to_magic: int, first_offset: int) -> tuple[Any, ...]:
    converted = down_convert(
        data, to_magic=to_magic, first_offset=Offset(first_offset), max_bytes=DOWN_CONVERTED_MAX_BYTES
    )
    return converted.data, converted.converted_count


def _find_timestamp(data: bytes, timestamp: int, start_offset: int, is_exact: bool) -> tuple[Any, ...]:
    return (find_timestamp(data, timestamp, start_offset, is_exact=is_exact),)


_KINDS: Final[dict[str, Callable[..., tuple[Any, ...]]]] = {
    VALIDATE: _validate,
    DOWN_CONVERT: _down_convert,
    FIND_TIMESTAMP: _find_timestamp,
}


def _values(result: bytes) -> list[Any]:
    succeeded, *values = marshal.loads(result)
    if succeeded:
        return list(values)
    code, message, record_errors = values
    if record_errors is None:
        raise error_for_code(code, message)
    errors = [RecordError(*each) for each in record_errors]
    raise RejectedTimestamps(errors) if code == InvalidTimestamp.code else RejectedRecords(errors)
