"""The indexes of a segment and what the list of side files says of them."""

from __future__ import annotations

from barnabas.log.names import (
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file,
)
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.sparse_index import CorruptIndex
from barnabas.log.side_files import SideFiles


def expect_listed(segment: Segment, listed: SideFiles, *, is_current: bool) -> None:
    """Makes the indexes compare themselves with the list at their first use, or in `sanity_check`.

    Only a list that `is_current` is reliable before that. Raises CorruptIndex for a segment that the list does not
    know, or whose transaction index has appeared or disappeared.
    """
    offset_name = segment_file(segment.base_offset, OFFSET_INDEX_SUFFIX)
    time_name = segment_file(segment.base_offset, TIME_INDEX_SUFFIX)
    transaction_name = segment_file(segment.base_offset, TRANSACTION_INDEX_SUFFIX)
    if offset_name not in listed or time_name not in listed:
        raise CorruptIndex(f"the list of side files does not know segment {segment.path}")
    if segment.transaction_index.exists != (transaction_name in listed):
        raise CorruptIndex(f"transaction index {segment.transaction_index.path} has appeared or disappeared")
    offsets, times = listed[offset_name], listed[time_name]
    if offsets is not None:
        segment.offset_index.expect(offsets, is_current=is_current)
    if times is not None:
        segment.time_index.expect(times, is_current=is_current)
    aborted = listed.get(transaction_name)
    if aborted is not None:
        segment.transaction_index.expect(aborted)


def digests_of(segment: Segment) -> SideFiles:
    """The digests of the indexes, for the list."""
    found: SideFiles = {
        segment_file(segment.base_offset, OFFSET_INDEX_SUFFIX): segment.offset_index.digest(),
        segment_file(segment.base_offset, TIME_INDEX_SUFFIX): segment.time_index.digest(),
    }
    if segment.transaction_index.exists:
        found[segment_file(segment.base_offset, TRANSACTION_INDEX_SUFFIX)] = (
            segment.transaction_index.digest()
        )
    return found
