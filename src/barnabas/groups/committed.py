"""Groups according to their committed records: the source of ListGroups, the descriptions and the metrics.

The machine decides from the latest state of groups, which depends on records that are appended and may still be lost
with the leadership. A group with such records is shown here in its state before them. The records change the shown
state when they are committed, one by one, in the order of the log. A group without such records is shown in its current
state.

State that a classic group does not store (members that join, its state) is shown at once, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from barnabas.groups.classic_group import ClassicGroup
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.consumer_records import CONSUMER_GROUP_METADATA, ConsumerGroupRecord, apply_record
from barnabas.groups.records import GroupMetadataRecord

Group: TypeAlias = ClassicGroup | ConsumerGroup


class _Shown:
    __slots__ = ("group", "record_count")

    def __init__(self, group: Group | None) -> None:
        self.group = group
        # The records of the group that are appended and not committed.
        self.record_count = 0


class CommittedGroups:
    __slots__ = ("_classic", "_consumer", "_shown")

    def __init__(self, classic: dict[str, ClassicGroup], consumer: dict[str, ConsumerGroup]) -> None:
        """The groups in their latest state."""
        self._classic = classic
        self._consumer = consumer
        self._shown: dict[str, _Shown] = {}

    def __iter__(self) -> Iterator[Group]:
        shown = self._shown
        for classic_group in self._classic.values():
            if classic_group.group_id not in shown:
                yield classic_group
        for consumer_group in self._consumer.values():
            if consumer_group.group_id not in shown:
                yield consumer_group
        for each in shown.values():
            if each.group is not None:
                yield each.group

    def find(self, group_id: str) -> Group | None:
        shown = self._shown.get(group_id)
        return self._latest(group_id) if shown is None else shown.group

    def _latest(self, group_id: str) -> Group | None:
        return self._classic.get(group_id) or self._consumer.get(group_id)

    def has_uncommitted(self, group_id: str) -> bool:
        return group_id in self._shown

    def keep(self, group_id: str, group: Group | None) -> None:
        """The group changes ahead of the records that say so. Until they are committed, this one is shown."""
        if group_id not in self._shown:
            self._shown[group_id] = _Shown(group.copy() if isinstance(group, ConsumerGroup) else group)

    def release(self, group_id: str) -> None:
        """The records that the group was changed ahead of are committed, or are not written at all."""
        shown = self._shown.get(group_id)
        if shown is not None and not shown.record_count:
            del self._shown[group_id]

    def appended(self, record: ConsumerGroupRecord | GroupMetadataRecord) -> None:
        """The record is in the log and not committed. It has not changed the latest state yet."""
        group_id = group_id_of(record)
        self.keep(group_id, self._latest(group_id))
        self._shown[group_id].record_count += 1

    def committed(self, record: ConsumerGroupRecord | GroupMetadataRecord) -> None:
        """The oldest of the records that were appended is committed."""
        group_id = group_id_of(record)
        shown = self._shown[group_id]
        if isinstance(record, ConsumerGroupRecord):
            shown.group = _after(shown.group, record)
        elif record.value is not None:
            # The group is ahead of its record, unless it has been deleted in the meantime.
            shown.group = self._classic.get(group_id) or ClassicGroup.from_value(group_id, record.value)
        elif isinstance(shown.group, ClassicGroup):
            shown.group = None
        shown.record_count -= 1
        self.release(group_id)


def group_id_of(record: ConsumerGroupRecord | GroupMetadataRecord) -> str:
    return record.group_id if isinstance(record, ConsumerGroupRecord) else record.key.group


def _after(group: Group | None, record: ConsumerGroupRecord) -> Group | None:
    if isinstance(group, ConsumerGroup):
        if record.value is None and record.about == CONSUMER_GROUP_METADATA:
            return None
    elif record.value is None:
        return group
    else:
        group = ConsumerGroup(record.group_id)
    apply_record(group, record)
    return group
