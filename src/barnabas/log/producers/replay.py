"""Bringing producer state up to date from the batches of a log."""

from __future__ import annotations

import logging

from barnabas.log.producers.entry import CompletedTransaction, ProducerUpdate
from barnabas.log.producers.state import ProducerState
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.model import Offset, ProducerId
from barnabas.records.control import parse_end_txn_marker
from barnabas.records.header import BatchHeader
from barnabas.records.layout import ControlRecordType
from barnabas.records.reader import decode_batch

logger = logging.getLogger(__name__)


def update_by_batch(
    update: ProducerUpdate,
    header: BatchHeader,
    data: bytes | bytearray | memoryview,
    position: int,
    transaction_version: int = 0,
) -> CompletedTransaction | None:
    """Adds a batch to the producer's update; the data is looked at only where it is an end of a transaction."""
    if not header.is_control:
        update.append_data(
            producer_epoch=header.producer_epoch,
            first_sequence=header.base_sequence,
            last_sequence=header.last_sequence,
            first_offset=header.base_offset,
            last_offset=header.last_offset,
            timestamp=header.max_timestamp,
            is_transactional=header.is_transactional,
        )
        return None
    # A control batch without records is what the cleaner has left of a transaction that is gone.
    for record in decode_batch(data, position, header=header)[:1]:
        marker = parse_end_txn_marker(record)
        if marker is not None:
            return update.append_end_marker(
                producer_epoch=header.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                is_abort=marker.control_type is ControlRecordType.ABORT,
                offset=header.base_offset,
                timestamp=record.timestamp,
                transaction_version=transaction_version,
            )
    return None


def note_aborted(segment: Segment, state: ProducerState, completed: CompletedTransaction) -> None:
    """Puts an aborted transaction into the index of the segment that holds its marker."""
    if completed.is_aborted:
        segment.transaction_index.append(
            AbortedTransaction(
                ProducerId(completed.producer_id),
                Offset(completed.first_offset),
                Offset(completed.last_offset),
                Offset(state.last_stable_offset(completed)),
            )
        )


def replay_recovered_batch(
    state: ProducerState, segment: Segment, header: BatchHeader, data: bytes, position: int
) -> None:
    """Accounts for a batch of a segment whose indexes are being rebuilt."""
    if header.has_producer_id:
        update = state.prepare_update(header.producer_id, trusted=True, checks_sequence=False)
        completed = update_by_batch(update, header, data, position)
        state.apply(update)
        if completed is not None:
            note_aborted(segment, state, completed)
            state.complete(completed)
    state.map_end_offset = header.next_offset


def rebuild_producer_state(
    state: ProducerState,
    segments: Segments,
    *,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    has_never_seen_producers: bool = False,
) -> None:
    """Loads the newest snapshot that is in range and replays the batches from there up to the end offset.

    On the way a snapshot is taken at the base of each of the last two segments, so that a truncation soon after need
    not replay more. Where there was never a producer with an id, nothing is read and the snapshots are empty.
    """
    last_base_offsets = segments.base_offsets[-2:]
    if has_never_seen_producers:
        for offset in (*last_base_offsets, end_offset):
            state.map_end_offset = offset
            state.take_snapshot()
        return
    knows_no_producers = state.is_empty and state.map_end_offset >= end_offset
    state.truncate_and_reload(log_start_offset, end_offset, now_ms)
    if end_offset > state.map_end_offset and not knows_no_producers:
        for segment in segments.holding(state.map_end_offset, end_offset):
            start_offset = max(segment.base_offset, state.map_end_offset, log_start_offset)
            state.map_end_offset = start_offset
            if segment.base_offset in last_base_offsets:
                state.take_snapshot()
            found = segment.locate(start_offset)
            if found is not None:
                end = segment.locate(end_offset) if segments.floor(end_offset) is segment else None
                _replay(state, segment, found.position, None if end is None else end.position)
    state.map_end_offset = end_offset
    state.take_snapshot()


def _replay(state: ProducerState, segment: Segment, start_position: int, end_position: int | None) -> None:
    for position, header in segment.batches(start_position, end_position):
        if not header.has_producer_id:
            continue
        data = segment.read_batch(position, header) if header.is_control else b""
        update = state.prepare_update(header.producer_id, trusted=True, checks_sequence=False)
        completed = update_by_batch(update, header, data, 0)
        state.apply(update)
        if completed is not None:
            state.complete(completed)
