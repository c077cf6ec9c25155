"""Offsets of partitions, as far as brokers know them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.errors import AdminErrors
from barnabas.client.admin.results import IsolationLevel, OffsetSpec
from barnabas.errors import KafkaError
from barnabas.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """The offsets of a partition's records; the end is exclusive."""

    first_offset: int
    end_offset: int

    def nearest(self, offset: int) -> int:
        """The offset, or the end of the range that is nearer."""
        return min(max(offset, self.first_offset), self.end_offset)


def log_ranges(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogRange]:
    """The ranges of all partitions; raises if one is not known."""
    wanted = list(partitions)
    if not wanted:
        return {}
    first = admin.list_offsets(dict.fromkeys(wanted, int(OffsetSpec.EARLIEST)))
    end = admin.list_offsets(dict.fromkeys(wanted, int(OffsetSpec.LATEST)))
    return {
        each: LogRange(first_offset=first[each].offset or 0, end_offset=end[each].offset or 0)
        for each in wanted
    }


def available_offsets(
    admin: Admin,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Offsets by timestamp or OffsetSpec, without those of partitions that have no leader or no longer exist."""
    if not wanted:
        return {}
    try:
        listed = admin.list_offsets(wanted, isolation=isolation)
    except AdminErrors as failed:
        listed = dict(failed.results)
    except KafkaError:
        return {}
    return {partition: each.offset for partition, each in listed.items() if each.offset is not None}
