"""The committed offsets of groups, those that wait for the end of a transaction, and those in flight.

A record takes effect when it is committed, in the order of the log. Until then it is in flight: the offset before it
is fetched, and a client that wants stable offsets has to wait.

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
_NONE_IN_FLIGHT: Final[dict[TopicPartition, int]] = {}


class OffsetStore:
    __slots__ = ("_committed", "_in_flight", "_pending", "_producers")

    def __init__(self) -> None:
        self._committed: dict[str, GroupOffsets] = {}
        self._pending: dict[ProducerId, dict[str, GroupOffsets]] = {}
        # The open transactions of a group, in the order of their first offset.
        self._producers: dict[str, dict[ProducerId, None]] = {}
        # How many records of a partition are appended and not committed.
        self._in_flight: dict[str, dict[TopicPartition, int]] = {}

    def committed(self, group_id: str) -> GroupOffsets:
        """Not to be changed, nor kept while records are applied."""
        return self._committed.get(group_id, _NO_OFFSETS)

    def may_change(self, group_id: str) -> bool:
        """Whether the group has offsets in an open transaction or in flight."""
        return group_id in self._producers or group_id in self._in_flight

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction or a record in flight may change the offset of the partition."""
        if self._in_flight and partition in self._in_flight.get(group_id, _NONE_IN_FLIGHT):
            return True
        return any(
            partition in self._pending[producer_id][group_id]
            for producer_id in self._producers.get(group_id, ())
        )

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """All that the group has an offset for: committed, in a transaction or in flight; each once."""
        found = dict.fromkeys(self.committed(group_id))
        for producer_id in self._producers.get(group_id, ()):
            found.update(dict.fromkeys(self._pending[producer_id][group_id]))
        found.update(dict.fromkeys(self._in_flight.get(group_id, _NONE_IN_FLIGHT)))
        return list(found)

    def group_ids(self) -> list[str]:
        """All that have an offset of any kind."""
        return list(dict.fromkeys((*self._committed, *self._producers, *self._in_flight)))

    def committed_group_ids(self) -> list[str]:
        return list(self._committed)

    def count(self) -> int:
        return sum(map(len, self._committed.values()))

    def hold(self, record: OffsetCommitRecord) -> None:
        """The record is appended and not committed."""
        in_flight = self._in_flight.setdefault(record.key.group, {})
        partition = TopicPartition(record.key.topic, record.key.partition)
        in_flight[partition] = in_flight.get(partition, 0) + 1

    def release(self, record: OffsetCommitRecord) -> None:
        """The record is committed: `apply` follows."""
        in_flight = self._in_flight[record.key.group]
        partition = TopicPartition(record.key.topic, record.key.partition)
        in_flight[partition] -= 1
        if not in_flight[partition]:
            del in_flight[partition]
            if not in_flight:
                del self._in_flight[record.key.group]

    def apply(
        self, record: OffsetCommitRecord, record_offset: Offset, producer_id: ProducerId | None
    ) -> None:
        """A committed record takes effect; `producer_id` if it is part of a transaction."""
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
