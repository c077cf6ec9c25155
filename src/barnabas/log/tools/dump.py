"""The content of a file of a log directory, one row per entry, for every kind of file.

A row is a dictionary: the command line prints it as text or as JSON. Files are read as they are, damaged or not. Where
a file becomes invalid there is a row with the key "fault", and its position, and the dump of that file ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from struct import Struct
from typing import Any, Final

from barnabas.errors import KafkaError, KafkaStorageError, UnsupportedCompressionType
from barnabas.log import checkpoints, names
from barnabas.log.checkpoints import BadCheckpoint
from barnabas.log.file_system import READ, FileSystem
from barnabas.log.producers.snapshot import decode_snapshot
from barnabas.log.segment.offset_index import ENTRY as OFFSET_ENTRY
from barnabas.log.segment.time_index import ENTRY as TIME_ENTRY
from barnabas.log.segment.transaction_index import ENTRY as TRANSACTION_ENTRY
from barnabas.log.side_files import parse_side_files
from barnabas.log.tools.walk import BadBatch, FoundBatch, walk_batches
from barnabas.records.control import control_record_type, parse_end_txn_marker
from barnabas.records.header import BatchHeader, compute_crc
from barnabas.records.layout import COMPRESSION_MASK
from barnabas.records.reader import decode_batch
from barnabas.records.record import Record

Row = dict[str, Any]


class UnknownFileKind(KafkaStorageError):
    """A file whose name is none that a log directory knows."""


def dump_file(fs: FileSystem, path: str, *, with_records: bool = False) -> Iterator[Row]:
    name = os.path.basename(path)
    parsed = names.parse_segment_file(name)
    if name == names.CLEAN_SHUTDOWN:
        stop = checkpoints.read_clean_shutdown(fs, path)
        return iter([{"broker_epoch": None if stop is None else stop.broker_epoch}])
    if parsed is None:
        rows = _TEXT_FILES.get(name)
        if rows is None:
            raise UnknownFileKind(f"{path} is not named as any file of a log directory")
        return _dump_text(fs, path, rows)
    if parsed.kind == names.LOG_SUFFIX:
        return _dump_log(fs, path, with_records)
    if parsed.kind == names.PRODUCER_SNAPSHOT_SUFFIX:
        return _dump_snapshot(fs, path)
    return _dump_index(fs, path, parsed)


def _dump_log(fs: FileSystem, path: str, with_records: bool) -> Iterator[Row]:
    file = fs.open(path, READ)
    try:
        for batch in walk_batches(file, file.size_bytes()):
            row = _batch_row(batch)
            try:
                records = decode_batch(batch.data, batch.position_in_data, header=batch.header)
            except KafkaError as error:
                row["fault"] = str(error)
                records = []
            yield row
            if with_records:
                for record in records:
                    yield _record_row(batch.header, record)
    except BadBatch as error:
        yield {"position": error.position, "fault": error.what}


def _batch_row(batch: FoundBatch) -> Row:
    header = batch.header
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "partition_leader_epoch": header.partition_leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.base_timestamp if header.has_delete_horizon else None,
        "position": batch.position,
        "timestamp_type": header.timestamp_type.label,
        "max_timestamp": header.max_timestamp,
        "size_bytes": header.size_bytes,
        "magic": header.magic,
        "compression": _compression_label(header),
        "crc": header.crc,
        "is_valid": compute_crc(batch.data, batch.position_in_data, header) == header.crc,
    }


def _compression_label(header: BatchHeader) -> str:
    try:
        return header.compression.label
    except UnsupportedCompressionType:
        return str(header.attributes & COMPRESSION_MASK)


def _record_row(header: BatchHeader, record: Record) -> Row:
    row: Row = {
        "offset": record.offset,
        "timestamp_type": header.timestamp_type.label,
        "timestamp": record.timestamp,
        "sequence": record.sequence,
        "key": _hex(record.key),
        "value": _hex(record.value),
        "headers": [[name, _hex(value)] for name, value in record.headers],
    }
    if header.is_control:
        row["control"] = control_record_type(record.key).name
        marker = parse_end_txn_marker(record)
        if marker is not None:
            row["coordinator_epoch"] = marker.coordinator_epoch
    return row


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _offset_row(base_offset: int, relative_offset: int, position: int) -> Row:
    return {"offset": base_offset + relative_offset, "position": position}


def _time_row(base_offset: int, timestamp: int, relative_offset: int) -> Row:
    return {"timestamp": timestamp, "offset": base_offset + relative_offset}


def _transaction_row(
    _: int, version: int, producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int
) -> Row:
    return {
        "version": version,
        "producer_id": producer_id,
        "first_offset": first_offset,
        "last_offset": last_offset,
        "last_stable_offset": last_stable_offset,
    }


_INDEXES: Final[dict[str, tuple[Struct, Callable[..., Row]]]] = {
    names.OFFSET_INDEX_SUFFIX: (OFFSET_ENTRY, _offset_row),
    names.TIME_INDEX_SUFFIX: (TIME_ENTRY, _time_row),
    names.TRANSACTION_INDEX_SUFFIX: (TRANSACTION_ENTRY, _transaction_row),
}


def _dump_index(fs: FileSystem, path: str, name: names.SegmentFileName) -> Iterator[Row]:
    entry, row = _INDEXES[name.kind]
    data = fs.read_file(path)
    cut_bytes = len(data) % entry.size
    # The zeros at the end of a preallocated file are no entries.
    used_bytes = -(-len(data.rstrip(b"\0")) // entry.size) * entry.size
    for fields in entry.iter_unpack(data[: min(used_bytes, len(data) - cut_bytes)]):
        yield row(name.base_offset, *fields)
    if cut_bytes:
        yield {
            "position": len(data) - cut_bytes,
            "fault": f"{cut_bytes} bytes are not an entry of {entry.size} bytes",
        }


def _dump_snapshot(fs: FileSystem, path: str) -> Iterator[Row]:
    try:
        entries = decode_snapshot(fs.read_file(path), path)
    except KafkaError as error:
        yield {"position": 0, "fault": str(error)}
        return
    for entry in entries:
        batch = entry.batches[-1] if entry.batches else None
        yield {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": None
            if entry.current_txn_first_offset < 0
            else entry.current_txn_first_offset,
            "last_timestamp": entry.last_timestamp,
            "first_sequence": -1 if batch is None else batch.first_sequence,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_data_offset,
            "offset_delta": entry.last_offset_delta,
        }


def _dump_text(fs: FileSystem, path: str, rows: Callable[[bytes, str], list[Row]]) -> Iterator[Row]:
    try:
        yield from rows(fs.read_file(path), path)
    except BadCheckpoint as error:
        yield {"position": 0, "fault": str(error)}


def _offset_rows(data: bytes, path: str) -> list[Row]:
    return [
        {"topic": partition.topic, "partition": partition.partition, "offset": offset}
        for partition, offset in checkpoints.parse_offsets(data, path).items()
    ]


def _epoch_rows(data: bytes, path: str) -> list[Row]:
    return [
        {"leader_epoch": epoch, "start_offset": offset}
        for epoch, offset in checkpoints.parse_epochs(data, path)
    ]


def _topic_id_rows(data: bytes, path: str) -> list[Row]:
    return [{"topic_id": checkpoints.id_to_text(checkpoints.parse_topic_id(data, path))}]


def _meta_rows(data: bytes, path: str) -> list[Row]:
    meta = checkpoints.parse_meta_properties(data, path)
    return [asdict(meta) | {"log_dirs": list(meta.log_dirs)}]


def _side_file_rows(data: bytes, path: str) -> list[Row]:
    listed = parse_side_files(data)
    if listed is None:
        raise checkpoints.BadCheckpoint(f"{path} does not have the checksum that it names")
    return [
        {
            "file": name,
            "size_bytes": None if digest is None else digest.size_bytes,
            "checksum": None if digest is None else f"{digest.checksum:08x}",
        }
        for name, digest in listed.files.items()
    ]


_TEXT_FILES: Final[dict[str, Callable[[bytes, str], list[Row]]]] = {
    names.RECOVERY_POINT_CHECKPOINT: _offset_rows,
    names.LOG_START_OFFSET_CHECKPOINT: _offset_rows,
    names.REPLICATION_OFFSET_CHECKPOINT: _offset_rows,
    names.CLEANER_OFFSET_CHECKPOINT: _offset_rows,
    names.LOG_START_OFFSET_CHECKPOINT + names.COPY_SUFFIX: _offset_rows,
    names.CLEANER_OFFSET_CHECKPOINT + names.COPY_SUFFIX: _offset_rows,
    names.SIDE_FILES: _side_file_rows,
    names.LEADER_EPOCH_CHECKPOINT: _epoch_rows,
    names.PARTITION_METADATA: _topic_id_rows,
    names.META_PROPERTIES: _meta_rows,
}
