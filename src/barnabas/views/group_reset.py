"""New offsets for a group, by place or by time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import CommittedOffset
from barnabas.errors import InvalidRequest
from barnabas.model import TopicPartition
from barnabas.views.offsets import log_ranges


class ResetTo(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    SHIFT = "shift"
    TIME = "time"


def new_offsets(
    admin: Admin,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    to: ResetTo,
    value: int = 0,
) -> dict[TopicPartition, int]:
    """The new offset of each partition, within its records.

    `value` is an offset, a number of records to go forward or back, or a time in ms. A shift raises InvalidRequest
    for a partition without a committed offset.
    """
    ranges = log_ranges(admin, partitions)
    if to is ResetTo.TIME:
        found = admin.list_offsets(dict.fromkeys(partitions, max(0, value)))
        return {
            each: ranges[each].end_offset if (offset := found[each].offset) is None else offset
            for each in partitions
        }
    wanted: dict[TopicPartition, int] = {}
    for each in partitions:
        if to is ResetTo.EARLIEST:
            offset = ranges[each].first_offset
        elif to is ResetTo.LATEST:
            offset = ranges[each].end_offset
        elif to is ResetTo.OFFSET:
            offset = value
        elif each in committed:
            offset = committed[each].offset + value
        else:
            raise InvalidRequest(f"the group has no offset for {each} that could be moved")
        wanted[each] = ranges[each].nearest(offset)
    return wanted
