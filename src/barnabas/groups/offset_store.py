"""The committed offsets of groups, and those that wait for the end of a transaction.

Offsets of an open transaction are kept beside the committed ones until its marker arrives. Then each takes effect
unless a later record was written for the same partition in the meantime: that is why the store keeps a record's own
offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from barnabas.groups.records import OffsetCommitRecord
from barnabas.model import Offset, ProducerId, TopicPartition
from barnabas.protocol.messages.offset_commit_value import OffsetCommitValue


class StoredOffset:
    __slots__ = ("record_offset", "value")

    def __init__(self, value: OffsetCommitValue, record_offset: Offset) -> None:
        self.value: Final = value
        self.record_offset: Final = record_offset


GroupOffsets: TypeAlias = dict[TopicPartition, StoredOffset]
_NO_OFFSETS: Final[GroupOffsets] = {}


class OffsetStore:
    __slots__ = ("_committed", "_pending", "_producers")

    def __init__(self) -> None:
        self._committed: dict[str, GroupOffsets] = {}
        self._pending: dict[ProducerId, dict[str, GroupOffsets]] = {}
        # The open transactions of a group, in the order of their first offset.
        self._producers: dict[str, dict[ProducerId, None]] = {}

    def committed(self, group_id: str) -> GroupOffsets:
        """Not to be changed, nor kept while records are applied."""
        return self._committed.get(group_id, _NO_OFFSETS)

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._producers

    def has_pending(self, group_id: str, partition: TopicPartition) -> bool:
        return any(
            partition in self._pending[producer_id][group_id]
            for producer_id in self._producers.get(group_id, ())
        )

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """All that the group has an offset for, committed or pending, each once."""
        found = dict.fromkeys(self.committed(group_id))
        for producer_id in self._producers.get(group_id, ()):
            found.update(dict.fromkeys(self._pending[producer_id][group_id]))
        return list(found)

    def group_ids(self) -> list[str]:
        return list(dict.fromkeys((*self._committed, *self._producers)))

    def count(self) -> int:
        return sum(map(len, self._committed.values()))

    def apply(
        self, record: OffsetCommitRecord, record_offset: Offset, producer_id: ProducerId | None
    ) -> None:
        """A record of the log takes effect; `producer_id` if it is part of a transaction."""
        group_id = record.key.group
        partition = TopicPartition(record.key.topic, record.key.partition)
        if record.value is None:
            self._forget(group_id, partition)
        elif producer_id is None:
            self._committed.setdefault(group_id, {})[partition] = StoredOffset(record.value, record_offset)
        else:
            by_group = self._pending.setdefault(producer_id, {})
            by_group.setdefault(group_id, {})[partition] = StoredOffset(record.value, record_offset)
            self._producers.setdefault(group_id, {})[producer_id] = None

    def _forget(self, group_id: str, partition: TopicPartition) -> None:
        offsets = self._committed.get(group_id)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._committed[group_id]
        for producer_id in list(self._producers.get(group_id, ())):
            pending = self._pending[producer_id][group_id]
            pending.pop(partition, None)
            if not pending:
                del self._pending[producer_id][group_id]
                if not self._pending[producer_id]:
                    del self._pending[producer_id]
                self._close_transaction(producer_id, (group_id,))

    def end_transaction(self, producer_id: ProducerId, *, is_committed: bool) -> None:
        by_group = self._pending.pop(producer_id, {})
        self._close_transaction(producer_id, by_group)
        if not is_committed:
            return
        for group_id, pending in by_group.items():
            offsets = self._committed.setdefault(group_id, {})
            for partition, stored in pending.items():
                known = offsets.get(partition)
                if known is None or known.record_offset < stored.record_offset:
                    offsets[partition] = stored

    def _close_transaction(self, producer_id: ProducerId, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            producers = self._producers[group_id]
            del producers[producer_id]
            if not producers:
                del self._producers[group_id]
