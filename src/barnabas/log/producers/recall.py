"""Finds earlier batches of a producer again: a snapshot keeps only the last one.

A client that was cut off by a restart sends unanswered batches again, up to five. Those before the last one then look
out of order. Only then is the log read, and no further back than is worth the time.
"""

from __future__ import annotations

from typing import Final

from barnabas.log.producers.entry import BATCHES_RETAINED, BatchMetadata, ProducerEntry
from barnabas.log.segment.segments import Segments

# Five batches in flight, and those of other producers in between. Headers alone are read, so it is milliseconds.
RECALL_BYTES_MAX: Final = 32 << 20


def recall_batches(segments: Segments, entry: ProducerEntry) -> None:
    """Gives the entry back the batches that stand before its first one in the log."""
    entry.is_partial = False
    if not entry.batches:
        return
    end_offset = entry.batches[0].first_offset
    remaining_bytes = RECALL_BYTES_MAX
    index = segments.floor_index(end_offset)
    while index >= 0 and remaining_bytes > 0 and len(entry.batches) < BATCHES_RETAINED:
        segment = segments.all[index]
        found = segment.locate(end_offset)
        end_position = segment.size_bytes if found is None else found.position
        start_position = segment.batch_position_before(end_position - remaining_bytes)
        earlier = [
            BatchMetadata(
                header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
            )
            for _, header in segment.batches(start_position, end_position)
            if header.producer_id == entry.producer_id
            and header.producer_epoch == entry.producer_epoch
            and not header.is_control
        ]
        entry.batches = (earlier + entry.batches)[-BATCHES_RETAINED:]
        remaining_bytes -= end_position - start_position
        index -= 1
