"""The coordinator of the groups whose records are in one partition of `__consumer_offsets`.

Loading is `replay` of all batches of the partition in order, then `loaded`. After that requests, timers, appends
and commits may come in any order; a method that decides returns what the shell is to do (see `primitives.decision`).

Two states are kept apart as long as records are appended and not committed (in a cluster, until the in-sync replicas
have them):

- The latest state of groups, from which the machine decides. A classic group is ahead of its record; a consumer group
  changes, and a group is deleted, when the records are appended.
- What is committed, which is all that anybody sees. Offsets take effect when their records are committed, in the order
  of the log; see `offset_store`. Groups are shown without the records that are not committed; see `committed`.

A coordinator that loses its partition is dropped with both. The next one loads what is committed. A record that cannot
be read is logged and skipped: one bad record must not block all groups of a partition.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.errors import GroupIdNotFound, InvalidRecord, NonEmptyGroup
from barnabas.groups.caller import Caller
from barnabas.groups.classic_group import ClassicGroup
from barnabas.groups.classic_members import ClassicMembers
from barnabas.groups.committed import group_id_of
from barnabas.groups.consumer_describe import describe_consumer_group
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.consumer_membership import ConsumerMembership
from barnabas.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from barnabas.groups.consumer_records import (
    CONSUMER_GROUP_METADATA,
    CONSUMER_GROUP_REGEX,
    ConsumerGroupRecord,
    apply_record,
    consumer_group_tombstones,
)
from barnabas.groups.counts import GroupCounts
from barnabas.groups.group_table import GroupTable
from barnabas.groups.member_updates import MemberUpdates
from barnabas.groups.membership import Membership
from barnabas.groups.offset_store import OffsetStore
from barnabas.groups.offsets import Offsets
from barnabas.groups.rebalance import Rebalance
from barnabas.groups.records import (
    GroupMetadataRecord,
    GroupRecord,
    OffsetCommitRecord,
    OtherGroupRecord,
    group_tombstone,
    offset_tombstone,
    parse_record,
)
from barnabas.groups.settings import GroupOverrides, GroupSettings
from barnabas.groups.states import ConsumerGroupState, GroupState
from barnabas.groups.timers import TimerKey, TimerKind
from barnabas.groups.topics import Topics
from barnabas.model import Offset, ProducerId, TopicPartition
from barnabas.primitives.decision import Decision, StoredRecord
from barnabas.protocol.messages.consumer_group_describe_response import (
    DescribedGroup as DescribedConsumerGroup,
)
from barnabas.protocol.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups_response import DescribedGroup, DescribedGroupMember
from barnabas.protocol.messages.list_groups_response import ListedGroup
from barnabas.records.control import parse_end_txn_marker
from barnabas.records.header import BatchHeader
from barnabas.records.layout import ControlRecordType
from barnabas.records.record import Record

log = logging.getLogger(__name__)

_CLASSIC: Final = "classic"
_CONSUMER: Final = "consumer"
_FIRST_DESCRIBE_WITH_UNKNOWN_GROUP: Final = 6
# Tombstones come a batch at a time, so that other requests come in between.
CLEANUP_RECORDS_MAX: Final = 1_000
CLEANUP_PAUSE_MS: Final = 100
CLEANUP: Final = TimerKey(TimerKind.CLEANUP)
_CLASSIC_TIMERS: Final = (TimerKind.SESSION, TimerKind.JOIN, TimerKind.SYNC)


class _Marker(NamedTuple):
    """The end of a transaction that has committed offsets."""

    producer_id: ProducerId
    is_committed: bool


class _Uncommitted:
    """A batch that is appended and not committed."""

    __slots__ = ("base_offset", "end_offset", "marker", "producer_id", "records")

    def __init__(
        self,
        base_offset: Offset,
        records: Sequence[StoredRecord],
        producer_id: ProducerId | None,
        marker: _Marker | None = None,
    ) -> None:
        self.base_offset: Final = base_offset
        self.records: Final = records
        self.producer_id: Final = producer_id
        self.marker: Final = marker
        self.end_offset: Final = base_offset + (len(records) if marker is None else 1)


class GroupCoordinator:
    def __init__(
        self, settings: GroupSettings, new_uuid: Callable[[], str], counts: GroupCounts | None = None
    ) -> None:
        self._settings = settings
        self._counts = counts = counts or GroupCounts()
        self._groups = GroupTable()
        self._store = OffsetStore()
        # Groups that are known only from offsets so far.
        self._implied: set[str] = set()
        # Records that are appended and not committed, in the order of the log.
        self._uncommitted: deque[_Uncommitted] = deque()
        rebalance = Rebalance(settings, counts)
        self._updates = MemberUpdates(self._groups, settings, counts)
        self.consumers = ConsumerMembership(self._groups, settings, self._updates, rebalance, new_uuid)
        classic_members = ClassicMembers(
            self._groups, settings, self._updates, self.consumers, rebalance, new_uuid
        )
        self.membership = Membership(self._groups, settings, rebalance, classic_members, new_uuid)
        self.offsets = Offsets(self._groups, self._store, settings, counts)

    def topics_changed(self, image: Topics, changed: Iterable[str], *, has_new: bool) -> None:
        """There are other topics from now on; `changed` came, went or grew."""
        groups = self._groups
        groups.image = image
        if has_new:
            groups.topics_version += 1
        names = frozenset(changed)
        for group in groups.consumer.values():
            if not names.isdisjoint(group.subscribed_topics):
                group.request_metadata_refresh()

    def override_settings(self, overrides: Mapping[str, GroupOverrides]) -> None:
        """Groups that have settings of their own."""
        self._updates.overrides = overrides

    def replay(self, header: BatchHeader, records: Iterable[Record]) -> None:
        """A batch of the partition while it is loaded. Raises InvalidRecord if a record is not what it should be."""
        producer_id = header.producer_id if header.is_transactional else None
        for record in records:
            if header.is_control:
                marker = parse_end_txn_marker(record)
                if marker is not None:
                    self._store.end_transaction(
                        header.producer_id, is_committed=marker.control_type is ControlRecordType.COMMIT
                    )
                continue
            try:
                parsed = parse_record(record)
            except InvalidRecord as error:
                log.error("A record of a group is skipped: %s", error)
                continue
            if parsed is not None:
                self._replay(parsed, record.offset, producer_id)

    def _replay(
        self, record: GroupRecord | OtherGroupRecord, offset: Offset, producer_id: ProducerId | None
    ) -> None:
        if isinstance(record, OtherGroupRecord):
            self._replay_other(record)
        elif isinstance(record, ConsumerGroupRecord):
            self._apply_consumer_record(record)
            self._forget_versions(record)
        elif isinstance(record, GroupMetadataRecord) and record.value is not None:
            group_id = record.key.group
            try:
                self._groups.classic[group_id] = ClassicGroup.from_value(group_id, record.value)
            except InvalidRecord as error:
                log.error("A record of a group is skipped: %s", error)
                return
            self._groups.consumer.pop(group_id, None)
            self._implied.discard(group_id)
        else:
            group_id = record.key.group
            if group_id not in self._groups.classic:
                self._implied.add(group_id)
            if isinstance(record, OffsetCommitRecord):
                self._apply_offset(record, offset, producer_id)
            else:
                self._change_group(record)

    def _forget_versions(self, record: ConsumerGroupRecord) -> None:
        """The topics of an expression belong to an older image: it is resolved again."""
        group = self._groups.consumer.get(record.group_id)
        if record.about == CONSUMER_GROUP_REGEX and group is not None:
            for regex, resolved in group.resolved_regexes.items():
                group.resolved_regexes[regex] = resolved._replace(version=0)

    def _replay_other(self, record: OtherGroupRecord) -> None:
        if record.exists:
            self._groups.other[record.group_id] = record.group_type
            # Offsets that came before have made it a group without a protocol.
            self._groups.classic.pop(record.group_id, None)
        else:
            self._groups.other.pop(record.group_id, None)

    def loaded(self, now_ms: int) -> Decision:
        for group_id in self._implied:
            # Before 4.0 such a group was deleted by deleting its offsets.
            if not self._store.partitions(group_id):
                self._groups.classic.pop(group_id, None)
        self._implied.clear()
        decision = self.membership.loaded(now_ms)
        self.consumers.loaded(decision)
        decision.set_timer(CLEANUP, self._settings.offsets_retention_check_interval_ms)
        return decision

    def unloaded(self, now_ms: int) -> Decision:
        """The partition is another broker's. Nothing may be asked of this coordinator any more."""
        decision = self.membership.unloaded(now_ms)
        self.consumers.unloaded(decision)
        decision.cancel_timer(CLEANUP)
        return decision

    def appended(self, decision: Decision, base_offset: Offset, high_watermark: int) -> None:
        """The records of a decision have been appended, the first at the offset.

        Groups change at once. Offsets, and what others see of groups, change when the records are committed.
        """
        producer_id = None if decision.producer is None else decision.producer.producer_id
        records = decision.records
        if self._uncommitted:
            self.committed(high_watermark)
        if high_watermark < base_offset + len(records):
            self._hold(records, base_offset, producer_id)
            return
        for index, record in enumerate(records):
            if isinstance(record, OffsetCommitRecord):
                self._apply_offset(record, Offset(base_offset + index), producer_id)
            else:
                assert isinstance(record, (ConsumerGroupRecord, GroupMetadataRecord))
                self._change_group(record)
                self._groups.committed.release(group_id_of(record))

    def _hold(
        self, records: Sequence[StoredRecord], base_offset: Offset, producer_id: ProducerId | None
    ) -> None:
        for record in records:
            if isinstance(record, OffsetCommitRecord):
                self._store.hold(record)
            else:
                assert isinstance(record, (ConsumerGroupRecord, GroupMetadataRecord))
                self._groups.committed.appended(record)
                self._change_group(record)
        self._uncommitted.append(_Uncommitted(base_offset, records, producer_id))

    @property
    def has_uncommitted(self) -> bool:
        return bool(self._uncommitted)

    def committed(self, high_watermark: int) -> None:
        """Records that are appended below the high watermark are committed."""
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0].end_offset <= high_watermark:
            batch = uncommitted.popleft()
            if batch.marker is not None:
                self._store.end_transaction(batch.marker.producer_id, is_committed=batch.marker.is_committed)
            for index, record in enumerate(batch.records):
                if isinstance(record, OffsetCommitRecord):
                    self._store.release(record)
                    self._apply_offset(record, Offset(batch.base_offset + index), batch.producer_id)
                else:
                    assert isinstance(record, (ConsumerGroupRecord, GroupMetadataRecord))
                    self._groups.committed.committed(record)

    def _change_group(self, record: ConsumerGroupRecord | GroupMetadataRecord) -> None:
        if isinstance(record, ConsumerGroupRecord):
            self._apply_consumer_record(record)
        elif record.value is None:
            self._groups.classic.pop(record.key.group, None)

    def _apply_consumer_record(self, record: ConsumerGroupRecord) -> None:
        group_id = record.group_id
        group = self._groups.consumer.get(group_id)
        if record.value is None and (group is None or record.about == CONSUMER_GROUP_METADATA):
            self._groups.consumer.pop(group_id, None)
            return
        if group is None:
            group = self._groups.consumer[group_id] = ConsumerGroup(group_id)
            if group_id in self._implied:
                # Offsets that came before have made it a group without a protocol.
                self._implied.discard(group_id)
                self._groups.classic.pop(group_id, None)
        apply_record(group, record)

    def _apply_offset(
        self, record: OffsetCommitRecord, record_offset: Offset, producer_id: ProducerId | None
    ) -> None:
        group_id = record.key.group
        groups = self._groups
        if (
            record.value is not None
            and not groups.has(group_id)
            # Else the group is being deleted, with all of its offsets.
            and not groups.committed.has_uncommitted(group_id)
        ):
            # A commit from a client that is not a member creates a group without a protocol.
            groups.classic[group_id] = ClassicGroup(group_id, record.value.commit_timestamp)
        self._store.apply(record, record_offset, producer_id)

    def marker_appended(
        self, producer_id: ProducerId, offset: Offset, high_watermark: int, *, is_committed: bool
    ) -> None:
        """A transaction has ended; `is_committed` if its offsets are to take effect."""
        if self._uncommitted:
            self.committed(high_watermark)
        if high_watermark > offset:
            self._store.end_transaction(producer_id, is_committed=is_committed)
        else:
            marker = _Marker(producer_id, is_committed)
            self._uncommitted.append(_Uncommitted(offset, (), None, marker))

    def expire(self, key: TimerKey, now_ms: int) -> Decision:
        """A timer is due; the shell has forgotten it."""
        if key == CLEANUP:
            return self._clean_up(now_ms)
        if key.group_id in self._groups.consumer or key.kind not in _CLASSIC_TIMERS:
            return self.consumers.expire(key, now_ms)
        return self.membership.expire(key, now_ms)

    def _clean_up(self, now_ms: int) -> Decision:
        """Forgets offsets that have expired, and groups that have neither members nor offsets."""
        decision = Decision()
        records: list[GroupRecord] = []
        delay_ms = self._settings.offsets_retention_check_interval_ms
        groups: list[ClassicGroup | ConsumerGroup] = [
            *self._groups.classic.values(),
            *self._groups.consumer.values(),
        ]
        for group in groups:
            expired = self.offsets.expired(group, now_ms)
            records.extend(offset_tombstone(group.group_id, *partition) for partition in expired)
            if len(expired) == len(self._store.committed(group.group_id)) and self._may_go(group):
                records.extend(_tombstones(group))
            if len(records) > CLEANUP_RECORDS_MAX:
                # Tombstones keep their order within a group: a group that is cut continues in the next round.
                del records[CLEANUP_RECORDS_MAX:]
                delay_ms = CLEANUP_PAUSE_MS
                break
        self._counts.offset_expirations += sum(isinstance(record, OffsetCommitRecord) for record in records)
        decision.append(records)
        decision.is_atomic = False
        decision.set_timer(CLEANUP, delay_ms)
        return decision

    def _may_go(self, group: ClassicGroup | ConsumerGroup) -> bool:
        """Whether the group is nothing but its offsets."""
        if self._store.may_change(group.group_id) or self._groups.committed.has_uncommitted(group.group_id):
            return False
        return _is_empty(group) and not (isinstance(group, ClassicGroup) and group.pending_join_members)

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[ListedGroup]:
        """Those in one of the states and of one of the types, in any case of letters; none named means any."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {group_type.lower() for group_type in types}
        return [
            listed
            for listed in map(_listed, self._groups.committed)
            if (not wanted_types or listed.group_type in wanted_types)
            and (not wanted_states or listed.group_state.lower() in wanted_states)
        ]

    def group_counts(self) -> Iterable[tuple[str, str, int]]:
        """Type and state of groups, and how many there are."""
        counts = Counter((_type_of(group), group.state.value) for group in self._groups.committed)
        return ((group_type, state, count) for (group_type, state), count in counts.items())

    @property
    def offset_count(self) -> int:
        return self._store.count()

    def groups_with_offsets(self) -> list[str]:
        return self._store.committed_group_ids()

    def committed_offsets(self, group_id: str) -> list[tuple[TopicPartition, int]]:
        committed = self._store.committed(group_id)
        return [(at, stored.value.offset) for at, stored in committed.items()]

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        group = self._groups.committed.find(group_id)
        if not isinstance(group, ConsumerGroup):
            is_known = group is not None or self._groups.is_other(group_id)
            what = "is not a consumer group" if is_known else "not found"
            return DescribedConsumerGroup(
                group_id=group_id,
                error_code=GroupIdNotFound.code,
                error_message=f"Group {group_id} {what}.",
            )
        return describe_consumer_group(group, self._settings.consumer_assignors[0], self._groups.image)

    def describe_groups(self, group_ids: Iterable[str], version: int) -> list[DescribedGroup]:
        return [self._describe(group_id, version) for group_id in group_ids]

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        group = self._groups.committed.find(group_id)
        if not isinstance(group, ClassicGroup):
            described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
            if version >= _FIRST_DESCRIBE_WITH_UNKNOWN_GROUP:
                described.error_code = GroupIdNotFound.code
                is_known = group is not None or self._groups.is_other(group_id)
                what = "is not a classic group" if is_known else "not found"
                described.error_message = f"Group {group_id} {what}."
            return described
        # Before all have agreed on a protocol, none of their metadata is the one to show.
        protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol_name or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=b"" if protocol_name is None else member.protocols[protocol_name],
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def delete_groups(self, caller: Caller, group_ids: Iterable[str]) -> Decision:
        decision = Decision()
        response = DeleteGroupsResponse()
        records: list[GroupRecord] = []
        for group_id in dict.fromkeys(group_ids):
            result = DeletableGroupResult(group_id=group_id)
            response.results.append(result)
            group = self._groups.classic.get(group_id) or self._groups.consumer.get(group_id)
            if self._groups.is_other(group_id) or (group is not None and not _is_empty(group)):
                result.error_code = NonEmptyGroup.code
            elif group is None:
                result.error_code = GroupIdNotFound.code
            else:
                records.extend(self.offsets.tombstones(group_id))
                records.extend(_tombstones(group))
        decision.append(records)
        decision.reply(caller, response)
        return decision


def _type_of(group: ClassicGroup | ConsumerGroup) -> str:
    return _CLASSIC if isinstance(group, ClassicGroup) else _CONSUMER


def _listed(group: ClassicGroup | ConsumerGroup) -> ListedGroup:
    protocol_type = group.protocol_type or "" if isinstance(group, ClassicGroup) else CONSUMER_PROTOCOL_TYPE
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=protocol_type,
        group_state=group.state.value,
        group_type=_type_of(group),
    )


def _is_empty(group: ClassicGroup | ConsumerGroup) -> bool:
    return group.state in (GroupState.EMPTY, ConsumerGroupState.EMPTY)


def _tombstones(group: ClassicGroup | ConsumerGroup) -> list[GroupRecord]:
    if isinstance(group, ClassicGroup):
        return [group_tombstone(group.group_id)]
    return [*consumer_group_tombstones(group)]
