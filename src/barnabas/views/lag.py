"""The lag of consumer groups: how far their committed offsets are behind the ends of the logs."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import GroupDescription, GroupMember, OffsetSpec
from barnabas.model import TopicPartition
from barnabas.views.offsets import available_offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """A partition that a group has committed or reads. Offsets are None where they are not known."""

    group_id: str
    partition: TopicPartition
    committed_offset: int | None
    end_offset: int | None
    metadata: str
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        return lag_of(self.committed_offset, self.end_offset)


def lag_of(committed_offset: int | None, end_offset: int | None) -> int | None:
    """The number of offsets that a group has yet to read; None if one of the two is not known."""
    if committed_offset is None or end_offset is None:
        return None
    # A group may have committed an offset of a log that was truncated since.
    return max(0, end_offset - committed_offset)


def group_lag(admin: Admin, group: GroupDescription) -> list[PartitionLag]:
    """The lag for each partition with a committed offset or a member that reads it."""
    committed = admin.list_group_offsets(group.group_id)
    readers = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted(committed.keys() | readers.keys())
    ends = available_offsets(admin, dict.fromkeys(partitions, int(OffsetSpec.LATEST)))
    return [
        PartitionLag(
            group_id=group.group_id,
            partition=partition,
            committed_offset=committed[partition].offset if partition in committed else None,
            end_offset=ends.get(partition),
            metadata=committed[partition].metadata if partition in committed else "",
            member=readers.get(partition),
        )
        for partition in partitions
    ]
